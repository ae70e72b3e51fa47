"""Which tokens are to be predicted, what stands in their place, and their positions and labels.

Everything works on whole batches: random numbers are drawn row by row from the row's own
generator, and all that follows is array arithmetic, so a row's mask does not depend on the rows
beside it. The rules are those of BERT (Devlin et al. 2018) and its released code.

Letters: B rows, S tokens a row, V vocabulary, M predicted positions a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.stats

# Rows that choose more than M tokens lose some of them: rarer than this when M fits itself.
_OVERFLOW_PROBABILITY = 1e-4


def capacity(rate: float, seq_len: int, choice: str, max_predictions: int = 0) -> int:
    """Returns M, the predicted positions that a row has room for.

    Args:
      rate: share of the non-special tokens that is to be predicted.
      seq_len: S, of which [CLS] and [SEP] are never predicted.
      choice: "bernoulli" or "count".
      max_predictions: M where it is not 0.

    With "count" M is the number for a full row. With "bernoulli" it is the smallest multiple of 8
    that fewer than 1 in 10,000 full rows exceed, if tokens are chosen one by one; whole words
    spread the number somewhat more.
    """
    if max_predictions:
        return min(max_predictions, seq_len)
    tokens = max(seq_len - 2, 1)
    if choice == "count":
        return max(1, round(rate * tokens))
    slots = np.arange(8, seq_len + 8, 8)
    enough = scipy.stats.binom.sf(slots, tokens, rate) < _OVERFLOW_PROBABILITY
    return min(int(slots[np.argmax(enough)]), seq_len)


def eligible(tokens: np.ndarray, segment_ids: np.ndarray, special_ids: np.ndarray) -> np.ndarray:
    """Returns (B, S) bool: tokens that may be predicted, which padding and special tokens never are."""
    return (segment_ids > 0) & ~np.isin(tokens, special_ids)


def word_starts(
    tokens: np.ndarray, segment_ids: np.ndarray, special_ids: np.ndarray, continues: np.ndarray
) -> np.ndarray:
    """Returns (B, S) bool: where a word starts.

    That is at a token that does not continue the one before it, after a special token, and at the
    border of a packed unit.

    Args:
      tokens: (B, S) int, before any is corrupted.
      segment_ids: (B, S) int, 0 for padding.
      special_ids: ids of the special tokens.
      continues: (V,) bool, the tokenizer's table: the token continues a word.
    """
    starts = ~continues[tokens]
    starts[:, 0] = True
    starts[:, 1:] |= np.isin(tokens[:, :-1], special_ids)
    starts[:, 1:] |= segment_ids[:, 1:] != segment_ids[:, :-1]
    return starts


def choose(
    tokens: np.ndarray,
    eligible: np.ndarray,
    generators: Sequence[np.random.Generator],
    *,
    rate: float,
    capacity: int,
    choice: str,
    word_starts: np.ndarray | None = None,
) -> np.ndarray:
    """Returns (B, S) bool: the tokens to predict, at most `capacity` a row.

    Args:
      tokens: (B, S) int.
      eligible: (B, S) bool; no other token is ever chosen.
      generators: one a row.
      rate: share of the eligible tokens.
      capacity: M.
      choice: "bernoulli" takes each token (or word) with probability `rate`; where that is more than
        M tokens, a uniformly random part of them is kept. "count" takes max(1, round(rate * n)) of
        the n eligible tokens, and at most M, uniformly without replacement.
      word_starts: (B, S) bool chooses whole words. With "count", words come in random order and one
        that would overshoot is passed over, as in the released code of BERT.

    Raises:
      ValueError: `choice` is neither.
    """
    if choice not in ("bernoulli", "count"):
        raise ValueError(f'choice = {choice!r}: it must be "bernoulli" or "count"')
    keys = _uniform(generators, tokens.shape[1])
    count = eligible.sum(axis=1)
    # np.rint and round() agree: halves go to the even number.
    quota = np.minimum(np.maximum(np.rint(rate * count).astype(np.int64), 1), capacity)
    if word_starts is not None:
        words_quota = quota if choice == "count" else None
        return _choose_words(eligible, keys, word_starts, rate, capacity, words_quota)
    if choice == "count":
        return _smallest(np.where(eligible, keys, np.inf), np.minimum(quota, count))
    chosen = eligible & (keys < rate)
    over = np.flatnonzero(chosen.sum(axis=1) > capacity)
    if over.size:
        # Given that a key is below `rate` it is uniform there: the M smallest are a fair subset.
        chosen[over] = _smallest(np.where(chosen[over], keys[over], np.inf), np.full(over.size, capacity))
    return chosen


def _uniform(generators: Sequence[np.random.Generator], width: int) -> np.ndarray:
    values = np.empty((len(generators), width))
    for row, generator in zip(values, generators, strict=True):
        generator.random(out=row)
    return values


def _smallest(keys: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Returns (B, S) bool: the count[b] smallest keys of each row."""
    order = np.argsort(keys, axis=1)
    result = np.empty(keys.shape, bool)
    np.put_along_axis(result, order, np.arange(keys.shape[1])[None, :] < count[:, None], axis=1)
    return result


