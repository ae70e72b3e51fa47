"""All of GLUE with one config: a run for each task whose data is there, and what they reach together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir as workdir_lib
from bert_jax.config import ConfigError
from bert_jax.tasks.glue_benchmarks import BENCHMARKS

# The nine tasks of GLUE's average; the diagnostic set is no part of it.
TASKS = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli")
_TFDS_NAME = re.compile(r"\w+")


def run(
    config: ConfigDict, workdir: epath.PathLike, train: Callable[[ConfigDict, epath.Path], dict[str, Any]]
) -> dict[str, Any]:
    """Trains on each task of GLUE, in TASK/ of the workdir, and returns their scores and the average.

    A task that is complete is not trained again, and one that was cut short goes on. A task of two metrics
    has their mean as its score, MNLI that of matched and mismatched accuracy: GLUE's rule. The average is
    over the tasks that were run, and says how many they are.

    Args:
      config: `data.path` is the folder of the tasks' folders, or TFDS's "glue".
      workdir: of all.
      train: trains one.

    Returns:
      what result.json says: `value` is the average, `tasks` has each one's metrics, `left_out` names those
      without data.

    Raises:
      ConfigError: no task has its data there, or the workdir holds another run.
    """
    root = epath.Path(workdir)
    paths = _paths(config.data.path)
    workdir_lib.refuse_another(root, config, workdir_lib.read_config(root))
    left_out = [BENCHMARKS[name].folder for name in TASKS if name not in paths]
    if left_out:
        logging.warning("left out, since their training or development files are not there: %s",
                        ", ".join(left_out))  # fmt: skip
    results: dict[str, dict[str, Any]] = {}
    for number, (name, path) in enumerate(paths.items(), 1):
        member = config.copy_and_resolve_references()
        member.task.name, member.data.path = name, path
        logging.info("task %d of %d: %s", number, len(paths), BENCHMARKS[name].folder)
        results[name] = train(member, root / name)
        if number == 1 and jax.process_index() == 0:
            workdir_lib.claim(root, config)
    scores = {name: _score(name, result) for name, result in results.items()}
    summary = {
        "task": "glue",
        "metric": "average",
        "value": sum(scores.values()) / len(scores),
        "tasks": {name: {"score": scores[name], **result} for name, result in results.items()},
        "left_out": left_out,
        "steps": sum(result["steps"] for result in results.values()),
        "seconds": round(sum(result["seconds"] for result in results.values()), 1),
    }
    if jax.process_index() == 0:
        for line in table(scores, results):
            logging.info("%s", line)
        workdir_lib.write_result(root, summary)
    return summary


def _paths(path: str) -> dict[str, str]:
    """Returns the data.path of each task that has its data."""
    folder = epath.Path(path).expanduser()
    if not folder.is_dir():
        if _TFDS_NAME.fullmatch(path):
            return {name: f"{path}/{name}" for name in TASKS}
        raise ConfigError(
            f'data.path = {path!r}: neither the folder of the tasks\' folders nor a TFDS name such as "glue"'
        )
    found = {}
    for name in TASKS:
        own = folder / BENCHMARKS[name].folder
        files = ["train.tsv", *(file for file, _ in BENCHMARKS[name].evals.values())]
        if all((own / file).is_file() for file in files):
            found[name] = str(own)
    if not found:
        named = ", ".join(BENCHMARKS[name].folder for name in TASKS)
        raise ConfigError(f"data.path = {path!r}: none of {named} is there with train.tsv and dev.tsv")
    return found


def _score(name: str, result: Mapping[str, Any]) -> float:
    """Returns a task's part in the average; with several seeds of their means."""
    both = [result["value"]]
    if name == "mnli":
        both.append(result["mismatched_accuracy"])
    return sum(both) / len(both)


def table(scores: Mapping[str, float], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the lines of a table: each task's score, what it is made of, and the average."""
    parts = {
        "f1_accuracy": ("f1", "accuracy"),
        "pearson_spearman": ("pearson", "spearman"),
        "accuracy": ("accuracy", "mismatched_accuracy"),
    }
    lines = [f"{'task':<8}{'score':>8}  metrics"]
    for name, score in scores.items():
        result = results[name]
        shown = [key for key in parts.get(result["metric"], (result["metric"],)) if key in result]
        values = ", ".join(f"{key.replace('_', ' ')} {100 * result[key]:.1f}" for key in shown)
        lines.append(f"{BENCHMARKS[name].folder:<8}{100 * score:>8.1f}  {values}")
    average = sum(scores.values()) / len(scores)
    lines.append(f"{'average':<8}{100 * average:>8.1f}  of {len(scores)} of GLUE's {len(TASKS)} tasks")
    return lines
