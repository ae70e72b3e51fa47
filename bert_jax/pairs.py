"""Which sentence of a minimal pair does a model find likelier? Accuracy by paradigm (BLiMP).

The input is a .jsonl file (or .tsv, .csv, or one of these with .gz), or a folder or glob of .jsonl files,
with a column for the good sentence, one for the bad and one for the paradigm; BLiMP's names are the default.
A pair is right where the good sentence's log_prob (see bert_jax.score) is the higher one. A tie is wrong:
a difference of no more than 0.0001, which rounding can make. The interval is Wilson's, at 95%.
--output writes a JSON line a pair: {"paradigm", "good", "bad", "good_log_prob", "bad_log_prob", "correct"}.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from absl import flags as absl_flags
from absl import logging
from etils import epath
from scipy import stats

from bert_jax import flags
from bert_jax.data import files
from bert_jax.interop import load
from bert_jax.scoring import Scorer, output, paths
from bert_jax.scoring import scorer as scorer_lib
from bert_jax.tasks import tables

_MODEL = absl_flags.DEFINE_string(
    "model", None, "A run's workdir, a model directory or one of Hugging Face's.", required=True
)
_INPUT = absl_flags.DEFINE_string(
    "input", None, "A table of pairs, or a folder or glob of .jsonl.", required=True
)
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "JSON lines; a name in .gz is compressed; - writes stdout."
)
_GOOD = absl_flags.DEFINE_string("good", "sentence_good", "Column of the acceptable sentence.")
_BAD = absl_flags.DEFINE_string("bad", "sentence_bad", "Column of the other sentence.")
_PARADIGM = absl_flags.DEFINE_string("paradigm", "UID", "Column of the paradigm; empty: there is one only.")
_METHOD = absl_flags.DEFINE_enum(
    "method", "auto", ["auto", *scorer_lib.METHODS], "How to score; each model has one way, which auto takes."
)
_ENDS = absl_flags.DEFINE_bool("ends", False, "Score the end tokens too (tta, causal).")
_WHOLE_WORDS = absl_flags.DEFINE_bool("whole_words", False, "Mask all pieces of a word together (pll).")
_BATCH_TOKENS = absl_flags.DEFINE_integer(
    "batch_tokens",
    0,
    "Tokens computed at once on a device; 0: 1024 on a CPU, 16384 elsewhere.",
    lower_bound=0,
)

TIE = 1e-4  # a difference of log-probabilities that may be rounding


@dataclasses.dataclass(frozen=True)
class Judged:
    """A minimal pair and the log-probabilities of its sentences."""

    paradigm: str
    good: str
    bad: str
    good_log_prob: float
    bad_log_prob: float

    @property
    def is_tie(self) -> bool:
        return abs(self.good_log_prob - self.bad_log_prob) <= TIE

    @property
    def correct(self) -> bool:
        return self.good_log_prob > self.bad_log_prob and not self.is_tie


def read(path: str, good: str, bad: str, paradigm: str) -> list[tuple[str, str, str]]:
    """Returns (paradigm, good, bad) of each pair.

    Raises:
      ValueError: a column or a text is not there, or no pair is.
    """
    columns = [good, bad, *[paradigm] * bool(paradigm)]
    found = files.find(path, (".jsonl",), "--input")
    pairs = [
        (tables.text(row, paradigm) if paradigm else "all", tables.text(row, good), tables.text(row, bad))
        for file in found
        for row in tables.rows(epath.Path(file), columns)
    ]
    if not pairs:
        raise ValueError(f"{path}: no pair in it")
    return pairs


def judge(scorer: Scorer, pairs: list[tuple[str, str, str]]) -> Iterator[Judged]:
    """Yields each pair with its log-probabilities."""
    scored = scorer.score(text for pair in pairs for text in pair[1:])
    for (paradigm, good, bad), one in zip(pairs, scored, strict=False):
        yield Judged(paradigm, good, bad, one.log_prob, next(scored).log_prob)


def interval(right: int, count: int) -> tuple[float, float]:
    """Returns Wilson's 95% interval of a share."""
    found = stats.binomtest(right, count).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


def table(judged: list[Judged]) -> str:
    """Returns the lines of the summary: a paradigm each, then all pairs."""
    names = sorted({pair.paradigm for pair in judged})
    width = max(map(len, [*names, "paradigm", "overall"])) + 2
    lines = [f"{'paradigm':<{width}}{'accuracy':>9}{'95% interval':>17}{'pairs':>8}{'ties':>6}"]
    for name in [*names, "overall"]:
        some = judged if name == "overall" else [pair for pair in judged if pair.paradigm == name]
        right = sum(pair.correct for pair in some)
        low, high = interval(right, len(some))
        between = f"{100 * low:.2f} - {100 * high:.2f}"
        ties = sum(pair.is_tie for pair in some)
        lines.append(f"{name:<{width}}{100 * right / len(some):>9.2f}{between:>17}{len(some):>8}{ties:>6}")
    return "\n".join([*lines, "a tie counts as wrong"])


def _value(pair: Judged) -> dict[str, Any]:
    return {**dataclasses.asdict(pair), "correct": pair.correct}


def main() -> None:
    """Reads --input, says the table, and writes --output."""
    if _OUTPUT.value:
        paths.check_to_write(_OUTPUT.value)
    pairs = read(_INPUT.value, _GOOD.value, _BAD.value, _PARADIGM.value)
    scorer = Scorer(
        load.read(_MODEL.value),
        _METHOD.value,
        ends=_ENDS.value,
        whole_words=_WHOLE_WORDS.value,
        batch_tokens=_BATCH_TOKENS.value,
    )
    logging.info("%d pairs, scored by %s", len(pairs), scorer.method)
    judged = list(judge(scorer, pairs))
    if _OUTPUT.value:
        output.write(map(_value, judged), _OUTPUT.value)
    paths.say(table(judged), _OUTPUT.value)


if __name__ == "__main__":
    flags.run(main)
