"""Compiles the real train step for a topology, and says what it needs and how long it would take."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from bert_jax import build, completion, config_rules, flops, sharding
from bert_jax import config as config_lib
from bert_jax import step as step_lib
from bert_jax.config import ConfigError
from bert_jax.data import tokenizer as tokenizers
from bert_jax.planning import collectives
from bert_jax.planning.machines import Chip

# What the compilers say of a program that has no room: of all, or of its temporaries alone.
_ALL = re.compile(r"Used ([\d.]+)([KMGT]) of")
_TEMPORARIES = re.compile(r"HLO temporaries \(([\d.]+)([KMGT])\)")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of one phase's step; bytes and times are of one device.

    Attributes:
      fits: whether it does.
      memory: bytes by kind: `parameters`, `optimizer`, `batch`, `temporaries`, `code`, and their `total`;
        of what did not fit, as much as the compiler tells.
      compile_seconds: how long it took.
      collectives: by kind, their `count` and `bytes` in a step.
    """

    fits: bool
    memory: dict[str, int]
    compile_seconds: float
    collectives: dict[str, dict[str, float]]


class Planner:
    """Plans of one config, for one topology; batch sizes and ways of recomputing can be tried in turn.

    The text is made up, since no plan depends on it: words of a vocabulary of the config's size.
    """

    def __init__(self, config: ConfigDict, devices: Sequence[Any], chip: Chip) -> None:
        """Checks the config and makes the text.

        Args:
          config: of a pretraining.
          devices: of `machines.devices`.
          chip: what each of them is.

        Raises:
          ConfigError: it is of a task, needs a teacher, or has a kernel that asks the device itself.
        """
        if config.task.name or config.objective.distill.weight:
            what = "task.name" if config.task.name else "objective.distill.weight"
            raise ConfigError(f"{what} is set, and plans are of pretraining without a teacher: leave it out")
        if config.model.attention_kernel == "cudnn":
            raise ConfigError(
                'model.attention_kernel = "cudnn" asks the GPU itself while it is compiled, and a plan has '
                'none: plan with "blocks" in its place'
            )
        sharding.make_mesh(config.mesh, devices)  # refused before anything is made or compiled
        self._folder = tempfile.TemporaryDirectory()
        self._config = _with_made_text(config, pathlib.Path(self._folder.name))
        self._devices, self._chip = devices, chip

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, **changes: Any) -> build.Run:
        """Returns the run of the config with some keys changed, as `model__remat`."""
        config = self._config.copy_and_resolve_references()
        for key, value in changes.items():
            group, _, leaf = key.partition("__")
            config[group][leaf] = value
            if key == "train__batch_size" and config.train.phases:
                config.train.phases = tuple((phase[0], phase[1]) for phase in config.train.phases)
        return build.build(config, None, mesh=sharding.make_mesh(config.mesh, self._devices))

    def compile(self, phase: build.Phase, run: build.Run) -> Compiled:
        """Compiles a phase's step."""
        size = phase.train.batch_size
        row = phase.train.batch(0, np.arange(1))
        by_rows = sharding.by_rows(phase.setup.mesh)
        batch = {
            name: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype, sharding=by_rows)
            for name, x in row.items()
        }
        state = step_lib.abstract_state(phase.setup, batch, run.config.seed)
        parts = {
            "parameters": _bytes(state.params),
            "optimizer": _bytes(state.opt_state),
            "batch": _bytes(batch),
        }
        lowered = step_lib.make_train_step(phase.setup).lower(state, batch)
        start = time.monotonic()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            memory = {**parts, **_without_room(str(error), sum(parts.values()))}
            return Compiled(False, memory, time.monotonic() - start, {})
        taken, stats = time.monotonic() - start, compiled.memory_analysis()
        rest = stats.output_size_in_bytes - stats.alias_size_in_bytes  # what the state's place does not take
        memory = {
            **parts,
            "temporaries": stats.temp_size_in_bytes + rest,
            "code": stats.generated_code_size_in_bytes,
        }
        memory["total"] = (
            stats.argument_size_in_bytes + memory["temporaries"] + stats.generated_code_size_in_bytes
        )
        fits = memory["total"] <= self._chip.memory
        return Compiled(fits, memory, taken, collectives.of(compiled.as_text(), len(self._devices)))

    def plan(self, **changes: Any) -> dict[str, Any]:
        """Returns the plan of the config with some keys changed, in JSON values: of all, and each phase."""
        run = self.run(**changes)
        mesh = run.setup.mesh
        phases = [self._of_phase(phase, run) for phase in run.phases]
        params = step_lib.abstract_state(run.setup, _sample(run), run.config.seed).params
        return {
            "fits": all(phase["fits"] for phase in phases),
            "devices": len(self._devices),
            "device": self._devices[0].device_kind,
            "mesh": dict(zip(mesh.axis_names, mesh.devices.shape, strict=True)),
            "parameters": sum(x.size for x in jax.tree.leaves(params)),
            "phases": phases,
        }

    def _of_phase(self, phase: build.Phase, run: build.Run) -> dict[str, Any]:
        found, spec = self.compile(phase, run), phase.setup.model.spec
        size, count = phase.train.batch_size, len(self._devices)
        length = phase.train.batch(0, np.arange(1))["tokens"].shape[-1]
        capacity = phase.setup.predictions
        parts = {name: 3 * x for name, x in flops.parts(spec, size, length, capacity).items()}
        work = sum(parts.values())
        moved = sum(kind["bytes"] for kind in found.collectives.values())
        again = flops.recomputed(spec, size, length, capacity, phase.setup.vocabulary_parts)
        # All that the step keeps is written and read at least once, and the state read and written.
        state = found.memory["parameters"] + found.memory["optimizer"]
        touched = 2 * state + 2 * found.memory.get("temporaries", 0)
        times = {
            "compute": (work + sum(again.values())) / count / self._chip.flops,
            "memory": touched / self._chip.memory_bandwidth,
            "network": moved / self._chip.network_bandwidth,
        }
        slowest = max(times.values())
        return {
            "seq_len": length,
            "batch_size": size,
            "rows_per_device": size / sharding.rows(phase.setup.mesh),
            "fits": found.fits,
            "hbm_bytes": found.memory,
            "hbm_limit": self._chip.memory,
            "flops": parts,
            "recomputed_flops": again,
            "extra_flops": sum(again.values()) / work,
            "collectives": found.collectives,
            "seconds": times,
            "step_seconds": slowest,
            "tokens_per_second": size * length / slowest,
            "mfu": work / count / self._chip.flops / slowest,
            "compile_seconds": round(found.compile_seconds, 1),
        }

    def largest_batch(self, most: int = 1 << 16) -> tuple[int, dict[str, Any]]:
        """Returns the largest batch size of which every phase fits, and its plan.

        It is a multiple of the rows that the mesh takes at once; 0, with the plan of the smallest, where not
        even that fits. Memory is nearly linear in the batch, so that the sizes that were compiled tell about
        where the largest must lie, and few are. The answer has been compiled, and so has one that does not
        fit, at most 3% larger where they are many, unless the answer is the most that is asked for.

        Args:
          most: largest size that is tried.
        """
        config = self._config
        unit = sharding.rows(sharding.make_mesh(config.mesh, self._devices)) * config.train.accumulation
        # In units: `low` fits, `high` does not.
        low, high, good, smallest = 0, max(1, most // unit) + 1, None, {}
        units = min(max(1, config.train.batch_size // unit), high - 1)
        seen: dict[int, float] = {}  # units -> how much of the memory they take
        while high - low > max(1, low // 32):
            plan = self.plan(train__batch_size=units * unit)
            logging.info("batch %d %s", units * unit, "fits" if plan["fits"] else "does not fit")
            for phase in plan["phases"]:
                needed, limit = phase["hbm_bytes"], phase["hbm_limit"]
                # Nothing else is known to be held whatever the batch.
                seen[0] = (needed["parameters"] + needed["optimizer"]) / limit
                if "total" in needed:
                    seen[units] = max(seen.get(units, 0), needed["total"] / limit)
            if plan["fits"]:
                low, good = units, plan
            else:
                high, smallest = units, plan
            units = _next(seen, low, high)
        return (low * unit, good) if good else (0, smallest)

    def mends(self) -> list[str]:
        """Returns what would make the config fit, of what one can turn: tried, not guessed.

        The cheapest way to recompute, the vocabulary in parts, a batch in parts, parameters shared by the
        fewest devices, each alone; and where none of them is enough, all at their utmost together.
        """
        config, found = self._config, []
        ways = config_rules.CHOICES["model.remat"]
        size, rows = config.train.batch_size, sharding.rows(sharding.make_mesh(config.mesh, self._devices))
        halvings = [2**i * config.train.accumulation for i in range(1, 16)]
        devices, width = len(self._devices) // config.mesh.tensor, config.model.hidden_size
        shares = [2**i for i in range(1, 16) if config.mesh.fsdp < 2**i <= devices]
        keys = {
            "model.remat": ways[ways.index(config.model.remat) + 1 :],
            "train.vocabulary_parts": (8,) if config.train.vocabulary_parts < 8 else (),
            "train.accumulation": [n for n in halvings if size % (n * rows) == 0],
            "mesh.fsdp": [n for n in shares if devices % n == 0 and width % n == 0],
        }
        for key, values in keys.items():
            for value in values:
                changes = {key: value}
                if key == "mesh.fsdp" and config.mesh.data > 0:
                    changes["mesh.data"] = -1
                if self._fits_with(changes):
                    found.append(_written(changes))
                    break
        if not found:
            together = {"mesh.data": -1, **{key: values[-1] for key, values in keys.items() if values}}
            if self._fits_with(together):
                found.append(_written(together))
        return found

    def _fits_with(self, changes: Mapping[str, Any]) -> bool:
        """Returns whether a config with some keys changed can be had and fits."""
        try:
            fits = self.plan(**{key.replace(".", "__"): value for key, value in changes.items()})["fits"]
        except ValueError as error:  # what is asked for does not go together, as sizes that a mesh divides
            logging.info("%s cannot be tried: %s", changes, error)
            return False
        logging.info("%s %s", changes, "fits" if fits else "does not fit")
        return fits


def _written(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in changes.items())


def _next(seen: Mapping[int, float], low: int, high: int) -> int:
    """Returns the size to try next, between one that fits and one that does not.

    Args:
      seen: size -> how much of the memory it takes, where that is known.
      low, high: the largest that fits and the smallest that does not; `high` may be untried.
    """
    found = min((low + high) // 2, 2 * low or high)
    if 2 <= len(seen) <= 6:  # a straight line that leads nowhere gives way to halving
        (a, of_a), (b, of_b) = sorted(seen.items(), key=lambda x: abs(x[1] - 1))[:2]
        if (slope := (of_b - of_a) / (b - a)) > 0:
            found = a + int((1 - of_a) // slope)
    return min(max(found, low + 1), high - 1)


def _without_room(message: str, state: int) -> dict[str, int]:
    """Returns what the compiler says that a step would need: its `total`, and `temporaries` where it tells.

    Args:
      message: the compiler's.
      state: bytes of what the step is given.
    """
    if match := _TEMPORARIES.search(message):
        temporaries = int(float(match[1]) * _UNITS[match[2]])
        return {"temporaries": temporaries, "total": state + temporaries}
    match = _ALL.search(message)
    return {"total": int(float(match[1]) * _UNITS[match[2]])} if match else {}


def _sample(run: build.Run) -> dict[str, np.ndarray]:
    return run.phases[0].train.batch(0, np.arange(1))


def _bytes(tree: Any) -> int:
    """Returns the bytes that one device holds of a tree of abstract arrays."""
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape))) * x.dtype.itemsize for x in jax.tree.leaves(tree)
    )


def _with_made_text(config: ConfigDict, folder: pathlib.Path) -> ConfigDict:
    """Returns the config, complete, on a made text with a vocabulary of its size."""
    config, _, _ = completion.complete(config, None)
    size = config.model.vocab_size or config.data.vocab_size
    if config.data.tokenizer and not config.model.vocab_size:
        size = tokenizers.load(config.data.tokenizer).vocab_size
    half = (size - 5) // 2
    words = [f"w{i}" for i in range(size - 5 - half)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *(f"##{i}" for i in range(half))]
    (folder / "vocab.txt").write_text("\n".join(tokens))
    text = folder / "text"
    text.mkdir()
    draw = np.random.default_rng(0)
    for number in range(16):
        lines = [" ".join(draw.choice(words[:1000], 40)).capitalize() + "." for _ in range(120)]
        (text / f"{number}.txt").write_text("\n\n".join(lines))
    config.init_from = ""
    config.data.update({
        "source": "text", "path": str(text), "mixture": (), "eval_path": "", "general_path": "",
        "eval_fraction": 0.2, "holdout": "documents", "tokenizer": str(folder / "vocab.txt"),
        "lowercase": True, "extend_vocab": 0, "cache_dir": str(folder / "cache"), "document_marker": "",
    })  # fmt: skip
    config_lib.validate(config)
    return config
