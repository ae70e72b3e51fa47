"""Next-sentence pairs (Devlin et al. 2018): two runs of sentences, of which B follows A or does not.

Documents are cut once into chunks, the examples: the shortest runs of whole sentences, two at
least, that fill a row. An example's A is the beginning of its chunk; its B is the rest, or, half
of the time, a run of sentences of another document.

A random B must not betray itself by anything but its content. It gets exactly the length that the
true B would have had, and is looked for among runs of whole sentences of the length that the true B
has before the pair is cut to the row: so that both begin and end in mid-sentence equally often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CANDIDATES = 64  # places looked at together for a random B of the true one's length
_ROUNDS = 8  # times this is tried; about 1 in 100 rows finds none and takes a part of a longer run


@dataclass
class Spans:
    """Pairs as spans of the token stream; all (R,) int64, and `labels` int32.

    Attributes:
      a_start, a_length: where A starts, and its tokens.
      b_start, b_length: the same of B.
      labels: 0 where B follows A, 1 where it does not: it is of another document, or comes before A.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    labels: np.ndarray


def chunks(sentences: np.ndarray, documents: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts every document with two sentences or more into runs of whole sentences.

    A run is the shortest one of at least two sentences that has at least `tokens` tokens, or what is
    left of the document; a single sentence that is left over joins the run before it.

    Args:
      sentences: (n + 1,) int64: where sentences start in the token stream.
      documents: (m + 1,) int64: the sentences that start documents.
      tokens: tokens that fill a row.

    Returns:
      first, last: (N,) int64: each run's first sentence, and the one after its last, in text order.
    """
    start, end = np.asarray(documents[:-1]), np.asarray(documents[1:])
    firsts, lasts = [], []
    active = end - start >= 2
    start, end = start[active], end[active]
    while start.size:  # one run of every document that has text left
        stop = np.searchsorted(sentences, sentences[start] + tokens, side="left")
        stop = np.minimum(np.maximum(stop, start + 2), end)
        stop = np.where(end - stop == 1, end, stop)
        firsts.append(start)
        lasts.append(stop)
        active = stop < end
        start, end = stop[active], end[active]
    if not firsts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, last = np.concatenate(firsts), np.concatenate(lasts)
    order = np.argsort(first)
    return first[order], last[order]


def truncate(a: np.ndarray, b: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lengths of A and B after single tokens are dropped from the longer, B if none is.

    Args:
      a, b: (R,) int: lengths of A and B.
      target: (R,) int: most tokens of both together.
    """
    excess = np.maximum(a + b - target, 0)
    from_longer = np.minimum(excess, np.abs(a - b))
    both = excess - from_longer  # from here on they are as long as each other, and B is first
    drop_a = np.where(a > b, from_longer, 0) + both // 2
    drop_b = np.where(b > a, from_longer, 0) + both - both // 2
    return a - drop_a, b - drop_b


def room(seq_len: int) -> int:
    """Returns the tokens of A and B that a row of `seq_len` has room for.

    Raises:
      ValueError: none for each of them.
    """
    if seq_len < 5:
        raise ValueError(
            f"data.seq_len = {seq_len}: a pair takes at least 5, [CLS], two [SEP] and a token of each"
        )
    return seq_len - 3


def targets(is_short: np.ndarray, length: np.ndarray, room: int, short_share: float) -> np.ndarray:
    """Returns most tokens of each pair, (R,) int64: `room`, or for a share of them 2 to `room`, all alike.

    Args:
      is_short, length: (R,) uniform numbers.
      room: most tokens of any pair.
      short_share: share of the pairs that are short.
    """
    return np.where(is_short < short_share, 2 + (length * (room - 1)).astype(np.int64), room)


def drop_front(dropped: np.ndarray, generators: Sequence[np.random.Generator]) -> np.ndarray:
    """Returns how many of each row's dropped tokens are taken from the front: each by a fair coin."""
    front = np.zeros_like(dropped)
    for row in np.flatnonzero(dropped):
        front[row] = generators[row].binomial(dropped[row], 0.5)
    return front


class Pairs:
    """The pairs of a text.

    Attributes:
      num_examples: chunks, each of which is an example once an epoch.
    """

    def __init__(
        self, sentences: np.ndarray, documents: np.ndarray, seq_len: int, short_share: float
    ) -> None:
        """Cuts the text into chunks.

        Args:
          sentences: (n + 1,) int64: where sentences start in the token stream.
          documents: (m + 1,) int64: the sentences that start documents.
          seq_len: S, three of which are [CLS] and two [SEP].
          short_share: share of the pairs that are cut to a random shorter length.

        Raises:
          ValueError: fewer than two documents, no document of two sentences, or S below 5.
        """
        documents = np.asarray(documents)
        documents = np.concatenate([documents[:-1][np.diff(documents) > 0], documents[-1:]])
        if len(documents) < 3:
            raise ValueError(
                f"the text has {len(documents) - 1} document, and next-sentence pairs take a random B from "
                "another one: mark where documents start with data.document_marker, or give one file a "
                "document"
            )
        self._sentences, self._documents = np.asarray(sentences), documents
        self._room = room(seq_len)
        self._short_share = short_share
        self._first, self._last = chunks(self._sentences, documents, self._room)
        self.num_examples = len(self._first)
        if not self.num_examples:
            raise ValueError(
                "no document has two sentences, and next-sentence pairs are made of two or more: set "
                "objective.nsp.weight = 0, or give text with longer documents"
            )

    def spans(self, examples: np.ndarray, generators: Sequence[np.random.Generator]) -> Spans:
        """Returns the pairs of the given examples, each drawn from its own generator.

        Args:
          examples: (R,) int: numbers below `num_examples`.
          generators: one an example.
        """
        draws = np.stack([generator.random(4) for generator in generators])
        first, last = self._first[examples], self._last[examples]
        is_random = draws[:, 0] < 0.5
        middle = first + 1 + (draws[:, 1] * (last - first - 1)).astype(np.int64)
        target = targets(draws[:, 2], draws[:, 3], self._room, self._short_share)
        a_start, b_start, b_end = (np.asarray(self._sentences[i]) for i in (first, middle, last))
        a_whole, b_whole = b_start - a_start, b_end - b_start
        a_length, b_length = truncate(a_whole, b_whole, target)
        rows = np.flatnonzero(is_random)
        b_start[rows], b_whole[rows] = self._elsewhere(
            first[rows], b_whole[rows], [generators[row] for row in rows]
        )
        # The lengths are those of the true pair, so that they tell nothing. Only where no run of
        # another document is long enough does a random B stay shorter.
        b_length = np.minimum(b_length, b_whole)
        a_start += drop_front(a_whole - a_length, generators)
        b_start += drop_front(b_whole - b_length, generators)
        return Spans(a_start, a_length, b_start, b_length, is_random.astype(np.int32))

    def _elsewhere(
        self, sentence: np.ndarray, length: np.ndarray, generators: Sequence[np.random.Generator]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns start and length of a run of whole sentences of a document that `sentence` is not in.

        Of the candidates, each the start of a uniformly drawn sentence of a uniformly drawn document,
        the first is taken from which whole sentences have exactly `length` tokens; else the first
        whose document goes on long enough; else one that starts as much earlier as its document
        allows.
        """
        sentences, documents = self._sentences, self._documents
        own = np.searchsorted(documents, sentence, side="right") - 1
        first, last = np.zeros_like(sentence), np.zeros_like(sentence)
        found = np.full(len(sentence), -1)  # 2 exact, 1 long enough, 0 too short
        for _ in range(_ROUNDS):
            rows = np.flatnonzero(found < 2)
            if not rows.size:
                break
            draws = np.stack([generators[row].random((2, _CANDIDATES)) for row in rows])
            other = (draws[:, 0] * (len(documents) - 2)).astype(np.int64)
            other += other >= own[rows, None]
            begin, end = documents[other], documents[other + 1]
            start = begin + (draws[:, 1] * (end - begin)).astype(np.int64)
            wanted = sentences[start] + length[rows, None]
            stop = np.searchsorted(sentences, wanted, side="left")
            fits = (wanted <= sentences[end]).astype(np.int64)
            fits += sentences[np.minimum(stop, end)] == wanted
            best = np.argmax(fits, axis=1)[:, None]
            begin, end, start, stop, fits = (
                np.take_along_axis(x, best, axis=1)[:, 0] for x in (begin, end, start, stop, fits)
            )
            earlier = np.searchsorted(sentences, sentences[end] - length[rows], side="right") - 1
            better = fits > found[rows]
            first[rows] = np.where(better, np.where(fits > 0, start, np.maximum(earlier, begin)), first[rows])
            last[rows] = np.where(better, np.where(fits > 0, stop, end), last[rows])
            found[rows] = np.maximum(found[rows], fits)
        return sentences[first], sentences[last] - sentences[first]
