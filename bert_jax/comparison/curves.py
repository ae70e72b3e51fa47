"""How the loss of each run fell, against the tokens that it had seen and the time that it had trained."""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from bert_jax import workdir as workdir_lib
from bert_jax.comparison.plan import Planned

CSV, PNG = "curves.csv", "curves.png"
TITLES = {"tta": "T-TA, of all tokens", "pll": "masked, of the masked tokens", "causal": "left to right"}


class Point(NamedTuple):
    """A line of a run's metrics.

    Attributes:
      step: updates made.
      split: "train", whose loss is a mean since the last such point, or "eval".
      tokens: real tokens seen in training.
      seconds: of training: compilation, evaluation and saving do not count.
      loss: in nats, of the run's own objective.
    """

    step: int
    split: str
    tokens: int
    seconds: float
    loss: float


def read(workdir: pathlib.Path) -> list[Point]:
    """Returns the points of a run, in order."""
    points: list[Point] = []
    last, tokens, seconds = 0, 0.0, 0.0
    for found in workdir_lib.read_metrics(workdir):
        if found["split"] == "skip":
            continue
        if found["split"] == "train":
            taken = (found["step"] - last) * found["step_seconds"]
            last, seconds = found["step"], seconds + taken
            tokens += taken * found["tokens_per_second"]
        points.append(Point(found["step"], found["split"], round(tokens), round(seconds, 3), found["loss"]))
    return points


def write(planned: Sequence[Planned], root: pathlib.Path) -> dict[str, list[Point]]:
    """Writes curves.csv and curves.png; returns the points by the run's name."""
    found = {run.name: read(run.workdir) for run in planned}
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["model", "layers", "seed", "objective", *Point._fields])
    for run in planned:
        for point in found[run.name]:
            lines.writerow([run.variant, run.layers, run.seed, run.method, *point])
    workdir_lib.write(root / CSV, text.getvalue())
    _plot(planned, found, root / PNG)
    return found


def _plot(planned: Sequence[Planned], found: dict[str, list[Point]], file: pathlib.Path) -> None:
    """Draws held-out losses: a row for each objective, whose losses are no other's."""
    methods = [name for name in TITLES if any(run.method == name for run in planned)]
    figure = Figure(figsize=(11, 3.6 * len(methods)), layout="constrained")
    grid = figure.subplots(len(methods), 2, squeeze=False)
    models = list(dict.fromkeys((run.variant, run.layers) for run in planned))
    for row, method in zip(grid, methods, strict=True):
        for axis, name, unit in zip(
            row, ("tokens", "seconds"), ("tokens seen", "seconds of training"), strict=True
        ):
            for run in planned:
                if run.method != method:
                    continue
                points = [point for point in found[run.name] if point.split == "eval"]
                axis.plot(
                    [getattr(point, name) for point in points],
                    [point.loss for point in points],
                    marker=".",
                    color=f"C{models.index((run.variant, run.layers)) % 10}",
                    linestyle="-" if run.layers == planned[0].layers else "--",
                    label=f"{run.variant}, {run.layers} layers" if run.seed == 0 else None,
                )
            axis.set(title=TITLES[method], xlabel=unit, ylabel="held-out loss (nats)")
            axis.set_xlim(left=0)
            axis.grid(alpha=0.3)
            axis.legend()
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=120)
    workdir_lib.write(file, made.getvalue())
