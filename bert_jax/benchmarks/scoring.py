"""T-TA's scores of sentences beside a masked model's pseudo-log-likelihood: as fast as the products allow?"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from bert_jax import benchmarks, completion, cores
from bert_jax.benchmarks import peer as peer_lib
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.flags import UsageError
from bert_jax.interop import load
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec
from bert_jax.scoring import Scorer, cost
from bert_jax.scoring.rows import Layout

_PEER_BUDGETS = (1024, 4096)  # tokens of a batch that are tried; the faster is taken


def measure(
    config: ConfigDict, texts: Sequence[str], *, rounds: int, peers: tuple[str, ...] = (), python: str = ""
) -> dict[str, Any]:
    """Scores the same sentences by a T-TA and by a masked model of one size, in turns.

    The weights are random, on which no time depends. Ours are timed with tokenisation and all that follows;
    the peer gets the rows, masked and in batches.

    Args:
      config: its `model` says the size, whatever kind it is of, and `data.tokenizer` or `init_from` the
        vocabulary.
      texts: sentences; empty ones, and those longer than the model reads, are left out.
      rounds: how often each is asked.
      peers: () or ("transformers",): pseudo-log-likelihood by PyTorch, the masked copies of sentences of
        like length in batches, with logits at the masked places only.
      python: the peer's interpreter.

    Returns:
      JSON values: `sentences_per_second` of each, `ratio` of T-TA to the masked model with its spread, the
      `ceiling` that their floating-point operations set it, and `ceiling_share`; with peers
      `ratio_transformers`, T-TA's, and `ratio_transformers_mlm`, our masked model's, with their spreads.

    Raises:
      UsageError: there is no vocabulary or no sentence, or the peer does not compute the model.
    """
    config, source, _ = completion.complete(config, None)
    if not config.data.tokenizer:
        raise UsageError(
            "--what=scoring needs a vocabulary: name one by --config.data.tokenizer or --config.init_from"
        )
    tokenizer = source.tokenizer if source else tokenizers.load(config.data.tokenizer, config.data.lowercase)
    tta, mlm = (_spec(config, tokenizer, kind) for kind in ("tta", "encoder"))
    texts, lengths = _usable(texts, tokenizer, mlm.max_positions)
    contenders: dict[str, Callable[[], float]] = {
        "tta": _ours(tta, tokenizer, texts),
        "mlm": _ours(mlm, tokenizer, texts),
    }
    versions = {}
    with contextlib.ExitStack() as stack:
        if peers:
            peer = stack.enter_context(peer_lib.Peer(python))
            versions = peer.versions
            contenders["transformers"] = _theirs(peer, mlm, tokenizer, texts)
        found = benchmarks.in_turns(contenders, rounds)
    ratio = benchmarks.ratios(found["tta"], found["mlm"])
    ceiling = cost.ceiling(tta, mlm, lengths)
    result = {
        "what": "scoring",
        "device": f"{jax.device_count()} {jax.devices()[0].device_kind}",
        "layers": tta.layers,
        "hidden_size": tta.hidden_size,
        "vocab_size": tta.vocab_size,
        "sentences": len(texts),
        "tokens": sum(lengths),
        "rounds": rounds,
        "sentences_per_second": {
            name: len(texts) / statistics.median(seconds) for name, seconds in found.items()
        },
        "ratio": ratio["median"],
        "ratio_spread": [ratio["lowest"], ratio["highest"]],
        "ceiling": ceiling,
        "ceiling_share": ratio["median"] / ceiling,
    }
    if peers:
        result["peers"] = {"versions": versions}
        for name, ours in (("ratio_transformers", "tta"), ("ratio_transformers_mlm", "mlm")):
            ratio = benchmarks.ratios(found[ours], found["transformers"])
            result[name] = ratio["median"]
            result[f"{name}_spread"] = [ratio["lowest"], ratio["highest"]]
    return result


def _spec(config: ConfigDict, tokenizer: Tokenizer, kind: str) -> ModelSpec:
    model = config.model.copy_and_resolve_references()
    model.kind, model.mask = kind, "full"
    return spec_lib.from_config(model, vocab_size=tokenizer.vocab_size, mask_id=tokenizer.mask_id)


def _usable(texts: Sequence[str], tokenizer: Tokenizer, longest: int) -> tuple[list[str], list[int]]:
    """Returns the texts that fit, and each one's tokens without its ends."""
    counted = [(text, len(tokenizer.encode(text, special=False).ids)) for text in texts]
    used = [(text, count) for text, count in counted if 0 < count <= longest - 2]
    if not used:
        raise UsageError("--input: no line has tokens that the model can read")
    if len(used) < len(texts):
        logging.info("%d lines without tokens, or with too many, are left out", len(texts) - len(used))
    return [text for text, _ in used], [count for _, count in used]