def _choose_words(
    eligible: np.ndarray,
    keys: np.ndarray,
    word_starts: np.ndarray,
    rate: float,
    capacity: int,
    quota: np.ndarray | None,
) -> np.ndarray:
    # A word is kept in the column of its first eligible token; the other columns have no word.
    starts = eligible & word_starts
    starts[:, 0] |= eligible[:, 0]
    starts[:, 1:] |= eligible[:, 1:] & ~eligible[:, :-1]
    first = np.flatnonzero(starts)
    if not first.size:
        return np.zeros_like(eligible)
    # From one start to the next lie the word's own tokens and perhaps ineligible ones, which add 0.
    length = np.zeros(eligible.shape, np.int64)
    length.flat[first] = np.add.reduceat(eligible.ravel().astype(np.int64), first)
    candidates = starts if quota is not None else starts & (keys < rate)
    order = np.argsort(np.where(candidates, keys, np.inf), axis=1)
    ordered = np.take_along_axis(np.where(candidates, length, 0), order, axis=1)
    if quota is None:
        # The words in random order, up to the first that does not fit: the rest is dropped.
        kept = np.cumsum(ordered, axis=1) <= capacity
    else:
        kept = np.zeros(ordered.shape, bool)
        taken = np.zeros(len(ordered), np.int64)
        for column in range(int(candidates.sum(axis=1).max())):
            kept[:, column] = taken + ordered[:, column] <= quota
            taken += np.where(kept[:, column], ordered[:, column], 0)
    words = np.empty_like(kept)
    np.put_along_axis(words, order, kept & (ordered > 0), axis=1)
    # Flat indices run on over the rows, and so does the number of the word that a token is in.
    number = np.maximum(np.cumsum(starts.ravel()) - 1, 0).reshape(eligible.shape)
    return eligible & words.ravel()[first][number]


def corrupt(
    tokens: np.ndarray,
    chosen: np.ndarray,
    generators: Sequence[np.random.Generator],
    *,
    mask_id: int,
    mask_share: float,
    random_share: float,
    random_ids: np.ndarray,
) -> np.ndarray:
    """Returns (B, S) tokens in which the chosen ones are masked, replaced or kept.

    Args:
      tokens: (B, S) int.
      chosen: (B, S) bool.
      generators: one a row.
      mask_id: id of [MASK].
      mask_share: probability that a chosen token becomes [MASK].
      random_share: probability that it becomes one of `random_ids`, all alike.
      random_ids: ids that may stand in: the whole vocabulary without its special tokens.
    """
    kind = _uniform(generators, tokens.shape[1])
    result = np.where(chosen & (kind < mask_share), np.asarray(mask_id, tokens.dtype), tokens)
    if random_share:
        replaced = chosen & (kind >= mask_share) & (kind < mask_share + random_share)
        # What is left of a 53-bit number after the choice of the kind is uniform too: no second draw.
        place = (kind[replaced] - mask_share) / random_share * len(random_ids)
        result[replaced] = random_ids[np.minimum(place.astype(np.int64), len(random_ids) - 1)]
    return result


def gather(
    tokens: np.ndarray, chosen: np.ndarray, capacity: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns positions (B, M) int32, labels (B, M) int32 and weights (B, M) float32 of the chosen tokens.

    They are in the order of the row; slots that are left over are 0, with weight 0.

    Args:
      tokens: (B, S) int, before any is corrupted: the labels.
      chosen: (B, S) bool.
      capacity: M.

    Raises:
      ValueError: a row has more than `capacity` chosen tokens.
    """
    most = int(chosen.sum(axis=1).max(initial=0))
    if most > capacity:
        raise ValueError(f"{most} tokens are chosen in a row with room for {capacity}: raise max_predictions")
    shape = (len(tokens), capacity)
    positions, labels = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    weights = np.zeros(shape, np.float32)
    row, column = np.nonzero(chosen)
    slot = (np.cumsum(chosen, axis=1) - 1)[row, column]
    positions[row, slot] = column
    labels[row, slot] = tokens[row, column]
    weights[row, slot] = 1
    return positions, labels, weights
