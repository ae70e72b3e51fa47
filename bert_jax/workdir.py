"""A run's directory: what it was started with, and what it ended with."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import filelock
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import forms, jsonl
from bert_jax.config import ConfigError

CONFIG, MODEL, TOKENIZER, CHECKPOINTS = "config.json", "model.json", "tokenizer", "checkpoints"
TASK, PREDICTIONS = "task.json", "predictions"
METRICS, RESULT, EVENTS, MEMBERS = "metrics.jsonl", "result.json", "tensorboard", "members"
ABOUT, SAMPLES, REPORT, PROFILE = "about.json", "samples.json", "report.html", "profile"
LOCK = ".lock"

_LINE = {"step": forms.COUNT, "split": forms.TEXT, "seconds?": forms.NUMBER}
_RESULT = {"value?": forms.NUMBER, "best?": {"member": forms.COUNT}}
_FACTS = {
    "kind?": forms.TEXT, "seq_len?": forms.SIZE, "pairs?": forms.FLAG, "choices?": [forms.TEXT],
    "columns?": {"text?": forms.TEXT, "text_pair?": forms.TEXT, "choices?": [forms.TEXT]},
    "superglue?": forms.TEXT, "entities?": forms.FLAG, "markers?": [forms.TEXT], "stride?": forms.SIZE,
    "max_question?": forms.SIZE, "max_answer?": forms.SIZE, "unanswerable?": forms.FLAG,
    "null_threshold?": forms.NUMBER, "max_target?": forms.SIZE, "beam_size?": forms.SIZE,
    "length_penalty?": forms.NUMBER,
}  # fmt: skip
# What must be there for a kind of model; the others have heads that say enough.
_NEEDED = {
    "choice": ("choices",), "relation": ("seq_len", "markers"), "spans": ("seq_len", "pairs"),
    "spelling": ("seq_len",), "seq2seq": ("seq_len", "max_target", "beam_size", "length_penalty"),
}  # fmt: skip


def read_config(workdir: epath.PathLike) -> ConfigDict | None:
    """Returns the config that a workdir's run was started with, or None where there is no run."""
    path = epath.Path(workdir) / CONFIG
    return config_lib.from_json(path.read_bytes(), str(path)) if path.exists() else None


def check(workdir: epath.PathLike, config: ConfigDict, found: ConfigDict | None) -> None:
    """Makes sure that a run with this config may live in the workdir; writes nothing.

    Args:
      workdir: the directory; it need not be there.
      config: the run's config, complete.
      found: what `read_config` found.

    Raises:
      ConfigError: it holds a run with another config (the keys are named), or is no workdir.
    """
    path = epath.Path(workdir)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--workdir={path} is a file: name a directory")
    saved = has_saved(path)
    if not saved and not (path / MEMBERS).exists():
        return  # a run that saved nothing has nothing to lose
    if found is None and saved:
        raise ConfigError(f"{path} holds checkpoints but no {CONFIG}: take another --workdir")
    refuse_another(path, config, found)


def refuse_another(
    workdir: epath.PathLike, config: ConfigDict, found: ConfigDict | None, flag: str = "--workdir"
) -> None:
    """Raises ConfigError, naming the keys, where a workdir's run was started with another config."""
    differing = config_lib.differing_keys(config, found) if found is not None else []
    if differing:
        raise ConfigError(
            f"{workdir} holds a run with another config ({'; '.join(differing)}): "
            f"ask for the same one, or take another {flag}"
        )


def has_saved(workdir: epath.PathLike) -> bool:
    """Returns whether a workdir holds a checkpoint, from which its run would go on."""
    return bool(saved_steps(workdir))


def saved_steps(workdir: epath.PathLike) -> set[int]:
    """Returns the steps of a workdir's checkpoints."""
    folder = epath.Path(workdir) / CHECKPOINTS
    return {int(step.name) for step in folder.iterdir() if step.name.isdigit()} if folder.exists() else set()


