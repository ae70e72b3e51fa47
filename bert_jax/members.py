"""Runs that train in one program: where each is, what it reads, and its part of the stacked arrays."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from bert_jax import build, spikes
from bert_jax import step as step_lib
from bert_jax import workdir as workdir_lib
from bert_jax.checkpoint import Checkpoints
from bert_jax.log import Log
from bert_jax.visual import report


@dataclasses.dataclass
class Member:
    """A run of those that train in one program; most train alone.

    Attributes:
      run: what it is.
      root: its workdir.
      checkpoints, log: its own.
      together: how many train in the program.
      of_search: whether it leaves a result when it fails, so that nothing trains it again.
      watch: looks for spikes of the loss; None: nobody does.
      history: the spikes that it went back from.
      best, best_step: the best metric so far, and the step of it; None where there is none.
      latest: metrics of the last evaluation.
      metric: that which the checkpoint of this step is judged by; None where this step has none.
      improved: whether it is the best so far.
      ended: whether this step is its last.
      result: what result.json says, once it has ended or failed.
    """

    run: build.Run
    root: epath.Path
    checkpoints: Checkpoints
    log: Log
    together: int
    of_search: bool
    watch: spikes.Watch | None
    history: tuple[spikes.Spike, ...]
    best: float | None
    best_step: int | None
    latest: dict[str, float] = dataclasses.field(default_factory=dict)
    metric: float | None = None
    improved: bool = False
    ended: bool = False
    result: dict[str, Any] | None = None

    def judge(self, step: int, loss: float, grad_norm: float) -> None:
        """Looks at a step's loss and gradient, and ends the run, or has it go back, where they are too bad.

        Raises:
          GoBack: it is to go back.
        """
        values = {"loss": loss, "grad_norm": grad_norm}
        name = next((name for name, value in values.items() if not math.isfinite(value)), "loss")
        value, usual = values[name], None
        if math.isfinite(value):
            usual = self.watch.usual(value) if self.watch else None
            if usual is None:
                return
        config = self.run.config
        spike, most = config.train.spike, config.train.spike.most
        if spike.policy == "skip" and len(self.history) < most:
            borders = [(phase.start, phase.stop) for phase in self.run.phases]
            every = config.checkpoint.every
            found = spikes.found(step, name, value, usual, self.history, borders, every)
            raise spikes.GoBack(self.root, (*self.history, found))
        good = self.checkpoints.latest_step()
        last = f"the last good checkpoint is that of step {good}" if good else "no checkpoint was saved"
        if usual is None:
            what, mend = f"{name} = {value} in step {step}", ""
        else:
            what = (
                f"loss = {value:.4g} in step {step}, above train.spike.factor = {spike.factor:g} times "
                f"{usual:.4g}, the median of the {spike.window} steps before"
            )
            mend = "raise train.spike.factor, "
        if spike.policy == "skip":
            what += f", after the run went back train.spike.most = {most} times"
        elif usual is not None:
            mend += 'set train.spike.policy = "skip", '
        mend += "lower optimizer.learning_rate, or raise the warm-up"
        self.fail(f"{what}: nothing was saved since; {last}; {mend}")

    def log_skips(self, step: int) -> None:
        """Writes of each spike that the run went back from a line behind the first step after."""
        for spike in self.history:
            if step == spike.back + 1:
                values = {
                    "spike_step": spike.step,
                    f"spike_{spike.name}": spike.value,
                    "usual": spike.usual,
                    "back": spike.back,
                    "batches": sum(count for _, count in spike.skips),
                    "seconds": round(self.log.seconds(), 2),
                }
                self.log.note(step, "skip", values)

    def fail(self, why: str) -> None:
        """Ends it with a result that has `failed`; the others of its program go on."""
        self.result = {**self._begin(), "value": math.nan, "failed": why, "steps": self.run.steps}
        self.result["seconds"] = self._seconds()
        self.checkpoints.release()
        if self.of_search:
            self.log.say(why)
            self._write()

    def report(self, samples: dict[str, Any]) -> None:
        """Writes the page of the run as it is now, with some of what the model said."""
        if jax.process_index() == 0:
            workdir_lib.write(self.root / workdir_lib.SAMPLES, json.dumps(samples) + "\n")
            workdir_lib.write(self.root / workdir_lib.REPORT, report.render(report.read(self.root)))

    def finish(self, of_best: dict[str, float], last: int) -> None:
        """Writes its result.

        Args:
          of_best: the metrics of its best step; `latest` are those of the last.
          last: the last step.
        """
        begin, start = self._begin(), workdir_lib.start_metrics(self.root)
        metric, wait = begin["metric"], self.log.data_wait()
        self.result = {
            **begin,
            "value": self.latest[metric],
            "best_value": of_best[metric],
            "best_step": self.best_step,
            **self.latest,
            **{f"start_{name}": value for name, value in start.items() if name in self.latest},
            **({"stopped_early": last < self.run.steps} if self.run.config.train.patience else {}),
            "steps": last,
            "seconds": self._seconds(),
            **({} if wait is None else {"data_wait": wait}),
        }
        if self.best_step not in (None, last):
            self.log.say(
                f"best {metric} {self.result['best_value']:.4g} at step {self.best_step}, whose checkpoint "
                f"predict and load take; {self.result['value']:.4g} at step {last}, the last"
            )
        self._write()
        if jax.process_index() == 0:
            workdir_lib.write(self.root / workdir_lib.REPORT, report.render(report.read(self.root)))

    def _begin(self) -> dict[str, str]:
        task = self.run.task
        metric = (task.result or task.metric) if task else "loss"
        return {"task": self.run.config.task.name or "pretraining", "metric": metric}

    def _seconds(self) -> float:
        """Returns its share of the time of all that trained in its program."""
        return round(self.log.seconds() / self.together, 1)

    def _write(self) -> None:
        if jax.process_index() == 0:
            workdir_lib.write_result(self.root, self.result)


class Stacked:
    """Batches (K, B, ...) of runs with K seeds, in the order in which the seeds occur.

    The rows of all must have the same length: under another one the same dropout key gives other masks,
    and a member would not be what it is alone.
    """

    def __init__(self, runs: Sequence[build.Run], phase: int) -> None:
        """Takes the training examples of one phase, by its number."""
        of_seed = {run.config.seed: run.phases[phase].train for run in runs}
        self._examples = list(of_seed.values())

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of each seed's batch of a step."""
        batches = [examples.batch(step, rows) for examples in self._examples]
        return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def together(runs: Sequence[build.Run]) -> step_lib.Together:
    """Returns which batch of `Stacked` each run reads, and what its learning rate is of the first's."""
    seeds = list(dict.fromkeys(run.config.seed for run in runs))
    peaks = [run.config.optimizer.learning_rate for run in runs]
    return step_lib.Together(
        reads=tuple(seeds.index(run.config.seed) for run in runs),
        rates=tuple(1.0 if peak == peaks[0] else peak / peaks[0] for peak in peaks),
    )


@jax.jit
def member(tree: Any, number: int) -> Any:
    """Returns one run's part of a tree of stacked arrays."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, number, keepdims=False), tree)
