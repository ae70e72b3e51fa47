"""Rows of like length put together: few shapes, little padding, memory that is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import jax
import numpy as np

R = TypeVar("R")

# Tokens of a batch for each device, padding included. A CPU's products are at full speed with these, and
# fewer leave less padding in a short file's batches.
_ON_CPU, _ELSEWHERE = 1024, 16384

# Tokens whose logits over the vocabulary exist at once, on each device.
_LOGITS_ON_CPU, _LOGITS_ELSEWHERE = 256, 2048

AHEAD = 2  # batches that are under way while an earlier one's result is read

_SHORTEST, _STEPS = 4, 4  # the shortest row, and how many lengths lie between one power of two and the next


def budget(tokens: int) -> int:
    """Returns the tokens of a batch on one device: as asked, or for 0 what suits the device."""
    return tokens or (_ON_CPU if jax.default_backend() == "cpu" else _ELSEWHERE)


def logits() -> int:
    """Returns for how many tokens logits over the vocabulary are made at once, at most."""
    return _LOGITS_ON_CPU if jax.default_backend() == "cpu" else _LOGITS_ELSEWHERE


def padded(length: int, longest: int) -> int:
    """Returns the length of the row that so many tokens are put into: 4, 8, .., 32, 40, 48, 56, 64, 80, ..

    Between two powers of two lie four lengths, so that there are few and none is much too long.
    """
    step = max(_SHORTEST, (1 << (length - 1).bit_length()) // (2 * _STEPS))
    return min(-(-length // step) * step, longest)


def plan(
    rows: Sequence[R], length: Callable[[R], int], longest: int, tokens: int, devices: int
) -> Iterator[tuple[int, int, list[R]]]:
    """Yields (row length, rows on a device, rows) of each batch, the longest rows first.

    A batch has all the rows that its budget holds, if need be shorter ones than its row length, so that
    only the last one is not full.

    Args:
      rows: what is to be put into batches.
      length: tokens of a row.
      longest: tokens that the model reads.
      tokens: of a batch on one device.
      devices: that share a batch.
    """
    waiting = sorted(rows, key=length, reverse=True)
    start = 0
    while start < len(waiting):
        width = padded(length(waiting[start]), longest)
        height = max(1, tokens // width)
        yield width, height, waiting[start : start + height * devices]
        start += height * devices


def arrays(
    ids: Sequence[Sequence[int]], height: int, width: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns `tokens` and `segment_ids` (height, width) int32; rows after the given ones are padding."""
    tokens = np.full((height, width), pad_id, np.int32)
    segments = np.zeros((height, width), np.int32)
    for row, some in enumerate(ids):
        tokens[row, : len(some)] = some
        segments[row, : len(some)] = 1
    return tokens, segments
