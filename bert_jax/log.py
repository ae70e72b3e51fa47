"""What a run says: a bar on a terminal and plain lines elsewhere, metrics.jsonl, trackers."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import tqdm
from absl import logging
from etils import epath

from bert_jax import tracking
from bert_jax import workdir as workdir_lib

_MOST_SHARES = 12  # of predicted classes that the reader's line tells; metrics.jsonl has all


class Log:
    """The log of one run. Only process 0 writes; the others' calls do nothing.

    Args:
      workdir: the run's directory.
      start: step that the run starts or goes on from; what an earlier, killed process logged after
        it is dropped from metrics.jsonl, since those steps are run again.
      steps: the run's last step.
      writes: whether this process is the one that writes.
      name: said before each line for the reader.
      beside: the log of a run that trains beside this one; its bar is that of both.
      trackers: what else takes the metrics.
    """

    def __init__(
        self,
        workdir: epath.PathLike,
        start: int,
        steps: int,
        writes: bool,
        name: str = "",
        beside: Log | None = None,
        trackers: Sequence[tracking.Tracker] = (),
    ) -> None:
        self._trackers = trackers
        self._writes, self._steps, self._name, self._beside = writes, steps, name, beside
        self._path = epath.Path(workdir) / workdir_lib.METRICS
        self.seconds_before = 0.0  # training time of earlier processes
        self._started = self._window_started = time.monotonic()
        self._window_step = start
        self._paused = self._waited = 0.0
        self._lines = self._kept(start) if start else []
        if self._lines:
            self.seconds_before = json.loads(self._lines[-1]).get("seconds") or 0.0
        self._bar: tqdm.tqdm | None = None
        if not writes:
            return
        workdir_lib.write(self._path, "".join(self._lines))
        if beside is not None:
            self._bar = beside._bar
        elif sys.stderr.isatty():
            self._bar = tqdm.tqdm(total=steps, initial=start, unit="step", dynamic_ncols=True)

    def _kept(self, start: int) -> list[str]:
        lines = workdir_lib.read_metrics(self._path.parent)
        return [json.dumps(line) + "\n" for line in lines if line["step"] <= start]

    def pause(self, seconds: float) -> None:
        """Takes time that was no training (evaluation, compilation) out of the rates."""
        self._paused += seconds

    def wait(self, seconds: float) -> None:
        """Counts time for which the loop waited for a batch; it stays in the rates."""
        self._waited += seconds

    def seconds(self) -> float:
        """Returns the run's time so far, evaluations and earlier processes included."""
        if self._beside is not None:
            return self._beside.seconds()
        return self.seconds_before + time.monotonic() - self._started

    def step_seconds(self, step: int) -> tuple[float, float]:
        """Returns the mean time of the steps since the last call, pauses taken out, and the waits' share."""
        now = time.monotonic()
        taken = max(now - self._window_started - self._paused, 1e-9)
        mean = taken / max(1, step - self._window_step)
        share = min(1.0, self._waited / taken)
        self._window_started, self._window_step, self._paused, self._waited = now, step, 0.0, 0.0
        return mean, share

    def data_wait(self) -> float | None:
        """Returns the share of all logged steps' time, earlier processes' included, that went into waits."""
        lines = [line for line in map(json.loads, self._lines) if line["split"] == "train"]
        before, taken, waited = 0, 0.0, 0.0
        for line in lines:
            own = (line["step"] - before) * line["step_seconds"]
            before, taken, waited = line["step"], taken + own, waited + own * line.get("data_wait", 0.0)
        return waited / taken if taken else None

    def advance(self) -> None:
        """Counts one step on the bar."""
        if self._bar is not None and self._beside is None:
            self._bar.update()

    def write(self, step: int, split: str, values: dict[str, float], left: float | None = None) -> None:
        """Writes a line of metrics.jsonl and one for the reader, and tells the trackers.

        Args:
          step: updates made.
          split: "train" or "eval".
          values: metrics by name; NaN is written as null.
          left: estimated seconds to the end of the run.
        """
        if not self._writes:
            return
        values = {**values, "seconds": round(self.seconds(), 2)}
        clean = {k: v if math.isfinite(v) else None for k, v in values.items()}
        self.note(step, split, clean)
        for tracker in self._trackers:
            tracker.write(step, split, values)
        self.say(self._sentence(step, split, values, left))

    def note(self, step: int, split: str, values: dict[str, Any]) -> None:
        """Writes a line of metrics.jsonl alone, of JSON values."""
        if self._writes:
            self._lines.append(json.dumps({"step": step, "split": split, **values}) + "\n")
            self._append(self._lines[-1])

    def _append(self, line: str) -> None:
        if "://" in str(self._path):  # object stores cannot append
            workdir_lib.write(self._path, "".join(self._lines))
        else:
            with self._path.open("a") as file:
                file.write(line)

    def _sentence(self, step: int, split: str, values: dict[str, float], left: float | None) -> str:
        shown = [f"{split} {step}/{self._steps}"]
        shares = [name for name in values if name.startswith("predicted_share_")]
        for name, value in values.items():
            if len(shares) > _MOST_SHARES and name in shares:
                continue
            if name in ("seconds", "clip_scale") or (name.endswith("_loss") and value == values["loss"]):
                continue  # with one objective the total says it already
            if name == "tokens_per_second":
                shown.append(f"{value:,.0f} tokens/s")
            elif name == "mfu":
                shown.append(f"MFU {value:.1%}")
            elif name == "learning_rate":
                shown.append(f"lr {value:.2e}")
            else:
                shown.append(f"{name.replace('_', ' ')} {value:.4g}")
        if left is not None:
            shown.append(f"{duration(left)} left")
        return ", ".join(shown)

    def say(self, text: str) -> None:
        """Shows a line, above the bar where there is one."""
        if not self._writes:
            return
        text = f"{self._name}: {text}" if self._name else text
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            logging.info("%s", text)

    def close(self) -> None:
        """Ends the bar and the trackers."""
        if self._bar is not None and self._beside is None:
            self._bar.close()
        for tracker in self._trackers:
            tracker.close()


def duration(seconds: float) -> str:
    """Returns a time as people say it: 42 s, 3 min 20 s, 5 h 10 min, 12 days."""
    if not math.isfinite(seconds):
        return "unknown"
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds / 86400:,.1f} days"
