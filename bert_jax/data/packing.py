"""Several short windows of text in one row, planned once an epoch.

The plan is a histogram packing (Krell et al. 2021, arXiv:2107.02027): only the number of windows
of each length matters, so its cost depends on S and not on the number of windows. The lengths
that meet in a row are thus the same in every epoch, and so is the number of rows; which windows of
a length go where is shuffled anew, by (seed, epoch) alone. An epoch's plan can therefore be made
at any moment without the ones before it.
"""

from __future__ import annotations

import threading

import numpy as np

_STREAM = 0x7061636B  # tells this use of the seed from the others
_WRAP = 2  # tokens that a window takes beside its own: [CLS] and [SEP]


def compose(histogram: np.ndarray, seq_len: int, max_packed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns which window lengths share a row, and how many rows are of each such kind.

    Best fit, longest windows first: each goes to the fullest row that still has room for it.

    Args:
      histogram: (S - 1,) int: number of windows of each length 0 .. S - 2; none of length 0.
      seq_len: S.
      max_packed: most windows in one row.

    Returns:
      kinds: (C, max_packed) int64: lengths, the unused places 0.
      counts: (C,) int64.
    """
    done: dict[tuple[int, ...], int] = {}
    room: list[dict[tuple[int, ...], int]] = [{} for _ in range(seq_len + 1)]

    def put(kind: tuple[int, ...], count: int, left: int) -> None:
        place = done if len(kind) == max_packed or left <= _WRAP else room[left]
        place[kind] = place.get(kind, 0) + count

    for length in range(len(histogram) - 1, 0, -1):
        windows, cost = int(histogram[length]), length + _WRAP
        left = cost
        while windows and left <= seq_len:
            if not room[left]:
                left += 1
                continue
            kind = next(iter(room[left]))
            rows = room[left].pop(kind)
            # A row may have room for several windows of this length: give it as many as fit.
            each = min(left // cost, max_packed - len(kind))
            full, rest = min(rows, windows // each), 0
            if full:
                put(kind + (length,) * each, full, left - each * cost)
                windows -= full * each
            if full < rows:
                rest = windows if windows < each else 0
                if rest:
                    put(kind + (length,) * rest, 1, left - rest * cost)
                    windows -= rest
                if rows - full - bool(rest):
                    room[left][kind] = rows - full - bool(rest)
        if windows:
            each = min(seq_len // cost, max_packed)
            if windows // each:
                put((length,) * each, windows // each, seq_len - each * cost)
            if windows % each:
                put((length,) * (windows % each), 1, seq_len - windows % each * cost)
    for place in room:
        for kind, count in place.items():
            done[kind] = done.get(kind, 0) + count
    kinds = np.zeros((len(done), max_packed), np.int64)
    for row, kind in zip(kinds, done, strict=True):
        row[: len(kind)] = kind
    return kinds, np.fromiter(done.values(), np.int64, len(done))


class Packing:
    """The packed rows of every epoch.

    Attributes:
      num_rows: rows of an epoch, the same in each.
      fill_share: share of the rows' tokens that is not padding.
    """

    def __init__(self, lengths: np.ndarray, seq_len: int, max_packed: int, seed: int) -> None:
        """Plans the composition of the rows.

        Args:
          lengths: (N,) int: tokens of each window, 1 .. S - 2.
          seq_len: S.
          max_packed: most windows in one row.
          seed: of the shuffles.
        """
        self._lengths = lengths.astype(np.min_scalar_type(seq_len))  # 16 bits sort in O(N)
        self._seed = seed
        histogram = np.bincount(lengths, minlength=seq_len - 1)
        kinds, counts = compose(histogram, seq_len, max_packed)
        self._borders = np.zeros(int(counts.sum()) + 1, np.int64)
        np.cumsum(np.repeat((kinds > 0).sum(axis=1), counts), out=self._borders[1:])
        self.num_rows = len(self._borders) - 1
        used = int(lengths.sum()) + _WRAP * len(lengths)
        self.fill_share = used / (self.num_rows * seq_len) if self.num_rows else 0.0
        lengths_in_rows = np.repeat(kinds, counts, axis=0)
        lengths_in_rows = lengths_in_rows[lengths_in_rows > 0].astype(self._lengths.dtype)
        # Places in the rows, ordered by the length of window that they take.
        self._places = np.argsort(lengths_in_rows, kind="stable")
        self._plans: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def windows(self, epochs: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the windows in the given rows.

        Args:
          epochs: (R,) int: each row's epoch; few different ones.
          rows: (R,) int: numbers of rows, each below `num_rows`.

        Returns:
          numbers: (W,) int64: windows, row after row.
          counts: (R,) int64: how many of them are in each row.
        """
        first, counts = self._borders[rows], self._borders[rows + 1] - self._borders[rows]
        ends = np.cumsum(counts)
        places = np.arange(counts.sum()) + np.repeat(first - (ends - counts), counts)
        epoch_of = np.repeat(epochs, counts)
        numbers = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs).tolist():
            here = epoch_of == epoch
            numbers[here] = self._plan(epoch)[places[here]]
        return numbers, counts

    def _plan(self, epoch: int) -> np.ndarray:
        with self._lock:  # threads that batch share the plan of an epoch
            if epoch not in self._plans:
                while len(self._plans) > 1:  # an epoch and its neighbour: a batch can reach into both
                    del self._plans[min(self._plans, key=lambda e: (-abs(e - epoch), e))]
                philox = np.random.Philox(key=[self._seed, _STREAM], counter=[0, 0, epoch, 0])
                shuffled = np.random.Generator(philox).permutation(len(self._lengths))
                plan = np.empty(len(self._lengths), np.int64)
                plan[self._places] = shuffled[np.argsort(self._lengths[shuffled], kind="stable")]
                self._plans[epoch] = plan
            return self._plans[epoch]
