"""Answers in words, compared as the scorer of SQuAD does (Rajpurkar et al. 2016), and that of ReCoRD."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """Returns a text in lower case, without ASCII punctuation, English articles and odd white space."""
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(said: str, gold: str) -> float:
    """Returns 1 where two answers are equal once `normalized`, else 0."""
    return float(normalized(said) == normalized(gold))


def f1(said: str, gold: str) -> float:
    """Returns F1 of the words of an answer against those of a right one, each as often as it occurs.

    Where one of them has no word, 1 if the other has none either.
    """
    words, right = normalized(said).split(), normalized(gold).split()
    if not words or not right:
        return float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right))


def best(score: Callable[[str, str], float], said: str, golds: Sequence[str]) -> float:
    """Returns the highest score of an answer against any of the right ones.

    Args:
      score: `exact_match` or `f1`.
      said: the answer.
      golds: at least one.
    """
    return max(score(said, gold) for gold in golds)
