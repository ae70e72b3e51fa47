"""Masking of whole words, n-grams and spans: which tokens are predicted together.

The words of a row are cut into spans, one next to the other, whose lengths in words follow a law; then
spans are chosen, each as likely as any other. So the chosen spans follow the law and do not overlap, and
every word has the same chance wherever it stands: the spans at the edges of a text are what the edge
leaves of whole ones. (The released codes of ALBERT and SpanBERT draw starts and lengths until a budget is
spent. That favours the end of a text: its first word is in one possible span, and others in many.)

    whole words  the law is one word (Devlin et al. 2018, the later release)
    n-grams      1 to n words, p(k) proportional to 1/k (ALBERT, Lan et al. 2019, section 3.2)
    spans        a clipped geometric law (SpanBERT, Joshi et al. 2020, section 3.1)

Letters: B rows, S tokens a row, W words of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.data import masking

ONE_WORD = np.ones(1)  # the law of whole-word masking


def ngram_law(longest: int) -> np.ndarray:
    """Returns (longest,) float64: probabilities of 1, 2, .. words, proportional to 1, 1/2, .."""
    share = 1 / np.arange(1, longest + 1)
    return share / share.sum()


def span_law(p: float, longest: int) -> np.ndarray:
    """Returns (longest,) float64: the geometric law p (1 - p)^(k - 1) of k = 1 .. `longest` words.

    It is clipped as in SpanBERT's released code: longer spans are left out and the others' probabilities
    divided by their sum. With p = 0.2 and at most 10 words the mean is 3.80 words, the paper's figure; to
    count the longer ones as spans of 10 words would give 4.46.
    """
    share = (1 - p) ** np.arange(longest, dtype=np.float64)
    return share / share.sum()


@dataclass
class _Words:
    """The words of all rows, in order; flat places are those of a (B * S,) array.

    A run is a sequence of words that no special token and no border of a unit parts.

    Attributes:
      at: (W,) flat place of each word's first token.
      of: (B * S,) the word that a token is in; of no meaning for tokens that may not be predicted.
      before: (W + 1,) tokens of all words before each.
      heads: (W,) bool: the word is the first one of its run.
      ends: (W,) the word after the last one of its run.
    """

    at: np.ndarray
    of: np.ndarray
    before: np.ndarray
    heads: np.ndarray
    ends: np.ndarray

    @classmethod
    def find(cls, eligible: np.ndarray, word_starts: np.ndarray, segment_ids: np.ndarray) -> _Words:
        begins = eligible.copy()
        begins[:, 1:] &= ~eligible[:, :-1] | (segment_ids[:, 1:] != segment_ids[:, :-1])
        starts = (eligible & word_starts) | begins
        at = np.flatnonzero(starts)
        # From one start to the next lie the word's own tokens and perhaps ineligible ones, which add 0.
        lengths = np.add.reduceat(eligible.ravel().astype(np.int64), at) if at.size else at
        heads = begins.ravel()[at]
        first = np.flatnonzero(heads)
        return cls(
            at=at,
            of=np.cumsum(starts.ravel()) - 1,
            before=np.concatenate([[0], np.cumsum(lengths)]),
            heads=heads,
            ends=np.append(first[1:], len(at))[np.cumsum(heads) - 1],
        )


def choose(
    eligible: np.ndarray,
    word_starts: np.ndarray,
    segment_ids: np.ndarray,
    generators: Sequence[np.random.Generator],
    *,
    rate: float,
    capacity: int,
    choice: str,
    law: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses spans of whole words, at most `capacity` tokens a row.

    No span holds a special token or reaches over one, or from one unit of a packed row into another.

    Args:
      eligible: (B, S) bool; no other token is ever chosen.
      word_starts: (B, S) bool: where a word starts, of `masking.word_starts`.
      segment_ids: (B, S) int: units.
      generators: one a row.
      rate: share of the eligible tokens.
      capacity: M.
      choice: "bernoulli" takes each span with probability `rate`, and so every token: the expected share
        is `rate`. "count" takes spans in random order up to max(1, round(rate * n)) of the n eligible
        tokens, and at most M. A span that would go beyond that (or, with "bernoulli", beyond M) is cut to
        its first words that fit, and passed over where none does.
      law: (N,) float64: probabilities of spans of 1 .. N words.

    Returns:
      chosen: (B, S) bool.
      first: (B, S) int64: the column of the first token of the span that a chosen token is in.

    Raises:
      ValueError: `choice` is neither.
    """
    budget = masking.quota(eligible, rate=rate, capacity=capacity, choice=choice)
    keys = masking.uniform(generators, eligible.shape[1])
    lengths = masking.uniform(generators, eligible.shape[1])
    words = _Words.find(eligible, word_starts, segment_ids)
    if not words.at.size:
        return np.zeros_like(eligible), np.zeros(eligible.shape, np.int64)
    starts, lost = _cut(words, lengths.ravel()[words.at], law)
    borders = np.flatnonzero(starts)
    begin, end = borders[:-1], borders[1:]  # the first word of each span, and the one after its last
    candidates = np.zeros_like(eligible)
    candidates.flat[words.at[begin]] = True
    if choice == "bernoulli":
        candidates &= keys < rate
    kept = _fill(words, begin, end, lost[begin], candidates, keys, budget)
    edges = np.bincount(begin, minlength=len(words.at) + 1) - np.bincount(kept, minlength=len(words.at) + 1)
    of = np.maximum(words.of, 0)
    chosen = eligible & (np.cumsum(edges) > 0)[of].reshape(eligible.shape)
    first = np.repeat(words.at[begin] % eligible.shape[1], end - begin)
    return chosen, first[of].reshape(eligible.shape)


