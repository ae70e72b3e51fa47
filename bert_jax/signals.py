"""SIGTERM and SIGINT as a request to save and leave."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

# With several processes, steps between their agreements on a signal that came to one of them.
_AGREE_EVERY = 10


class Stop:
    """The signal that asks the run to save and leave, once it has come."""

    def __init__(self) -> None:
        self.came: signal.Signals | None = None

    def agreed(self, step: int) -> signal.Signals | None:
        """Returns the signal; with several processes once all know of it, at the same step."""
        if jax.process_count() == 1:
            return self.came
        if step % _AGREE_EVERY:
            return None
        known = multihost_utils.process_allgather(np.array(self.came or 0))
        return signal.Signals(int(known.max())) if known.any() else None


@contextlib.contextmanager
def as_stop(stop: Stop) -> Iterator[Stop]:
    """Turns the first SIGTERM or SIGINT into a request to stop; a second one ends the process."""
    before: dict[int, Any] = {}

    def request(number: int, _: Any) -> None:
        stop.came = signal.Signals(number)
        # Not by logging, which may be in the middle of a line.
        os.write(2, f"{stop.came.name}: saving after this step; once more ends at once\n".encode())
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, request)
    except ValueError:  # not in the main thread, as in a notebook's worker: the caller's own handlers stay
        before.clear()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