@contextlib.contextmanager
def alone(workdir: epath.PathLike) -> Iterator[None]:
    """Makes a workdir, and keeps other processes from training in it for as long as this one does.

    The lock ends with the process, however that ends. There is none at gs://.

    Raises:
      ConfigError: another process trains there.
    """
    path = epath.Path(workdir)
    path.mkdir(parents=True, exist_ok=True)
    if "://" in os.fspath(path):
        yield
        return
    held = filelock.FileLock(path / LOCK, timeout=0)
    try:
        held.acquire()
    except filelock.Timeout as error:
        raise ConfigError(
            f"another process trains in {path}: wait for it or end it, or take another --workdir"
        ) from error
    except NotImplementedError:  # a file system without locks
        yield
        return
    try:
        yield
    finally:
        held.release()


def claim(workdir: epath.PathLike, config: ConfigDict) -> None:
    """Makes the workdir, and writes the config of the run that lives there from now on.

    A result that lies there is an earlier run's, and goes: it would say that this one is complete.
    """
    epath.Path(workdir).mkdir(parents=True, exist_ok=True)
    (epath.Path(workdir) / RESULT).unlink(missing_ok=True)
    write(epath.Path(workdir) / CONFIG, config_lib.to_json(config))


def write(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a file whole or not at all; a text as UTF-8, its lone surrogates escaped as JSON does."""
    path = epath.Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(
            content.encode(errors="backslashreplace") if isinstance(content, str) else content
        )
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def write_facts(workdir: epath.PathLike, facts: Mapping[str, Any]) -> None:
    """Writes what a task says of itself (`bert_jax.tasks.Task.facts`), which may be nothing."""
    if facts:
        write(epath.Path(workdir) / TASK, json.dumps({**facts}, indent=2, ensure_ascii=False) + "\n")


def read_facts(workdir: epath.PathLike) -> dict[str, Any]:
    """Returns what `write_facts` wrote; nothing where there is no such file. Raises ValueError if damaged."""
    path = epath.Path(workdir) / TASK
    if not path.exists():
        return {}
    facts = jsonl.read_object(path)
    forms.check(facts, _FACTS, path)
    needed = _NEEDED.get(facts.get("kind") or "", ())
    forms.check(facts, {name: _FACTS[f"{name}?"] for name in needed}, path)
    return facts


def read_result(workdir: epath.PathLike) -> dict[str, Any] | None:
    """Returns the result of a run that has ended, or None. Raises ValueError where it is damaged."""
    path = epath.Path(workdir) / RESULT
    if not path.exists():
        return None
    result = jsonl.read_object(path)
    forms.check(result, _RESULT, path)
    return result


def read_metrics(workdir: epath.PathLike) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl, none where it is not there. Raises ValueError if one is damaged."""
    path = epath.Path(workdir) / METRICS
    lines = jsonl.read_objects(path) if path.exists() else []
    for number, line in enumerate(lines, 1):
        forms.check(line, _LINE, f"{path}, line {number}")
        for name, value in line.items():
            if name != "split":
                forms.check(value, forms.NUMBER_OR_NULL, f"{path}, line {number}", name)
    return lines


def of_model(workdir: epath.PathLike) -> epath.Path:
    """Returns where the model of a directory is: of a search that has ended, the best member's workdir."""
    path = epath.Path(workdir)
    best = (read_result(path) or {}).get("best") if (path / MEMBERS).is_dir() else None
    return path / MEMBERS / str(best["member"]) if best else path


def tokenizer_of(model: epath.PathLike) -> str:
    """Returns where the tokenizer of a model's directory is: a folder of its own, or beside the weights."""
    own = of_model(epath.Path(model).expanduser()) / TOKENIZER
    return str(own if own.exists() else model)


def write_result(workdir: epath.PathLike, result: dict[str, Any]) -> None:
    """Writes result.json; a value that is no number (NaN) is null in it."""
    clean = {k: None if isinstance(v, float) and v != v else v for k, v in result.items()}
    write(epath.Path(workdir) / RESULT, json.dumps(clean, indent=2) + "\n")
    logging.info("result: %s", epath.Path(workdir) / RESULT)


def start_metrics(workdir: epath.PathLike) -> dict[str, float]:
    """Returns the metrics of the evaluation before the first step; none where there was none."""
    lines = read_metrics(workdir)
    if not lines or lines[0]["step"] != 0:
        return {}
    return {name: value for name, value in lines[0].items() if name not in ("step", "split", "seconds")}
