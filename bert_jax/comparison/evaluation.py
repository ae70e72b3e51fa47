"""What a trained model is worth on the data that are given, and what was found before is not done again.

`evaluation.json` in a run's workdir keeps each value beside a digest of the data that it was found with.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging
from etils import epath

from bert_jax import checkpoint, jsonl
from bert_jax import workdir as workdir_lib
from bert_jax.comparison.plan import ComparisonError, Planned
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load, native
from bert_jax.models import spec as spec_lib
from bert_jax.scoring import Scorer, minimal_pairs, nbest, program, similarity, tuning
from bert_jax.scoring.scorer import perplexity
from bert_jax.scoring.vectors import Embedder
from bert_jax.tasks import scores

KEPT = "evaluation.json"

_ROUNDS = 3  # of the sentences, to tell the speed

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Lists:
    """N-best lists to tune a weight on, others to judge it on, and BLEU's tokenizer."""

    dev: list[nbest.NBest]
    test: list[nbest.NBest]
    tokenize: str


@dataclasses.dataclass(frozen=True)
class Data:
    """What the models are judged on; what is None is left out.

    Attributes:
      sentences: held-out text.
      pairs: (paradigm, good, bad) of minimal pairs.
      similar: pairs of sentences with gold scores.
      lists: n-best lists, and how their metric is counted.
    """

    sentences: list[str]
    pairs: list[tuple[str, str, str]] | None
    similar: list[similarity.Pair] | None
    lists: Lists | None


def read_lists(paths: Sequence[epath.Path], references: epath.Path | None, tokenize: str) -> Lists:
    """Returns the n-best lists of some files in two halves: to tune on, and to judge.

    Of the ids, in the order in which they come, every second one is for tuning, so that lists of the same
    input in several files are on the same side.

    Raises:
      ComparisonError: a list has no reference, or there are fewer than two inputs.
      ValueError: a file is not of this form.
    """
    lists = [some for path in paths for some in nbest.read(path, references)]
    for some in lists:
        if some.reference is None:
            raise ComparisonError(f"--nbest: list {some.id} has no reference: name them by --reference")
    place = {id: number for number, id in enumerate(dict.fromkeys(some.id for some in lists))}
    if len(place) < 2:
        raise ComparisonError("--nbest: one input's lists cannot be both tuned on and judged: give more")
    dev, test = ([some for some in lists if place[some.id] % 2 == side] for side in (0, 1))
    return Lists(dev, test, tokenize)


def evaluate(run: Planned, data: Data) -> Values:
    """Returns all that is found of a trained run, by name; what was found before is taken from its file."""
    file = run.workdir / KEPT
    kept: dict[str, Values] = jsonl.read_object(file) if file.exists() else {}
    opened: list[load.Source] = []

    def source() -> load.Source:
        if not opened:
            opened.append(_source(run.workdir))
        return opened[0]

    parts: dict[str, tuple[Any, Callable[[load.Source, Any], Values]]] = {
        "likelihood": (data.sentences, _likelihood),
        "minimal_pairs": (data.pairs, _pairs),
        "similarity": (data.similar, _similarity),
        "reranking": (data.lists, _reranking),
    }
    found: Values = {}
    for name, (given, judge) in parts.items():
        if given is None:
            continue
        key = _digest(given)
        if kept.get(name, {}).get("data") != key:
            began = time.monotonic()
            kept[name] = {"data": key, **judge(source(), given)}
            workdir_lib.write(file, json.dumps(kept, indent=2) + "\n")
            logging.info("%s: %s in %.0f s", run.name, name.replace("_", " "), time.monotonic() - began)
        found |= {key: value for key, value in kept[name].items() if key != "data"}
    program.forget()  # no other model takes this one's programs
    return found


def _digest(data: Any) -> str:
    return hashlib.sha256(repr(data).encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _source(workdir: pathlib.Path) -> load.Source:
    """Opens the newest checkpoint, not the best: all models have made the same number of updates."""
    spec, labels = spec_lib.from_json(
        (workdir / workdir_lib.MODEL).read_bytes(), str(workdir / workdir_lib.MODEL)
    )
    params = checkpoint.read_params(workdir / workdir_lib.CHECKPOINTS)
    return load.Source(spec, params, tokenizer_lib.load(workdir / workdir_lib.TOKENIZER), labels, [])


def _likelihood(source: load.Source, sentences: list[str]) -> Values:
    scorer = Scorer(source)
    scored = list(scorer.score(sentences))  # compiles what the timed rounds run
    rates = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        for _ in scorer.score(sentences):
            pass
        rates.append(len(sentences) / (time.perf_counter() - began))
    tokens = sum(len(one.tokens) for one in scored)
    name = "perplexity" if scorer.method == "causal" else "pseudo_perplexity"
    return {
        "parameters": sum(x.size for x in native.unpadded(source.spec, source.params).values()),
        name: perplexity(math.fsum(one.log_prob for one in scored), max(1, tokens)),
        "sentences_per_second": statistics.median(rates),
    }


def _pairs(source: load.Source, pairs: list[tuple[str, str, str]]) -> Values:
    judged = list(minimal_pairs.judge(Scorer(source), pairs))

    def share(some: list[minimal_pairs.Judged]) -> float:
        return sum(pair.correct for pair in some) / len(some)

    names = sorted({pair.paradigm for pair in judged})
    by_name = {name: share([pair for pair in judged if pair.paradigm == name]) for name in names}
    return {"blimp_accuracy": share(judged), "by_paradigm": by_name}


def _similarity(source: load.Source, pairs: list[similarity.Pair]) -> Values:
    cosines = similarity.of_pairs(Embedder(source, ["mean"]), pairs)[:, 0]
    gold = np.array([pair[2] for pair in pairs], float)
    return {"stsb_pearson": scores.correlations(gold, cosines)["pearson"]}


def _reranking(source: load.Source, lists: Lists) -> Values:
    scorer, metric = Scorer(source), tuning.Bleu(lists.tokenize)
    dev, test = (tuning.scored(some, scorer, metric) for some in (lists.dev, lists.test))
    weights, by_length = tuning.tune_form(dev, metric, (False, True))
    weight = weights[by_length]
    return {
        "bleu_first_best": test.value(metric, test.first_best()),
        "bleu_reranked": test.value(metric, test.chosen(weight, by_length)),
        "bleu_oracle": test.value(metric, test.oracle(metric)),
        "weight": weight,
        "weight_by_length": by_length,
    }
