"""Sentence-order pairs (ALBERT, Lan et al. 2019, section 3.1): two consecutive segments, perhaps swapped.

A pair is what lies before and after the border of two sentences of one document. Nothing but the text may
tell whether its segments were swapped, so all else treats the two sides of the border alike, and the two
ends of a segment:

    the border   is any of the text's with the same chance;
    the segments are the longest runs of whole sentences that fit: that of one side, by a coin, into a random
                 part of the row, and the other's into what is left of it. (The shortest runs that fill the
                 row would have a long sentence, the one that goes beyond it, always at their outer end.)
    the cut      is made where a single sentence is too long: after swapping, by a rule that knows but the
                 first segment and the second, and from both ends of each alike.

If the lengths of sentences were independent, lengths and cuts would tell nothing at all. What remains is a
property of the text: where long sentences tend to follow short ones, or documents begin in another way
than they end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_jax.data.pairs import Spans, drop_front, room, targets, truncate


class OrderPairs:
    """The pairs of a text; label 0 is in order, 1 swapped.

    Attributes:
      num_examples: pairs of an epoch: as many as rows would hold the text. Their borders are spread evenly
        over the text, and drawn anew in every epoch.
    """

    def __init__(
        self, sentences: np.ndarray, documents: np.ndarray, seq_len: int, short_share: float
    ) -> None:
        """Counts the borders.

        Args:
          sentences: (n + 1,) int64: where sentences start in the token stream.
          documents: (m + 1,) int64: the sentences that start documents. One document is enough.
          seq_len: S, three of which are [CLS] and two [SEP].
          short_share: share of the pairs that are made for a random shorter row.

        Raises:
          ValueError: no document of two sentences, or S below 5.
        """
        self._sentences, documents = np.asarray(sentences), np.asarray(documents)
        self._room, self._short_share = room(seq_len), short_share
        several = np.diff(documents) > 1
        self._begin, self._end = documents[:-1][several], documents[1:][several]
        if not self._begin.size:
            raise ValueError(
                "no document has two sentences, and sentence-order pairs are made of two or more: set "
                "objective.sop.weight = 0, or give text with longer documents"
            )
        # Borders of all documents before each.
        self._borders = np.concatenate([[0], np.cumsum(self._end - self._begin - 1)])
        tokens = int((self._sentences[self._end] - self._sentences[self._begin]).sum())
        self.num_examples = max(1, min(int(self._borders[-1]), tokens // self._room))

    def spans(self, examples: np.ndarray, generators: Sequence[np.random.Generator]) -> Spans:
        """Returns the pairs of the given examples, each drawn from its own generator.

        Args:
          examples: (R,) int: numbers below `num_examples`.
          generators: one an example.
        """
        draws = np.stack([generator.random(6) for generator in generators])
        sentences, total = self._sentences, int(self._borders[-1])
        is_swapped, before_first = draws[:, 0] < 0.5, draws[:, 5] < 0.5
        # Equal parts of all borders, and one of each part: any border of the text has the same chance.
        number = ((examples + draws[:, 1]) * (total / self.num_examples)).astype(np.int64)
        number = np.minimum(number, total - 1)
        document = np.searchsorted(self._borders, number, side="right") - 1
        begin, end = self._begin[document], self._end[document]
        middle = begin + 1 + number - self._borders[document]
        border = sentences[middle]
        target = targets(draws[:, 2], draws[:, 3], self._room, self._short_share)
        part = 1 + (draws[:, 4] * (target - 1)).astype(np.int64)

        def before(most: np.ndarray) -> np.ndarray:
            first = np.searchsorted(sentences, border - most, side="left")
            return border - sentences[np.clip(first, begin, middle - 1)]

        def after(most: np.ndarray) -> np.ndarray:
            last = np.searchsorted(sentences, border + most, side="right") - 1
            return sentences[np.clip(last, middle + 1, end)] - border

        left, right = before(part), after(part)
        left, right = (
            np.where(before_first, left, before(target - right)),
            np.where(before_first, after(target - left), right),
        )
        a_start, b_start = np.where(is_swapped, [border, border - left], [border - left, border])
        a_whole, b_whole = np.where(is_swapped, [right, left], [left, right])
        a_length, b_length = truncate(a_whole, b_whole, target)
        a_start += drop_front(a_whole - a_length, generators)
        b_start += drop_front(b_whole - b_length, generators)
        return Spans(a_start, a_length, b_start, b_length, is_swapped.astype(np.int32))
