"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 have them (0 to 1, not 100).

Before two texts are compared, they lose their capitals, ASCII punctuation, the words a, an and the, and all
but single spaces. F1 is over the words that both have, as often as both have them. Of several right answers
that counts which is met best.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(text: str) -> str:
    """Returns what two answers are compared by."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(said: str, right: str) -> float:
    """Returns 1 where two texts are alike, else 0."""
    return float(normalized(said) == normalized(right))


def f1(said: str, right: str) -> float:
    """Returns F1 of the words of two texts; 0 where they have none in common."""
    a, b = normalized(said).split(), normalized(right).split()
    common = sum((Counter(a) & Counter(b)).values())
    if not common:
        return 0.0
    precision, recall = common / len(a), common / len(b)
    return 2 * precision * recall / (precision + recall)


def of_question(said: str, golds: Sequence[str], nulls: bool) -> tuple[float, float]:
    """Returns exact match and F1 of one answer, the best of each over the right ones.

    Args:
      said: the answer; "" is none.
      golds: the right ones; none where there is none.
      nulls: of SQuAD 2.0: right answers of which nothing is left to compare do not count, and if none is
        left, no answer is right; two texts of no words are alike. Of 1.1 their F1 is 0.
    """
    if nulls:
        golds = [gold for gold in golds if normalized(gold)] or [""]
        if not normalized(said) or not golds[0]:
            both = float(any(normalized(said) == normalized(gold) for gold in golds))
            return both, both
    return max(exact(said, gold) for gold in golds), max(f1(said, gold) for gold in golds)


def best_threshold(
    scores: np.ndarray, odds: np.ndarray, answerable: np.ndarray, answered: np.ndarray
) -> tuple[float, float, float]:
    """Returns the best mean score that leaving answers out reaches, and thresholds from, to that reach it.

    A question whose odds are above the threshold has no answer said to it, which is worth 1 where it has
    none and else 0. The first threshold is that of SQuAD 2.0's script, except that it never lies among equal
    odds, and that it lies below all of them where no answer is best: so that it does reach the score. All
    thresholds from there to below the second one, the next higher odds, do the same.

    Args:
      scores: (N,) of the best answers that are not empty.
      odds: (N,) of no answer.
      answerable: (N,) bool, whether the question has an answer.
      answered: (N,) bool, whether there is anything to say.
    """
    order = np.argsort(odds, kind="stable")
    gains = np.where(answerable, scores, -1.0 * answered)[order]
    reached = np.sum(~answerable) + np.cumsum(gains)
    ordered = np.append(odds[order], odds.max() + 1.0)
    reached = np.where(np.diff(ordered) > 0, reached, -np.inf)
    best = int(np.argmax(reached))
    if reached[best] > np.sum(~answerable):
        return float(reached[best]) / len(odds), float(ordered[best]), float(ordered[best + 1])
    return float(np.mean(~answerable)), min(0.0, float(odds.min()) - 1.0), float(odds.min())
