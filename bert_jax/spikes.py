"""Spikes of the loss: what is one, and which batches a run has left out because of it.

With train.spike.policy = "skip" a run goes back to the last step before the spike at which it saves by rule
(a multiple of checkpoint.every, or 0), and goes on with the batches after those that it has seen since
(Chowdhery et al. 2022, section 5.1). What it left out lies in the workdir, so the batch of a step is still a
function of data, seed and step, and a run that is killed goes on as it would have. A checkpoint says which
batches its past was without: one of a past that was given up is removed.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bert_jax import checkpoint_record, forms, jsonl
from bert_jax import workdir as workdir_lib
from bert_jax.data.pipeline import Batches

SPIKES = "spikes.json"
_FORMAT = 1  # version of the file
_PAIR = forms.Kind(
    "a pair of whole numbers",
    lambda value: isinstance(value, list) and len(value) == 2 and all(map(forms.COUNT.fits, value)),
)
_FORM = {
    "step": forms.COUNT, "name": forms.TEXT, "value": forms.NUMBER_OR_NULL, "usual": forms.NUMBER_OR_NULL,
    "back": forms.COUNT, "skips": [_PAIR],
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Spike:
    """A spike that a run went back from.

    Attributes:
      step: whose loss it was.
      name: "loss" or "grad_norm".
      value: of that; None is no number.
      usual: the median of the losses before; None where the value is no number.
      back: the step that the run went back to.
      skips: (after, batches) pairs: so many batches are left out behind step `after`.
    """

    step: int
    name: str
    value: float | None
    usual: float | None
    back: int
    skips: tuple[tuple[int, int], ...]


class GoBack(Exception):
    """The run of a workdir is to go back, because of its newest spike."""

    def __init__(self, root: epath.Path, history: Sequence[Spike]) -> None:
        super().__init__(root)
        self.root, self.history = root, (*history,)


class Watch:
    """Holds each loss of a run against those before it.

    Args:
      config: `train.spike`.
      losses: of the steps before, the newest last; those that the window has no room for are dropped.
    """

    def __init__(self, config: ConfigDict, losses: Sequence[float] = ()) -> None:
        self._factor = config.factor
        self.losses = collections.deque(losses, maxlen=config.window)

    def usual(self, loss: float) -> float | None:
        """Returns the median that a step's loss is a spike over; None: it is none, and joins the window."""
        if len(self.losses) == self.losses.maxlen:
            median = statistics.median(self.losses)
            if loss > self._factor * median:
                return median
        self.losses.append(loss)
        return None


def found(
    step: int,
    name: str,
    value: float,
    usual: float | None,
    history: Sequence[Spike],
    borders: Sequence[tuple[int, int]],
    every: int,
) -> Spike:
    """Returns what a run does about a spike.

    Args:
      step, name, value, usual: of `Spike`.
      history: its spikes before.
      borders: first step before, and last of, each phase; each has an order of batches of its own.
      every: checkpoint.every.
    """
    back = (step - 1) // every * every
    before = pairs(history)
    skips = []
    for start, stop in borders:
        first, last = max(back, start), min(step, stop)
        if first < last:  # what was left out on the way is left out again, before it
            more = sum(batches for after, batches in before if first < after < last)
            skips.append((first, last - first + more))
    return Spike(step, name, value if math.isfinite(value) else None, usual, back, tuple(skips))


def pairs(history: Sequence[Spike], below: float = math.inf) -> list[tuple[int, int]]:
    """Returns the (after, batches) pairs of all spikes, `after` being less than `below`."""
    return [pair for spike in history for pair in spike.skips if pair[0] < below]


class Skipping:
    """The batches of a phase without those that were left out.

    Args:
      batches: all of them.
      start: the step before the phase's first.
      skips: (after, batches) pairs, `after` being a step of this phase, or `start`.
    """

    def __init__(self, batches: Batches, start: int, skips: Sequence[tuple[int, int]]) -> None:
        self._batches, self._start, self._skips = batches, start, skips

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of the batch of a step, counted from 0 within the phase."""
        left_out = sum(count for after, count in self._skips if after <= self._start + step)
        return self._batches.batch(step + left_out, rows)


def read(root: epath.Path) -> tuple[Spike, ...]:
    """Returns the spikes that a workdir's run went back from, in the order in which they were found.

    Raises:
      ValueError: another version of this program wrote them, or the file is damaged.
    """
    path = root / SPIKES
    if not path.exists():
        return ()
    content = jsonl.read_object(path)
    if content.get("format") != _FORMAT:
        raise ValueError(f"{path} has format {content.get('format')}; this version reads {_FORMAT}")
    forms.check(content, {"spikes": [_FORM]}, path)
    return tuple(
        Spike(
            *(spike[key] for key in ("step", "name", "value", "usual", "back")),
            skips=tuple((after, batches) for after, batches in spike["skips"]),
        )
        for spike in content["spikes"]
    )


def write(root: epath.Path, history: Sequence[Spike]) -> None:
    """Writes them; this decides what the run does from now on."""
    content = {"format": _FORMAT, "spikes": [dataclasses.asdict(spike) for spike in history]}
    workdir_lib.write(root / SPIKES, json.dumps(content, indent=2) + "\n")


def notes(step: int, history: Sequence[Spike], watch: Watch | None) -> dict[str, Any]:
    """Returns what a checkpoint keeps of all this, as JSON values; nothing where there is nothing."""
    skips = pairs(history, step)
    return ({"skips": skips} if skips else {}) | ({"losses": [*watch.losses]} if watch else {})


def remove_abandoned(root: epath.Path) -> None:
    """Removes the checkpoints of steps that the run went back over."""
    history, folder = read(root), root / workdir_lib.CHECKPOINTS
    if not history or not folder.exists():
        return
    for path in folder.iterdir():
        if path.name.isdigit():
            try:
                kept = checkpoint_record.read(folder, int(path.name)).get("notes", {}).get("skips", [])
            except checkpoint_record.DamagedError:
                continue  # told when it is to be restored
            if [tuple(pair) for pair in kept] != pairs(history, int(path.name)):
                # What is half removed, should that be cut short, has no step's name any more.
                path.rename(folder / f"{path.name}.abandoned")
    for path in folder.glob("*.abandoned"):
        path.rmtree()
