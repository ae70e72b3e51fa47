"""The order of examples and their random numbers, computed from (seed, number) and never stored.

Any example's place and random numbers are found at once, whatever came before: a run goes on at any step
as if it had never stopped, and processes agree without a word.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

_ROUNDS = 8  # of the Feistel network; 4 suffice in theory for large n, small n need more


class _Key(ISeedSequence):
    """Hands its words over as the key: Philox(key=...) itself first asks the system for entropy."""

    def __init__(self, *words: int) -> None:
        self._words = np.array(words, np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return self._words


def generators(seed: int, stream: str, epoch: np.ndarray, index: np.ndarray) -> list[np.random.Generator]:
    """Returns one random generator an example, that depends on nothing but these values.

    Args:
      seed: of the run.
      stream: what the numbers are for; other streams are independent.
      epoch, index: (R,) int: of each example.
    """
    key = _Key(seed, zlib.crc32(stream.encode()))
    counters = np.zeros((len(index), 4), np.uint64)  # the two low words count the numbers drawn
    counters[:, 2], counters[:, 3] = epoch, index
    return [np.random.Generator(np.random.Philox(key, counter=counter)) for counter in counters]


def order(g: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns epoch and index, (R,) int64 each, of the g-th examples of a run over n examples.

    Each epoch visits every index once, in an order of its own. The permutation is a Feistel network
    over a * b >= n numbers, walked on until the number is below n (Black and Rogaway 2002): memory
    and time do not depend on n or g. (tf.random.experimental.index_shuffle serves the same end, but
    knows only a few hundred orders of a small n, and does not take every index as often as another.)

    Args:
      g: (R,) int: global numbers of examples, 0 at the run's start.
      n: number of examples in an epoch.
      seed: of the orders.
    """
    epoch, value = np.divmod(np.asarray(g, np.int64), n)
    key = _mix(_mix(np.full(epoch.shape, seed, np.uint64)) ^ epoch.astype(np.uint64))
    width = math.isqrt(n - 1) + 1
    height = -(-n // width)
    value = value.astype(np.uint64)
    walking = np.arange(value.size)
    while walking.size:
        high, low = np.divmod(value[walking], np.uint64(width))
        for number in range(_ROUNDS):
            round_key = key[walking] + np.uint64(number)
            low = (low + _mix(high ^ _mix(round_key))) % np.uint64(width)
            high = (high + _mix(low ^ _mix(~round_key))) % np.uint64(height)
        value[walking] = high * np.uint64(width) + low
        walking = walking[value[walking] >= n]
    return epoch, value.astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 (Steele et al. 2014): (R,) uint64 to (R,) uint64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
