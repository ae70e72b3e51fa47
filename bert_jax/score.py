"""Writes the log-probability of each line of text, and of its tokens, one JSON object a line, in order.

Each is {"text", "log_prob", "tokens", "token_log_probs"}, in nats, log_prob being the sum of
token_log_probs; "note" says what is unusual of a line. A T-TA gives every token's probability given all
the others, in one pass; a masked model the same, masking each token once (pseudo-log-likelihood); a
left-to-right model each token's given those before it. These are different quantities: compare a sum
with sums of the same method only.

The sentence's own tokens are scored; --ends adds the end tokens (T-TA's both, a left-to-right model's
last, which makes log_prob that of a whole sentence). A line that is longer than the model's input is
scored in windows that overlap by half, each token once, and says so in its note. An empty line has no
tokens, and the sum 0.

A run that was killed goes on where it was when it is started again with the same input, model and
options: until FILE is whole its lines are in FILE.partial. At the end the perplexity is said, exp of the
mean of -log p over all scored tokens: a pseudo-perplexity where it is T-TA's or a masked model's.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import tqdm
from absl import flags as absl_flags
from absl import logging
from etils import epath

from bert_jax import flags, jsonl, paths
from bert_jax.data import files
from bert_jax.data.encoding import MUCH_UNKNOWN
from bert_jax.interop import load
from bert_jax.models import spec as spec_lib
from bert_jax.scoring import Scored, Scorer, options, output
from bert_jax.scoring.scorer import perplexity

_MODEL = options.define_model()
_INPUT = absl_flags.DEFINE_string(
    "input", None, "UTF-8 text, one a line; a name in .gz is decompressed; - reads stdin.", required=True
)
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "JSON lines; a name in .gz is compressed; - writes stdout.", required=True
)
_SCORING = options.Scoring()
_SAVE_EVERY = absl_flags.DEFINE_float(
    "save_every", 5.0, "Seconds between the points that a killed run goes on from.", lower_bound=0.0
)

_TOTALS = {"lines": 0, "tokens": 0, "log_prob": 0.0, "unknown": 0}


def _add(totals: dict[str, float], scored: Scored) -> None:
    totals["lines"] += 1
    totals["tokens"] += len(scored.tokens)
    totals["log_prob"] += scored.log_prob
    totals["unknown"] += scored.unknown


def _summary(totals: dict[str, float], method: str) -> str:
    lines, tokens = int(totals["lines"]), int(totals["tokens"])
    name = "perplexity" if method == "causal" else "pseudo-perplexity"
    if not tokens:
        return f"{lines} lines without a token to score: no {name}"
    value = perplexity(totals["log_prob"], tokens)
    return f"{name} {value:.4g} ({method}, {tokens} tokens in {lines} lines)"


def _made_with(source: load.Source) -> dict[str, Any]:
    """Returns what decides the lines: a digest of the model, and the options."""
    digest = hashlib.sha256(spec_lib.to_json(source.spec).encode() + source.tokenizer.digest().encode())
    for path, array in jax.tree.leaves_with_path(source.params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(array).data)
    return {
        "model": digest.hexdigest(),
        "ends": _SCORING.ends.value,
        "whole_words": _SCORING.whole_words.value,
    }


def _lines(path: epath.Path) -> Iterator[str]:
    """Yields the lines of a file, with a bar on a terminal."""
    plain = path.is_file() and not path.name.lower().endswith(".gz")
    size = path.stat().length if plain else None
    with tqdm.tqdm(total=size, unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:
        for _, line in files.lines(path):
            yield line.removesuffix("\r")
            bar.update(len(line.encode("utf-8", "surrogatepass")) + 1)


def _to_stdout(scorer: Scorer, texts: Iterator[str]) -> dict[str, float]:
    totals = dict(_TOTALS)

    def values() -> Iterator[dict[str, Any]]:
        for scored in scorer.score(texts):
            _add(totals, scored)
            yield scored.to_json()

    jsonl.write(values(), _OUTPUT.value)
    return totals


def _to_file(scorer: Scorer, texts: Iterator[str], source: load.Source) -> dict[str, float]:
    with output.Resumable(_OUTPUT.value, _made_with(source), _TOTALS, _SAVE_EVERY.value) as lines:
        for scored in scorer.score(lines.rest(texts)):
            _add(lines.totals, scored)
            lines.add(scored.text, scored.to_json())
        return lines.totals


def main() -> None:
    """Reads --input and writes --output."""
    paths.check_to_write(_OUTPUT.value, input=_INPUT.value)
    path = paths.to_read(_INPUT.value, "input")
    source = load.read(_MODEL.value)
    scorer = _SCORING.scorer(source)
    whole = _OUTPUT.value == "-" or "://" in _OUTPUT.value  # what cannot be gone on with
    texts = _lines(path)
    totals = _to_stdout(scorer, texts) if whole else _to_file(scorer, texts, source)
    if totals["unknown"] > MUCH_UNKNOWN * max(1, totals["tokens"]):
        share = 100 * totals["unknown"] / totals["tokens"]
        logging.warning("%.1f%% of the tokens are unknown to the vocabulary: it does not fit the text", share)
    logging.info("%s", _summary(totals, scorer.method))


if __name__ == "__main__":
    flags.run(main)