def _ours(spec: ModelSpec, tokenizer: Tokenizer, texts: list[str]) -> Callable[[], float]:
    """Returns what scores the texts and says how long that took; it is compiled and warm."""
    row = {"tokens": jax.ShapeDtypeStruct((1, 4), jnp.int32)}
    shapes = nn.unbox(jax.eval_shape(Model(spec).init, jax.random.key(0), row))["params"]
    draw = np.random.default_rng(0)  # compiling the model's own initialisation takes minutes
    params = jax.tree.map(lambda x: spec.init_std * draw.standard_normal(x.shape, np.float32), shapes)
    scorer = Scorer(load.Source(spec, params, tokenizer, (), []))

    def measure() -> float:
        start = time.perf_counter()
        for _ in scorer.score(texts):
            pass
        return time.perf_counter() - start

    logging.info("%s: %.1f s with compilation", scorer.method, measure())
    return measure


def masked_batches(
    tokenizer: Tokenizer, texts: Sequence[str], longest: int, budget: int
) -> list[dict[str, np.ndarray]]:
    """Returns all masked copies of sentences in batches, each of which is padded to its longest row.

    Args:
      tokenizer: the model's.
      texts: sentences that fit into a row.
      longest: tokens that the model reads.
      budget: most tokens of a batch, where that is more than one row.

    Returns:
      of each batch `tokens`, `segment_ids` and `type_ids` (B, S), `places` and `targets` (B,).
    """
    layout = Layout(tokenizer, longest, "pll", ends=False, whole_words=False)
    rows = [row for number, text in enumerate(texts) for row in layout.rows(number, layout.line(text))]
    rows.sort(key=lambda row: -len(row.ids))
    made, start = [], 0
    while start < len(rows):
        width = len(rows[start].ids)
        some = rows[start : start + max(1, budget // width)]
        tokens = np.full((len(some), width), tokenizer.pad_id, np.int32)
        segments = np.zeros_like(tokens)
        for line, row in enumerate(some):
            tokens[line, : len(row.ids)] = row.ids
            tokens[line, row.masked] = tokenizer.mask_id
            segments[line, : len(row.ids)] = 1
        places, targets = (
            np.array([x[0] for x in of]) for of in zip(*((r.places, r.targets) for r in some), strict=True)
        )
        made.append({
            "tokens": tokens, "segment_ids": segments, "type_ids": np.zeros_like(tokens),
            "places": places, "targets": targets,
        })  # fmt: skip
        start += len(some)
    return made


def _theirs(
    peer: peer_lib.Peer, spec: ModelSpec, tokenizer: Tokenizer, texts: list[str]
) -> Callable[[], float]:
    """Returns what lets the peer score the texts and says how long that took; it is warm."""
    seconds = {}
    for budget in _PEER_BUDGETS:
        name = f"scores_{budget}"
        peer.ask(
            "load_scorer",
            name=name,
            config=peer_lib.bert_config(spec),
            batches=peer.give(masked_batches(tokenizer, texts, spec.max_positions, budget)),
            threads=len(cores.available()),
        )
        peer.ask("score", name=name)
        seconds[name] = peer.ask("score", name=name)["seconds"]
        logging.info("transformers, %d tokens a batch: %.1f s", budget, seconds[name])
    fastest = min(seconds, key=seconds.__getitem__)
    return lambda: peer.ask("score", name=fastest)["seconds"]
