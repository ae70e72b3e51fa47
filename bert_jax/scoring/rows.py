"""Lines of text as rows of tokens, and which of a row's tokens are predicted from where.

A line that is longer than the model's input is scored in windows that overlap by half. Each of its tokens
is scored once: by T-TA and masked models in the window in whose middle it stands, by left-to-right ones in
the first window that holds it. Every window has the two ends of a sentence.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax.data.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Line:
    """A tokenised line.

    Attributes:
      text: as it was given.
      ids: its tokens, without ends.
      tokens: the strings of what is scored: the tokens, and the ends where these are scored too.
      note: what is unusual about it; None where nothing is.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    note: str | None


class Row(NamedTuple):
    """One row that the model reads.

    Attributes:
      line: number of the line that it belongs to.
      ids: the row's tokens, ends included, none masked.
      masked: positions at which the row holds the mask token instead.
      places: positions whose states predict a token.
      targets: the tokens that they predict.
      slots: which of the line's scored tokens these are.
    """

    line: int
    ids: Sequence[int]
    masked: Sequence[int]
    places: Sequence[int]
    targets: Sequence[int]
    slots: Sequence[int]


class Layout:
    """Makes rows of lines.

    Args:
      tokenizer: the model's.
      longest: tokens that the model reads, ends included; 3 or more.
      method: "tta", "pll" or "causal".
      ends: score the end tokens too: T-TA's both, a left-to-right model's last.
      whole_words: "pll" masks all pieces of a word together.
    """

    def __init__(
        self, tokenizer: Tokenizer, longest: int, method: str, ends: bool, whole_words: bool
    ) -> None:
        self._tokenizer, self._room, self._method = tokenizer, longest - 2, method
        self._whole_words = whole_words
        self._start, self._end = ends and method == "tta", ends

    def line(self, text: str) -> Line:
        """Tokenises a text."""
        encoding = self._tokenizer.encode(text, special=False)
        count, names = len(encoding.ids), self._tokenizer.specials
        note = None
        if not text.strip():
            note = "empty line"
        elif not count:
            note = "no tokens in it"
        elif count > self._room:
            windows = len(_windows(count, self._room, self._method))
            note = f"{count} tokens in {windows} windows of {self._room} and the ends"
        tokens = [*[names.cls] * self._start, *encoding.tokens, *[names.sep] * self._end]
        return Line(text, encoding.ids, tokens, note)

    def rows(self, number: int, line: Line) -> Iterator[Row]:
        """Yields the rows of a line."""
        count = len(line.ids)
        for begin, end, first, last in _windows(count, self._room, self._method):
            ids = [self._tokenizer.cls_id, *line.ids[begin:end], self._tokenizer.sep_id]
            # Token t of the line stands at t - begin + 1, and is slot t, or t + 1 behind a scored start.
            mine = list(range(first - begin + 1, last - begin + 1))
            if self._start and begin == 0:
                mine.insert(0, 0)
            if self._end and end == count:
                mine.append(len(ids) - 1)
            shift = begin - 1 + self._start
            if self._method == "pll":
                yield from self._masked(number, ids, set(mine), shift)
            elif mine:
                places = mine if self._method == "tta" else [i - 1 for i in mine]
                yield Row(number, ids, (), places, [ids[i] for i in mine], [i + shift for i in mine])

    def _masked(self, number: int, ids: list[int], mine: set[int], shift: int) -> Iterator[Row]:
        """Yields a row for each token, or each word, of which a piece is to be scored."""
        words: list[list[int]] = []
        for i in range(1, len(ids) - 1):
            if self._whole_words and words and self._tokenizer.continues[ids[i]]:
                words[-1].append(i)
            else:
                words.append([i])
        for word in words:
            asked = [i for i in word if i in mine]
            if asked:
                yield Row(number, ids, word, asked, [ids[i] for i in asked], [i + shift for i in asked])


def _windows(count: int, room: int, method: str) -> list[tuple[int, int, int, int]]:
    """Returns (begin, end, first, last) of each window: what it holds, and what of it is scored there."""
    begins = [*range(0, count - room, max(1, room // 2)), count - room] if count > room else [0]
    borders = [0]
    for this, following in itertools.pairwise(begins):
        # The border lies in the middle of the overlap, or at its end.
        borders.append(this + room if method == "causal" else (this + room + following) // 2)
    borders.append(count)
    return [
        (begin, min(begin + room, count), first, last)
        for begin, (first, last) in zip(begins, itertools.pairwise(borders), strict=True)
    ]
