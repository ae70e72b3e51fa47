"""Which tokens are to be predicted, what stands in their place, and their positions and labels.

Everything works on whole batches: random numbers are drawn row by row from the row's own
generator, and all that follows is array arithmetic, so a row's mask does not depend on the rows
beside it. The rules are those of BERT (Devlin et al. 2018) and its released code.

Letters: B rows, S tokens a row, V vocabulary, M predicted positions a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.stats

# Rows that choose more than M tokens lose some of them: rarer than this when M fits itself.
_OVERFLOW_PROBABILITY = 1e-4


def capacity(
    rate: float,
    seq_len: int,
    choice: str,
    max_predictions: int = 0,
    law: np.ndarray | None = None,
    continuing: float = 0.0,
) -> int:
    """Returns M, the predicted positions that a row has room for.

    Args:
      rate: share of the non-special tokens that is to be predicted.
      seq_len: S, of which [CLS] and [SEP] are never predicted.
      choice: "bernoulli" or "count".
      max_predictions: M where it is not 0.
      law: probabilities of spans of 1, 2, .. words (see `spans`); None where tokens are chosen alone.
      continuing: share of the tokens that continue a word; read where there is a law.

    With "count" M is the number for a full row. With "bernoulli" it is the smallest multiple of 8 that
    fewer than 1 in 10,000 full rows exceed. For tokens that is by the binomial law. For spans it is by
    that of a row of as many spans as it has on average, in which a token continues a word with probability
    `continuing`; it errs on the safe side, since a row of longer spans has fewer of them.
    """
    if max_predictions:
        return min(max_predictions, seq_len)
    tokens = max(seq_len - 2, 1)
    if choice == "count":
        return max(1, round(rate * tokens))
    slots = np.arange(8, seq_len + 8, 8)
    if law is None:
        over = scipy.stats.binom.sf(slots, tokens, rate)
    else:
        over = _spans_exceed(slots, tokens, rate, law, continuing)
    return min(int(slots[np.argmax(over < _OVERFLOW_PROBABILITY)]), seq_len)


def _spans_exceed(
    slots: np.ndarray, tokens: int, rate: float, law: np.ndarray, continuing: float
) -> np.ndarray:
    """Returns the probabilities that the spans chosen in a row have more than `slots` tokens together."""
    words = np.arange(1, len(law) + 1)
    length = np.arange(tokens)[:, None]  # of a span; one as long as the row takes what is left
    one = scipy.stats.nbinom.pmf(length - words, words, 1 - continuing) @ law
    number = math.ceil(tokens * (1 - continuing) / (words @ law))
    # Sums of independent spans by the product of their transforms, with room for sums beyond the row.
    size = 4 * tokens
    transform = np.fft.rfft(np.append(one, 1 - one.sum()), size)
    share = np.fft.irfft((1 - rate + rate * transform) ** number, size)
    over = 1 - np.cumsum(share)[np.minimum(slots, size - 1)]
    return np.where(slots < tokens, over, 0.0)


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


def quota(eligible: np.ndarray, *, rate: float, capacity: int, choice: str) -> np.ndarray:
    """Returns (B,) int64: most tokens that each row may choose.

    That is `capacity` with "bernoulli"; with "count" it is max(1, round(rate * n)) of the n eligible
    tokens, and at most `capacity`.

    Raises:
      ValueError: `choice` is neither.
    """
    if choice not in ("bernoulli", "count"):
        raise ValueError(f'choice = {choice!r}: it must be "bernoulli" or "count"')
    if choice == "bernoulli":
        return np.full(len(eligible), capacity)
    # np.rint and round() agree: halves go to the even number.
    wanted = np.rint(rate * eligible.sum(axis=1)).astype(np.int64)
    return np.minimum(np.maximum(wanted, 1), capacity)


def choose(
    eligible: np.ndarray,
    generators: Sequence[np.random.Generator],
    *,
    rate: float,
    capacity: int,
    choice: str,
) -> np.ndarray:
    """Returns (B, S) bool: the tokens to predict, each chosen alone, at most `capacity` a row.

    Args:
      eligible: (B, S) bool; no other token is ever chosen.
      generators: one a row.
      rate: share of the eligible tokens.
      capacity: M.
      choice: "bernoulli" takes each token with probability `rate`; where that is more than M tokens, a
        uniformly random part of them is kept. "count" takes `quota` tokens, uniformly without
        replacement.

    Raises:
      ValueError: `choice` is neither.
    """
    most = quota(eligible, rate=rate, capacity=capacity, choice=choice)
    keys = uniform(generators, eligible.shape[1])
    if choice == "count":
        return _smallest(np.where(eligible, keys, np.inf), np.minimum(most, eligible.sum(axis=1)))
    chosen = eligible & (keys < rate)
    over = np.flatnonzero(chosen.sum(axis=1) > capacity)
    if over.size:
        # Given that a key is below `rate` it is uniform there: the M smallest are a fair subset.
        chosen[over] = _smallest(np.where(chosen[over], keys[over], np.inf), np.full(over.size, capacity))
    return chosen


def uniform(generators: Sequence[np.random.Generator], width: int) -> np.ndarray:
    """Returns (B, width) float64 in [0, 1): row b from the b-th generator."""
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


def corrupt(
    tokens: np.ndarray,
    chosen: np.ndarray,
    generators: Sequence[np.random.Generator],
    *,
    mask_id: int,
    mask_share: float,
    random_share: float,
    random_ids: np.ndarray,
    together: np.ndarray | None = None,
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
      together: (B, S) int: the column whose fate each token shares; a span is masked, replaced or kept as
        a whole if it is that of its first token. Each token of it is then replaced by an id of its own.
        None decides for every token alone.
    """
    kind = uniform(generators, tokens.shape[1])
    if together is not None:
        kind = np.take_along_axis(kind, together, axis=1)
    result = np.where(chosen & (kind < mask_share), np.asarray(mask_id, tokens.dtype), tokens)
    if random_share:
        replaced = chosen & (kind >= mask_share) & (kind < mask_share + random_share)
        if together is None:
            # What is left of a 53-bit number after the choice of the kind is uniform too: no second draw.
            place = (kind[replaced] - mask_share) / random_share
        else:
            place = uniform(generators, tokens.shape[1])[replaced]
        place = (place * len(random_ids)).astype(np.int64)
        result[replaced] = random_ids[np.minimum(place, len(random_ids) - 1)]
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
