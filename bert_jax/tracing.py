"""A window of steps under JAX's profiler, which TensorBoard or Perfetto opens."""

from __future__ import annotations

from typing import Any

import jax
from absl import logging
from etils import epath


class Window:
    """Traces the steps from + 1 .. to of a run, or of one that goes on within them the rest.

    Args:
      steps: (from, to), or () for none.
      folder: where the trace is written; this process alone writes there.
    """

    def __init__(self, steps: tuple[int, ...], folder: epath.Path) -> None:
        self._steps, self._folder, self._open = steps, folder, False
        self._first = self._last = 0  # of what was traced; 0: nothing yet

    def before(self, step: int) -> None:
        """Opens the window where `step`, counted from 1, is in it."""
        if self._steps and not self._open and self._steps[0] < step <= self._steps[1]:
            self._first = step
            self._folder.mkdir(parents=True, exist_ok=True)
            jax.profiler.start_trace(str(self._folder))
            self._open = True

    def after(self, step: int, outputs: Any) -> None:
        """Closes it behind its last step, once that has been computed."""
        self._last = step
        if self._open and step == self._steps[1]:
            jax.block_until_ready(outputs)
            self.close()

    def close(self) -> None:
        """Closes it, if it is open; says so where no step was in it."""
        if self._steps and self._last and not self._first:
            logging.warning(
                "train.profile = %s: no step of this process was in it, the last was %d",
                self._steps, self._last,
            )  # fmt: skip
        if self._open:
            jax.profiler.stop_trace()
            self._open = False
            logging.info("the trace of steps %d to %d: pip install xprof; tensorboard --logdir=%s",
                         self._first, self._last, self._folder)  # fmt: skip
