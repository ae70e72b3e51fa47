"""Where the phrases of a Winograd schema stand in its text (Levesque et al. 2012, as SuperGLUE gives them).

A phrase is told by its words and by the number of its first word, counted by white space. In the released
files some numbers are those of another word, and some phrases differ from the text in case, white space or a
full stop, or have other words between theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import punctuation

from bert_jax.tasks import TaskDataError


def locate(text: str, phrase: str, index: int, where: str) -> tuple[tuple[int, int], bool]:
    """Returns first and last character (exclusive) of a phrase, and whether it stands where it is said to.

    Of several places the one nearest to the word of that number is taken. Where other words stand between
    the phrase's, they belong to it; where nothing but its first word is found, and at that number, this word
    stands for it.

    Args:
      text: the whole text.
      phrase: the words.
      index: number of the first one, from 0.
      where: what it is, for messages.

    Raises:
      TaskDataError: it is not in the text.
    """
    words = list(re.finditer(r"\S+", text))
    if not phrase.strip() or not words:
        raise TaskDataError(f"{where}: the span {phrase!r} of {text[:60]!r} is empty")
    told = words[min(max(index, 0), len(words) - 1)]
    for pattern in _patterns(phrase.split()):
        found = list(re.finditer(pattern, text, re.IGNORECASE | re.DOTALL))
        if found:
            nearest = min(found, key=lambda match: abs(match.start() - told.start()))
            there = told.start() <= nearest.start() < told.end()
            return nearest.span(), there and 0 <= index < len(words)
    first = phrase.split()[0].strip(punctuation)
    if first and told.group().strip(punctuation).lower() == first.lower():
        begin = told.start() + told.group().lower().index(first.lower())
        return (begin, begin + len(first)), False
    raise TaskDataError(f"{where}: the span {phrase!r} is not in the text {text[:60]!r}")


def _patterns(words: list[str]) -> Iterator[str]:
    """Yields what a phrase may look like, the strictest first."""
    bare = [word for word in (word.strip(punctuation) for word in words) if word]
    for some, between in ((words, r"\s+"), (bare, r"\s+"), (bare, r"\b.*?\b")):
        if some:
            whole = between.join(map(re.escape, some))
            yield rf"(?<!\w){whole}(?!\w)"
            yield whole
