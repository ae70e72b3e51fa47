"""Texts with two marked entities, and the rows that a model reads of them.

The markers are texts of the vocabulary, "@ x @" and "# y #" unless `task.markers` says otherwise, and not new
tokens: so they work in every vocabulary, bring rows that are trained already, and leave tokenizer, tables
and exports as they are; Zhou and Chen (2022) found such marks to be as good as new tokens. A token of the
vocabulary may be named too, such as one that it was given for this, or BERT's [unused1].
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from bert_jax.data.encoding import Tokenizer
from bert_jax.tasks import TaskDataError, tables

# How a text alone says where its entities are.
_INLINE = re.compile(r"\[E1\](.*?)\[/E1\]|\[E2\](.*?)\[/E2\]", re.DOTALL)
SPANS = ("head", "tail")  # fields of the first and the second entity, where a text has no marks in it


@dataclasses.dataclass(frozen=True)
class Marked:
    """A text with the first and last character (exclusive) of its two entities, in the order of `SPANS`."""

    text: str
    spans: tuple[tuple[int, int], tuple[int, int]]


def of_inline(text: str, where: str) -> Marked:
    """Returns a text of the form "[E1] x [/E1] and [E2] y [/E2]" without its marks and their spaces.

    Args:
      text: either entity may stand first.
      where: what it is, for messages.

    Raises:
      TaskDataError: it has not both entities once, or one is empty.
    """
    found = list(_INLINE.finditer(text))
    numbers = [0 if match.group(1) is not None else 1 for match in found]
    entities = [match.group(number + 1) for match, number in zip(found, numbers, strict=True)]
    if sorted(numbers) != [0, 1] or not all(entity.strip() for entity in entities):
        raise TaskDataError(
            f"{where}: there must be one [E1] entity [/E1] and one [E2] entity [/E2] in it: {text[:60]!r}"
        )
    spans = [(0, 0), (0, 0)]
    plain, end = "", 0
    for match, number, entity in zip(found, numbers, entities, strict=True):
        plain = _joined(plain, text[end : match.start()])
        plain = _joined(plain, entity)
        stop = len(plain.rstrip(" "))
        spans[number] = stop - len(entity.strip(" ")), stop
        end = match.end()
    return Marked(_joined(plain, text[end:]).rstrip(" "), (spans[0], spans[1]))


def _joined(before: str, after: str) -> str:
    """Returns the two texts after one another, with no space twice between them or at the start."""
    return before + (after.lstrip(" ") if not before or before.endswith(" ") else after)


def of_row(row: tables.Row, column: str) -> Marked:
    """Returns what a row of a table says.

    Its text is a text or a list of words, its spans are [first, end] in characters or words; a text without
    spans has its marks inside (`of_inline`).

    Raises:
      TaskDataError: a span is not in the text, empty, or half there.
    """
    text = row.values[column]
    spans = [row.values.get(name) for name in SPANS]
    if spans == [None, None] and isinstance(text, str):
        return of_inline(text, row.where)
    if isinstance(text, list) and all(isinstance(word, str) and word for word in text):
        size, unit = len(text), "words"
        ends = (np.cumsum([len(word) + 1 for word in text]) - 1).tolist()
        starts = [end - len(word) for end, word in zip(ends, text, strict=True)]
        text = " ".join(text)
    elif isinstance(text, str):
        size, unit = len(text), "characters"
        starts, ends = range(size), range(1, size + 1)
    else:
        raise TaskDataError(f"{row.where}: {column} {text!r}: it must be a text or a list of words")
    found = []
    for name, span in zip(SPANS, spans, strict=True):
        whole = isinstance(span, list) and len(span) == 2 and all(type(x) is int for x in span)
        if not whole or not 0 <= span[0] < span[1] <= size:
            raise TaskDataError(
                f"{row.where}: {name} {span!r}: it must be [first, end] with first < end, in {unit} of the "
                f"text, which has {size}"
            )
        found.append((starts[span[0]], ends[span[1] - 1]))
    return Marked(text, (found[0], found[1]))


class Marker:
    """Makes rows of marked texts for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, markers: Sequence[str], seq_len: int) -> None:
        """Tokenises the marks.

        Args:
          tokenizer: of `bert_jax.data.tokenizer`.
          markers: before and after the first, before and after the second entity.
          seq_len: S, the most tokens of a row.

        Raises:
          ValueError: the vocabulary does not know a mark.
        """
        self._tokenizer, self._room = tokenizer, seq_len - 2
        self._marks: list[list[int]] = []
        for mark, ids in zip(markers, tokenizer.encode_running(list(markers)), strict=True):
            token = tokenizer.id(mark)
            if token is not None and (len(ids) != 1 or ids[0] == tokenizer.unk_id):
                ids = [token]  # what is split as a text, and stands in the vocabulary whole
            if not ids or tokenizer.unk_id in ids:
                raise ValueError(f"task.markers: the vocabulary does not know {mark!r}: take another text")
            self._marks.append(ids)

    def row(self, marked: Marked) -> tuple[list[int], tuple[int, int], int]:
        """Returns a row's ids, where the marks before the two entities start, and how many ids it had whole.

        A text that is too long loses what is farthest from the two marks before its entities.
        """
        text, tokenizer = marked.text, self._tokenizer
        # At one place ends come before starts; of two ends the inner entity's, of two starts the outer's.
        borders = sorted(
            (here, side, -there, number)
            for number, (start, end) in enumerate(marked.spans)
            for side, here, there in ((1, start, end), (0, end, start))
        )
        ids: list[int] = []
        starts, at = [0, 0], 0
        for place, side, _, number in borders:
            ids += self._ids(text[at:place])
            if side:
                starts[number] = len(ids)
            ids += self._marks[2 * number + 1 - side]
            at = place
        ids += self._ids(text[at:])
        kept = nearest(len(ids), starts, self._room)
        row = tokenizer.join([ids[i] for i in kept])[0]
        where = (1 + kept.index(starts[0]), 1 + kept.index(starts[1]))
        return row, where, len(ids) + 2

    def _ids(self, text: str) -> list[int]:
        text = text.strip(" ")
        return self._tokenizer.encode_running([text])[0] if text else []


def nearest(count: int, centres: Sequence[int], room: int) -> list[int]:
    """Returns which of `count` tokens, `room` at most, are nearest to one of the centres, ascending."""
    order = sorted(range(count), key=lambda i: (min(abs(i - c) for c in centres), i))
    return sorted(order[:room])
