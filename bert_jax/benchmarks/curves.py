"""What a train step costs over its sizes: time over B, S and L; memory over S by attention implementation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import logging
from etils import epath
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from bert_jax import benchmarks, build, completion, flops, sharding
from bert_jax import config as config_lib
from bert_jax import step as step_lib
from bert_jax.benchmarks import charts
from bert_jax.flags import UsageError

CSV, PNG = "curves.csv", "curves.png"
# Axes by the shape's letter, and the key that each changes.
AXES = {"B": "train.batch_size", "S": "data.seq_len", "L": "model.layers"}
_MIB = 2**20


def read_values(flag: str, given: Sequence[str]) -> list[int]:
    """Returns the whole numbers above 0 of a flag; none is a valid answer.

    Raises:
      UsageError: they are no such numbers.
    """
    if not all(x.isdecimal() and int(x) for x in given):
        raise UsageError(f"--{flag}={','.join(given)}: it must be whole numbers above 0, such as 1,2,4")
    return [int(x) for x in given]


def measure(
    config: ConfigDict,
    values: Mapping[str, Sequence[int]],
    kernels: Sequence[str],
    folder: epath.PathLike,
    *,
    rounds: int,
    steps: int,
) -> dict[str, Any]:
    """Measures the first phase's train step at each value of each axis, the others being the config's.

    The points of one axis take turns, so that all see the same machine. Lengths have one for each kernel.

    Args:
      config: of a pretraining without phases.
      values: by the axis's letter.
      kernels: of `model.attention_kernel`.
      folder: for curves.csv and curves.png.
      rounds: how often each point is asked.
      steps: updates each time.

    Returns:
      JSON values: `points`, of each `axis`, `value`, `kernel`, the median `step_seconds`, `tokens_per_second`
      (places of the rows), `model_flops`, and `temporary_bytes` of the compiled step beside its state.

    Raises:
      UsageError: the config has phases.
      ConfigError: a value breaks a rule of the config.
    """
    if config.train.phases:
        raise UsageError(
            f"train.phases = {tuple(config.train.phases)}: curves are of one length; set it to ()"
        )
    points: list[dict[str, Any]] = []
    for axis in (name for name in AXES if values[name]):
        steppers: dict[str, Any] = {}
        found: dict[str, dict[str, Any]] = {}
        for value in values[axis]:
            for kernel in kernels if axis == "S" else (config.model.attention_kernel,):
                name = f"{axis} {value} {kernel}"
                steppers[name], cost = _stepper(_changed(config, axis, value, kernel), steps)
                found[name] = {"axis": axis, "value": value, "kernel": kernel, **cost}
                logging.info("%s: %.0f MiB of temporaries", name, cost["temporary_bytes"] / _MIB)
        for name, seconds in benchmarks.in_turns(steppers, rounds).items():
            each, point = statistics.median(seconds) / steps, found[name]
            rate = point.pop("places") / each
            points.append({**point, "step_seconds": each, "tokens_per_second": rate})
    folder = epath.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    charts.write_table(folder / CSV, points)
    _plot(points, folder / PNG)
    device = f"{jax.device_count()} {jax.devices()[0].device_kind}"
    return {"what": "curves", "device": device, "rounds": rounds, "steps": steps, "points": points}


def _changed(config: ConfigDict, axis: str, value: int, kernel: str) -> ConfigDict:
    own = config.copy_and_resolve_references()
    own.model.attention_kernel = kernel
    group, key = AXES[axis].split(".")
    own[group][key] = value
    own.model.max_positions = max(own.model.max_positions, own.data.seq_len)
    config_lib.validate(own)
    return own


def _stepper(config: ConfigDict, steps: int) -> tuple[Any, dict[str, Any]]:
    """Returns what does `steps` updates and says how long they took, warm, and what they cost."""
    run = build.build(*completion.complete(config, None))
    phase = run.phases[0]
    size, mesh = phase.train.batch_size, phase.setup.mesh
    rows = phase.train.batch(0, sharding.local_rows(size, mesh))
    state, batch = run.initial_state(rows), sharding.to_devices(rows, size, mesh)
    compiled = step_lib.make_train_step(phase.setup).lower(state, batch).compile()
    capacity = phase.setup.predictions
    length = rows["tokens"].shape[-1]

    def measured() -> float:
        nonlocal state
        start = time.perf_counter()
        for _ in range(steps):
            state, sums = compiled(state, batch, phase.setup.teacher_params)
        jax.block_until_ready((state, sums))
        return time.perf_counter() - start

    measured()
    return measured, {
        "places": size * length,
        "model_flops": flops.train_step(run.setup.model.spec, size, length, capacity),
        "temporary_bytes": compiled.memory_analysis().temp_size_in_bytes,
    }


def _plot(points: Sequence[Mapping[str, Any]], file: epath.Path) -> None:
    axes = [name for name in AXES if any(point["axis"] == name for point in points)]
    panels = [(name, "step_seconds", 1.0, "seconds a step") for name in axes]
    if "S" in axes:
        panels.append(("S", "temporary_bytes", _MIB, "temporaries (MiB)"))
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for plot, (name, what, unit, label) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        own = [point for point in points if point["axis"] == name]
        for kernel in dict.fromkeys(point["kernel"] for point in own):
            line = [point for point in own if point["kernel"] == kernel]
            plot.plot([p["value"] for p in line], [p[what] / unit for p in line], marker="o", label=kernel)
        plot.set(xlabel=f"{name} ({AXES[name]})", ylabel=label)
        plot.set_xlim(left=0)
        plot.set_ylim(bottom=0)
        plot.grid(alpha=0.3)
        plot.legend()
    charts.write_figure(file, figure)
