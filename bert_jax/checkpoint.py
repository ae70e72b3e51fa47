"""Checkpoints of a run: saved beside the training, found again whole or not at all.

Orbax writes the arrays and gives a checkpoint its name only once it is complete, so a process
killed at any moment leaves the earlier ones as they were. Beside the arrays lies a record of every
leaf's shape, type and checksum: a checkpoint that lost a file, a part of one or a single bit is
passed over on restore, and a run whose model has changed is told so instead of losing its own.

    DIRECTORY/STEP/            a complete checkpoint
    DIRECTORY/STEP.damaged/    one that was passed over; kept for the user to look at, never read
"""

from __future__ import annotations

import contextlib
import logging as python_logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from absl import logging
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from bert_jax import checkpoint_record, processes
from bert_jax.checkpoint_record import CheckpointError, DamagedError
from bert_jax.trees import named, nested

PyTree = Any
Best = Literal["min", "max"]


# Orbax tells several lines a save; only what needs attention should reach the user. Errors are raised, too.
logging.get_absl_logger().addFilter(
    lambda record: record.levelno == python_logging.WARNING or "orbax" not in record.pathname
)


class Checkpoints:
    """The checkpoints of one run. With several processes each of them makes the same calls.

    Args:
      directory: holds STEP/ for each checkpoint; made if absent; local or gs://.
      keep: newest checkpoints that are kept.
      best_mode: whether the "min" or the "max" metric is best, and is kept beside the newest;
        None keeps the newest only.
      saves: whether they are this process's own to save, so that what is unfinished there is an earlier
        one's and goes; a reader leaves it alone, since it may be being written.
    """

    def __init__(
        self, directory: epath.PathLike, *, keep: int, best_mode: Best | None, saves: bool = True
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep = {keep}: it must be at least 1")
        self._directory = _absolute(directory)
        self._keep = keep
        self._best_mode = best_mode
        self.held: int | None = None  # a step that is kept too, whichever others there are
        context = ocp.Context()
        # Weights hardly compress, and the time is taken from the training's own processors.
        context.array.saving.use_compression = False
        self._orbax = ocp.training.Checkpointer(
            self._directory,
            context=context,
            preservation_policy=_Preservation(self),
            cleanup_tmp_directories=saves,
        )
        self._metrics = {step: _metric(self._directory, step) for step in self._steps()}

    def _steps(self) -> list[int]:
        return [checkpoint.step for checkpoint in self._orbax.checkpoints]

    def latest_step(self) -> int | None:
        """Returns the newest step that is saved or being saved, or None."""
        return max(self._steps(), default=None)

    def steps(self) -> set[int]:
        """Returns all steps that are saved or being saved."""
        return {*self._steps()}

    def best_step(self) -> int | None:
        """Returns the step of the best metric, the first among equals; None where none has one."""
        return _best({s: self._metrics.get(s) for s in self._steps()}, self._best_mode)

    def best_metric(self) -> float | None:
        """Returns the metric of `best_step`, or None."""
        step = self.best_step()
        return None if step is None else self._metrics[step]

    def save(
        self,
        step: int,
        state: PyTree,
        metric: float | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts saving; returns once the arrays are copied, so the next step may donate them.

        A step that is there already is left as it is. That the save before failed is raised here.

        Args:
          step: number of updates made, the checkpoint's name.
          state: arrays in any tree: dicts, tuples, flax.struct dataclasses, optax states.
          metric: what the best is chosen by; a checkpoint without one, or with NaN, is never best.
          notes: JSON values that `notes` gives back.
        """
        if step in self._steps():
            return
        # Before Orbax takes its copy: so what is noted is what the training had, not what was copied.
        sums = jax.device_get(jax.tree.map(checkpoint_record.checksum, state))
        pairs = zip(named(state), jax.tree.leaves(sums), strict=True)
        leaves = {name: [str(leaf.dtype), list(leaf.shape), int(found)] for (name, leaf), found in pairs}
        usable = metric is not None and math.isfinite(metric)
        record = {
            "format": checkpoint_record.FORMAT,
            "metric": float(metric) if usable else None,
            "best_mode": self._best_mode,
            "leaves": leaves,
            **({"notes": {**notes}} if notes else {}),
        }
        self._metrics[step] = record["metric"]
        with self._telling():
            self._orbax.save_checkpointables_async(
                step,
                {"state": state},
                force=True,
                custom_metadata={"record": record, "crc32": checkpoint_record.crc32(record)},
            )

    def notes(self, step: int) -> dict[str, Any]:
        """Returns what `save` was given of a step, which is whole, to keep beside its arrays."""
        return checkpoint_record.read(self._directory, step).get("notes", {})

    def restore(
        self, abstract_state: PyTree, among: Collection[int] | None = None
    ) -> tuple[int, PyTree] | None:
        """Returns (step, state) of the newest checkpoint that is whole, or None where there is none.

        Damaged ones are named in a warning, and moved aside once an older one has been read.

        Args:
          abstract_state: jax.ShapeDtypeStruct leaves with the shardings to restore onto; the mesh
            and number of devices may be others than those it was saved from.
          among: the steps that may be chosen; None for all.

        Raises:
          CheckpointError: all are damaged, or the arrays are those of another model or optimizer.
        """
        self.wait()
        damaged: list[int] = []
        chosen = self.steps() if among is None else self.steps() & {*among}
        for step in sorted(chosen, reverse=True):
            try:
                state = self._load(step, abstract_state)
            except DamagedError as error:
                logging.warning(
                    "checkpoint %s is damaged and passed over: %s", self._directory / str(step), error
                )
                damaged.append(step)
                continue
            self._move_aside(damaged)
            return step, state
        if damaged:
            raise CheckpointError(
                f"every checkpoint in {self._directory} is damaged (steps {damaged}): mend them from a copy, "
                "or remove the folder to start anew"
            )
        return None

    def restore_step(self, step: int, abstract_state: PyTree) -> PyTree:
        """Returns the state of one step, as `restore` does.

        Raises:
          CheckpointError: it is not there, damaged, or of another model or optimizer.
        """
        self.wait()
        if step not in self._steps():
            raise CheckpointError(
                f"no checkpoint of step {step} in {self._directory}: it has {self._steps()}"
            )
        try:
            return self._load(step, abstract_state)
        except DamagedError as error:
            raise CheckpointError(f"checkpoint {self._directory / str(step)} is damaged: {error}") from error

    def _load(self, step: int, abstract_state: PyTree) -> PyTree:
        state, error = None, None
        try:
            record = checkpoint_record.read(self._directory, step)
            checkpoint_record.check_leaves(self._directory / str(step), record["leaves"], abstract_state)
            state = self._orbax.load_checkpointables(step, {"state": abstract_state})["state"]
            sums = jax.device_get(jax.tree.map(checkpoint_record.checksum, state))
            for (name, _), found in zip(named(state), jax.tree.leaves(sums), strict=True):
                if int(found) != record["leaves"][name][2]:
                    raise DamagedError(f"the checksum of {name} does not agree")
        except (CheckpointError, MemoryError, PermissionError):
            raise  # none of them tells that the files are bad
        except DamagedError as found:
            error = found
        except Exception as found:  # whatever Orbax and TensorStore raise on bad files
            if "RESOURCE_EXHAUSTED" in str(found):
                raise
            error = DamagedError(checkpoint_record.first_line(found))
        if jax.process_count() > 1:
            # All processes must go to the same checkpoint, though the damage may be in one's part.
            failed = multihost_utils.process_allgather(np.array(error is not None))
            if error is None and failed.any():
                error = DamagedError(f"process {int(np.argmax(failed))} could not read it")
        if error is not None:
            raise error
        return state

    def _move_aside(self, steps: Sequence[int]) -> None:
        if not steps:
            return
        if jax.process_index() == 0:
            for step in steps:
                target, copies = self._directory / f"{step}.damaged", 1
                while target.exists():
                    copies += 1
                    target = self._directory / f"{step}.damaged-{copies}"
                (self._directory / str(step)).rename(target)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("bert_jax: damaged checkpoints are moved aside")
        self._orbax.reload()

    def release(self) -> None:
        """Ends `held`, and removes what was kept for it alone."""
        self.wait()
        held, self.held = self.held, None
        kept = {*sorted(self._steps())[-self._keep :], self.best_step()}
        if held is not None and held in self._steps() and held not in kept:
            if jax.process_index() == 0:
                (self._directory / str(held)).rmtree()
            if jax.process_count() > 1:
                multihost_utils.sync_global_devices("bert_jax: the held checkpoint is removed")
            self._orbax.reload()

    def wait(self) -> None:
        """Returns when the save under way is complete. Raises CheckpointError if it failed."""
        with self._telling():
            self._orbax.wait()

    def close(self) -> None:
        """Waits for the save under way and ends the background threads. Raises as `wait`."""
        with self._telling():
            self._orbax.close()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Tells of a save that failed, whatever Orbax and TensorStore raised of it, by its cause."""
        try:
            yield
        except (CheckpointError, MemoryError):
            raise
        except Exception as error:
            if processes.gone(error):
                raise
            raise CheckpointError(
                f"a checkpoint could not be saved in {self._directory}: "
                f"{checkpoint_record.first_line(error)}; those before it are whole: mend the cause, such as "
                "a full disk, and start the same command again"
            ) from error


class _Preservation:
    """Orbax's preservation policy: the newest, and the best by a metric that need not be there."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        del context
        steps = [checkpoint.step for checkpoint in checkpoints]
        newest = sorted(steps)[-self._checkpoints._keep :]
        kept = {*newest, self._checkpoints.best_step(), self._checkpoints.held}
        return [step in kept for step in steps]


def read_params(directory: epath.PathLike, step: int | Literal["best"] | None = None) -> dict[str, Any]:
    """Returns the "params" of a checkpoint as nested dicts of host arrays, needing no model.

    Args:
      directory: the folder that holds STEP/.
      step: which; None is the newest, "best" that of the best metric (the newest where none has one).

    Raises:
      CheckpointError: there is none, it is damaged, or its state has no "params".
    """
    directory = _absolute(directory)
    steps = _finished_steps(directory)
    if not steps:
        raise CheckpointError(f"no checkpoint in {directory}: train the run, or name another folder")
    if step == "best":
        step = _recorded_best(directory, steps)
    if step is None:
        step = steps[-1]
    if step not in steps:
        raise CheckpointError(f"no checkpoint of step {step} in {directory}: it has {steps}")
    try:
        saved = checkpoint_record.read(directory, step)["leaves"]
        leaves = {name: leaf for name, leaf in saved.items() if name.startswith("params/")}
        if not leaves:
            raise CheckpointError(
                f"checkpoint {directory / str(step)} has no params: it is no training state"
            )
        abstract = nested({name: np.ndarray for name in leaves})
        context = ocp.Context()
        context.pytree.loading.partial_load = True
        with context:
            state = ocp.load_checkpointables(directory / str(step), {"state": abstract})["state"]
        for name, array in named(state):
            if checkpoint_record.host_checksum(array) != leaves[name][2]:
                raise DamagedError(f"the checksum of {name} does not agree")
    except (CheckpointError, MemoryError, PermissionError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"checkpoint {directory / str(step)} is damaged: {checkpoint_record.first_line(error)}"
        ) from error
    return state["params"]


def _metric(directory: epath.Path, step: int) -> float | None:
    try:
        return checkpoint_record.read(directory, step)["metric"]
    except DamagedError:
        return None  # told when it is to be restored


def _best(metrics: dict[int, float | None], mode: str | None) -> int | None:
    known = {step: metric for step, metric in metrics.items() if metric is not None}
    if mode is None or not known:
        return None
    sign = 1 if mode == "max" else -1
    return max(known, key=lambda step: (sign * known[step], -step))


def _recorded_best(directory: epath.Path, steps: Sequence[int]) -> int | None:
    """Returns the best step by the mode that the newest readable record names."""
    metrics, mode = {}, None
    for step in steps:
        try:
            record = checkpoint_record.read(directory, step)
        except DamagedError:
            continue
        metrics[step], mode = record["metric"], record["best_mode"]
    return _best(metrics, mode)


def _finished_steps(directory: epath.Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def _absolute(directory: epath.PathLike) -> epath.Path:
    path = epath.Path(directory)
    return path if "://" in str(directory) else path.expanduser().absolute()
