"""Words that are given, one by one, as rows of pieces: what a tagger reads.

Each word is split by itself; a row knows where the first piece of each of its words stands. A sentence that
is longer than a row is read in several, its windows, cut between words. Neighbours overlap, so that words at
a border are read with their neighbourhood, but each word is of one window alone: its tag is taken from
there, and none is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

_OVERLAP = 4  # a fourth of a window is the next one's too


@dataclasses.dataclass(frozen=True)
class Window:
    """A row of a sentence, or all of it.

    Attributes:
      ids: pieces, special tokens included.
      positions: where the first piece of each of its words stands in the row.
      first: the number of its first word in the sentence.
      own: (start, stop) of the words of the sentence that are its own.
    """

    ids: list[int]
    positions: list[int]
    first: int
    own: tuple[int, int]

    def own_of(self, values: np.ndarray) -> np.ndarray:
        """Returns those of its own words from (W, ..) values of the row's words."""
        start, stop = self.own
        return values[start - self.first : stop - self.first]


class Splitter:
    """Makes the windows of sentences for one tokenizer; words that come again are not split again."""

    def __init__(self, tokenizer: Any, seq_len: int) -> None:
        """Keeps what is needed.

        Args:
          tokenizer: of `bert_jax.data.tokenizer`.
          seq_len: S, the most tokens of a row.
        """
        self._tokenizer, self._room = tokenizer, seq_len - 2
        self._known: dict[str, list[int]] = {}

    def windows(self, words: Sequence[str]) -> list[Window]:
        """Returns the rows of a sentence of at least one word.

        A word of no piece (of characters that the tokenizer drops) is an unknown token; of one that fills a
        window the pieces behind three fourths of it are left out.
        """
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        longest = self._room - self._room // _OVERLAP
        for word, ids in zip(new, self._tokenizer.encode_running(new), strict=True):
            self._known[word] = ids[:longest] or [self._tokenizer.unk_id]
        pieces = [self._known[word] for word in words]
        made = []
        for first, stop, own in _cut([len(each) for each in pieces], self._room):
            ids, positions = [], []
            for each in pieces[first:stop]:
                positions.append(1 + len(ids))  # behind the start token
                ids += each
            made.append(Window(self._tokenizer.join(ids)[0], positions, first, own))
        return made


def _cut(sizes: Sequence[int], room: int) -> list[tuple[int, int, tuple[int, int]]]:
    """Returns (first word, end, own words) of each window over words of these sizes.

    A window takes all words that fit. The next one begins as far before its end as the overlap allows, and
    the border of what is whose lies in the middle of that.

    Args:
      sizes: pieces of each word; none is more than the room without the overlap.
      room: pieces in a window.
    """
    overlap, count = room // _OVERLAP, len(sizes)
    found, first, border = [], 0, 0
    while True:
        stop, filled = first, 0
        while stop < count and filled + sizes[stop] <= room:
            filled += sizes[stop]
            stop += 1
        if stop == count:
            return [*found, (first, stop, (border, stop))]
        following, shared = stop, 0
        while shared + sizes[following - 1] <= overlap:
            following -= 1
            shared += sizes[following]
        # The size limit makes each window bring a word that no other had, so borders move on.
        middle = max((following + stop + 1) // 2, border + 1)
        found.append((first, stop, (border, middle)))
        first, border = following, middle