def _cut(words: _Words, draws: np.ndarray, law: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cuts every run into spans, as if it were a piece of an endless text.

    So a run begins somewhere within a span, each of k words with probability law[k] / mean, as likely in
    the first place as in any other; and its last span is cut where it ends.

    Args:
      words: the words.
      draws: (W,) uniform numbers.
      law: probabilities of 1 .. N words.

    Returns:
      starts: (W + 1,) bool: where a span starts; the last entry, the end of all, is True.
      lost: (W,) int: of spans that a run begins within, the words that would lie before the run.
    """
    starts, lost = np.append(words.heads, True), np.zeros(len(words.at), np.int64)
    if len(law) == 1:
        return np.ones_like(starts), lost
    length = 1 + np.searchsorted(np.cumsum(law)[:-1], draws, side="right")
    whole, before = np.tril_indices(
        len(law)
    )  # all the ways to lie within a span: its words - 1, those before
    shares = np.cumsum(law[whole] / np.arange(1, len(law) + 1).dot(law))
    within = np.searchsorted(shares[:-1], draws[words.heads], side="right")
    lost[words.heads] = before[within]
    length[words.heads] = whole[within] + 1 - before[within]
    # Every word knows where the span after it would start, had one started there. The starts are those
    # that are reached from the heads; with steps of 1, 2, 4, .. spans this takes log2(W) rounds.
    hop = np.append(np.minimum(np.arange(len(length)) + length, words.ends), len(length))
    longest = int(np.diff(np.flatnonzero(starts)).max())
    for _ in range((longest - 1).bit_length()):
        starts[hop[starts]] = True
        hop = hop[hop]
    return starts, lost


def _fill(
    words: _Words,
    begin: np.ndarray,
    end: np.ndarray,
    lost: np.ndarray,
    candidates: np.ndarray,
    keys: np.ndarray,
    budget: np.ndarray,
) -> np.ndarray:
    """Returns where each span ends when candidates are taken in the order of their keys; `begin`: not taken.

    Args:
      words: the words.
      begin, end: (T,) int: spans, as numbers of words.
      lost: (T,) int: words of each that lie before its run. They take their room, a token each, when it
        is seen how much of a span fits: else the first words of a text would be favoured, which stand
        first in their spans, and those are what is kept.
      candidates: (B, S) bool, at first tokens of spans.
      keys: (B, S) float64.
      budget: (B,) int: most tokens of each row.
    """
    count, width = candidates.shape
    stop, ahead = np.zeros((2, len(words.at)), np.int64)
    stop[begin], ahead[begin] = end, lost
    sizes, needs = np.zeros((2, count, width), np.int64)
    sizes.flat[words.at[begin]] = words.before[end] - words.before[begin]
    needs.flat[words.at[begin]] = lost
    order = np.argsort(np.where(candidates, keys, np.inf), axis=1)
    number = candidates.sum(axis=1)
    total = np.cumsum(np.take_along_axis(sizes, order, axis=1), axis=1)
    fits = total + np.take_along_axis(needs, order, axis=1) <= budget[:, None]
    fits &= np.arange(width) < number[:, None]
    place = np.logical_and.accumulate(fits, axis=1).sum(axis=1)  # the first one that does not fit
    row, rank = np.nonzero(np.arange(width) < place[:, None])
    kept = np.arange(len(words.at))
    taken = words.of[row * width + order[row, rank]]
    kept[taken] = stop[taken]
    # From there on one span of every row at a time; and if that leaves room, once more without `lost`.
    left = np.minimum(budget, total[:, -1])
    left -= np.where(place > 0, total[np.arange(count), place - 1], 0)
    for needed in (ahead, np.zeros_like(ahead)):
        rows = np.flatnonzero((left > 0) & (place < number))
        while rows.size:
            word = words.of[rows * width + order[rows, place[rows]]]
            was = words.before[kept[word]]
            last = np.searchsorted(words.before, was + left[rows] - needed[word], side="right") - 1
            kept[word] = np.clip(last, kept[word], stop[word])
            left[rows] -= words.before[kept[word]] - was
            place[rows] += 1
            rows = rows[(left[rows] > 0) & (place[rows] < number[rows])]
        place = np.zeros_like(place)
    return kept[begin]
