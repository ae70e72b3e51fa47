"""Minimal pairs: how often the good sentence is the likelier one (BLiMP; Warstadt et al. 2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from etils import epath
from scipy import stats

from bert_jax.data import files
from bert_jax.scoring.scorer import Scorer
from bert_jax.tasks import tables

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


def read(path: str, good: str, bad: str, paradigm: str, flag: str = "--input") -> list[tuple[str, str, str]]:
    """Returns (paradigm, good, bad) of each pair.

    Raises:
      ValueError: a column or a text is not there, or no pair is.
    """
    columns = [good, bad, *[paradigm] * bool(paradigm)]
    found = files.find(path, (".jsonl",), flag)
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


def value(pair: Judged) -> dict[str, Any]:
    """Returns what is written of a pair."""
    return {**dataclasses.asdict(pair), "correct": pair.correct}
