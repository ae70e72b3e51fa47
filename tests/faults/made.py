"""Runs of seconds, and whether two of them ended alike."""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any

import commands_under_fault as under_fault
import small

# Time, and what follows from it.
_OF_THE_CLOCK = ("seconds", "tokens_per_second", "mfu", "step_seconds", "data_wait")


def config(folder: pathlib.Path, name: str = "config.py", **keys: Any) -> pathlib.Path:
    """Writes a config for `--config`; keys as "group.key"."""
    made = small.config(
        folder,
        **{
            "model.layers": 1,
            "model.hidden_size": 16,
            "model.feed_forward_size": 32,
            "data.seq_len": 16,
            "train.batch_size": 4,
            "model.dropout": 0.1,
            "train.steps": 40,
            "train.log_every": 10,
            "train.eval_rows": 16,
            "checkpoint.every": 5,
            "train.compilation_cache": str(folder.parent / "compiled"),
            **keys,
        },
    )
    return small.write(made, folder / name)


def slowly() -> None:
    """Makes each step of a training take 20 ms, so that a few steps are long enough to be hit."""
    import time

    from bert_jax import log

    advance = log.Log.advance

    def slow(self: log.Log) -> None:
        time.sleep(0.02)
        advance(self)

    log.Log.advance = slow


def train(config_file: pathlib.Path, workdir: pathlib.Path, *more: str) -> list[str]:
    return ["main", f"--config={config_file}", f"--workdir={workdir}", *more]


def newest(workdir: pathlib.Path) -> int:
    """Returns the step of the newest checkpoint that has its name; 0 where there is none."""
    return max((int(p.name) for p in (workdir / "checkpoints").glob("*") if p.name.isdigit()), default=0)


def ended(workdir: pathlib.Path) -> dict[str, Any]:
    """Returns all that must be the same of two runs: parameters, result and metrics, the clock left out."""

    def look() -> dict[str, Any]:
        import jax
        import numpy as np

        from bert_jax import checkpoint

        digest = hashlib.sha256()
        for path, array in jax.tree.leaves_with_path(checkpoint.read_params(workdir / "checkpoints")):
            digest.update(jax.tree_util.keystr(path).encode() + np.ascontiguousarray(array).tobytes())
        return {"params": digest.hexdigest()}

    lines = small.metrics(workdir)
    result = json.loads((workdir / "result.json").read_text())

    def plain(values: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key not in _OF_THE_CLOCK}

    # A run that went on in the midst of a line's steps tells the mean of those since.
    metrics = [plain(line) if line["split"] == "eval" else (line["step"], line["split"]) for line in lines]
    return under_fault.in_fork(look) | {"result": plain(result), "metrics": metrics}


def differences(one: dict[str, Any], two: dict[str, Any]) -> str:
    """Returns what differs; "" where nothing does."""
    return ", ".join(key for key in one if one[key] != two[key])


def files(folder: pathlib.Path, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    """Returns a digest of each file of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in leave_out
    }
