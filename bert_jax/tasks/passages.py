"""Questions with long contexts as rows: [CLS] question [SEP] window of the context [SEP].

A context that does not fit is read in several windows, each beginning `stride` tokens behind the one before.
A token that is in several is judged in the one in which it has the most context (Devlin et al. 2018): that of
the largest min(tokens before it, tokens behind it) + 0.01 * length.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Sequence

import numpy as np

from bert_jax.data.encoding import Tokenizer


@dataclasses.dataclass(frozen=True)
class Document:
    """A context as T tokens.

    Attributes:
      text: as given; answers are parts of it.
      ids: (T,) int32.
      starts, ends: (T,) int32, the characters of the text that each token is of; an end is behind the last.
      shown: (T,) bool, whether these are more than white space, so that an answer may begin or end there.
    """

    text: str
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    shown: np.ndarray

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Returns start and end of the text of some tokens, white space round it left out."""
        start, end = int(self.starts[first]), int(self.ends[last])
        said = self.text[start:end]
        return end - len(said.lstrip()), start + len(said.rstrip())

    def tokens(self, start: int, end: int) -> tuple[int, int] | None:
        """Returns the first and last token that have characters of text[start:end]; None where none has.

        A token that only a part of it is of is one of them: the tokens' own text may be longer.
        """
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.starts, end, side="left")) - 1
        inside = np.flatnonzero(self.shown[first : last + 1])
        return (first + int(inside[0]), first + int(inside[-1])) if len(inside) else None


@dataclasses.dataclass(frozen=True)
class Window:
    """What a row has of a document.

    Attributes:
      place: where the first of its tokens stands in the row.
      first, stop: they are first .. stop - 1 of the document's.
      own: (stop - first,) bool, those that are judged here.
    """

    place: int
    first: int
    stop: int
    own: np.ndarray


class Reader:
    """Makes the rows of questions for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, seq_len: int, stride: int, max_question: int) -> None:
        """Keeps what is needed.

        Args:
          tokenizer: of `bert_jax.data.tokenizer`.
          seq_len: S, the most tokens of a row.
          stride: tokens from the beginning of a window to that of the next; no more than fit into one count.
          max_question: tokens of a question that are read; fewer than S by those of the ends and 1.
        """
        self._tokenizer, self._stride, self._max_question = tokenizer, stride, max_question
        self._room = seq_len - 2 - tokenizer.pair_separators

    def document(self, text: str) -> Document:
        """Returns a context's tokens."""
        encoding = self._tokenizer.encode(text, special=False)
        offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        starts, ends = offsets[:, 0], offsets[:, 1]
        if not text.isascii():
            _take_marks(text, starts, ends)
        shown = [not text[start:end].isspace() and start < end for start, end in offsets.tolist()]
        return Document(text, np.array(encoding.ids, np.int32), starts, ends, np.array(shown, bool))

    def question(self, text: str) -> list[int]:
        """Returns a question's tokens, without the end of one that is too long."""
        return self._tokenizer.encode_batch([text])[0][: self._max_question]

    def windows(self, question: Sequence[int], document: Document) -> list[Window]:
        """Returns the windows that a document is read in, at least one.

        Args:
          question: its tokens.
          document: of any length.
        """
        room, count = self._room - len(question), len(document.ids)
        borders = [(0, min(room, count))]
        while borders[-1][1] < count:
            first = borders[-1][0] + min(room, self._stride)
            borders.append((first, min(first + room, count)))
        best, owner = np.full(count, -1.0), np.zeros(count, np.int64)
        for number, (first, stop) in enumerate(borders):
            place = np.arange(stop - first)
            context = np.minimum(place, place[::-1]) + 0.01 * (stop - first)
            more = context > best[first:stop]  # of two alike the earlier one keeps it
            best[first:stop] = np.where(more, context, best[first:stop])
            owner[first:stop] = np.where(more, number, owner[first:stop])
        before = 1 + len(question) + self._tokenizer.pair_separators
        return [
            Window(before, first, stop, owner[first:stop] == number)
            for number, (first, stop) in enumerate(borders)
        ]

    def row(self, question: Sequence[int], document: Document, window: Window) -> tuple[list[int], list[int]]:
        """Returns ids and type ids of a window with its question."""
        return self._tokenizer.join(question, document.ids[window.first : window.stop].tolist())


def _take_marks(text: str, starts: np.ndarray, ends: np.ndarray) -> None:
    """Lets each token end behind the combining marks that belong to its last character, in place.

    A tokenizer that strips accents leaves them out, and a part of the text that ends before them would
    break a character in two.
    """
    following = [*starts.tolist(), len(text)][1:]
    for n, (end, border) in enumerate(zip(ends.tolist(), following, strict=True)):
        while end < border and unicodedata.category(text[end]) in ("Mn", "Me", "Mc"):
            end += 1
        ends[n] = end
