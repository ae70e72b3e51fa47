"""All of a benchmark with one config: a run for each task whose data is there, and their average."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir as workdir_lib
from bert_jax.config import ConfigError
from bert_jax.tasks import glue_benchmarks, superglue_benchmarks

_TFDS_NAME = re.compile(r"\w+")


@dataclasses.dataclass(frozen=True)
class Part:
    """A task of a benchmark.

    Attributes:
      folder: the benchmark's name of it, and that of its folder.
      files: those that it needs there.
      tfds: its name in the benchmark's TFDS dataset.
      others: metrics that have the same part in its score as the first.
    """

    folder: str
    files: tuple[str, ...]
    tfds: str
    others: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Suite:
    """A benchmark.

    Attributes:
      title: its name.
      tfds: that of its TFDS dataset.
      files: what is missing where a task has no data, for messages.
      members: its tasks, those of its average, by their task.name.
    """

    title: str
    tfds: str
    files: str
    members: Mapping[str, Part]


def _of_glue() -> Suite:
    members = {}
    # The nine tasks of GLUE's average; the diagnostic set is no part of it.
    for name in ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"):
        benchmark = glue_benchmarks.BENCHMARKS[name]
        files = ("train.tsv", *(file for file, _ in benchmark.evals.values()))
        others = ("mismatched_accuracy",) if name == "mnli" else ()
        members[name] = Part(benchmark.folder, files, name, others)
    return Suite("GLUE", "glue", "train.tsv and dev.tsv", members)


def _of_superglue() -> Suite:
    files = ("train.jsonl", "val.jsonl")
    members = {
        name: Part(benchmark.folder, files, benchmark.tfds)
        for name, benchmark in superglue_benchmarks.BENCHMARKS.items()
    }
    return Suite("SuperGLUE", "super_glue", " and ".join(files), members)


SUITES = {"glue": _of_glue(), "superglue": _of_superglue()}
# What a task's metric is made of, in a table's words.
_PARTS = {
    "f1_accuracy": ("f1", "accuracy"),
    "pearson_spearman": ("pearson", "spearman"),
    "accuracy": ("accuracy", "mismatched_accuracy"),
    "f1a_em": ("f1a", "em"),
    "f1_em": ("f1", "em"),
}


def run(
    config: ConfigDict, workdir: epath.PathLike, train: Callable[[ConfigDict, epath.Path], dict[str, Any]]
) -> dict[str, Any]:
    """Trains on each task of a benchmark, in TASK/ of the workdir, and returns their scores and the average.

    A task that is complete is not trained again, and one that was cut short goes on. A task of two metrics
    has their mean as its score, MNLI that of matched and mismatched accuracy: the benchmarks' rule. The
    average is over the tasks that were run, and says how many they are.

    Args:
      config: `task.name` is one of SUITES; `data.path` is the folder of the tasks' folders, or the name of
        the benchmark's TFDS dataset.
      workdir: of all.
      train: trains one.

    Returns:
      what result.json says: `value` is the average, `tasks` has each one's metrics, `left_out` names those
      without data.

    Raises:
      ConfigError: no task has its data there, or the workdir holds another run.
    """
    root, suite = epath.Path(workdir), SUITES[config.task.name]
    members = suite.members
    paths = _paths(suite, config.data.path)
    workdir_lib.refuse_another(root, config, workdir_lib.read_config(root))
    left_out = [member.folder for name, member in members.items() if name not in paths]
    if left_out:
        logging.warning("left out, since their training or development files are not there: %s",
                        ", ".join(left_out))  # fmt: skip
    results: dict[str, dict[str, Any]] = {}
    for number, (name, path) in enumerate(paths.items(), 1):
        member = config.copy_and_resolve_references()
        member.task.name, member.data.path = name, path
        logging.info("task %d of %d: %s", number, len(paths), members[name].folder)
        results[name] = train(member, root / name)
        if number == 1 and jax.process_index() == 0:
            workdir_lib.claim(root, config)
    scores = {name: _score(members[name], result) for name, result in results.items()}
    summary = {
        "task": config.task.name,
        "metric": "average",
        "value": sum(scores.values()) / len(scores),
        "tasks": {name: {"score": scores[name], **result} for name, result in results.items()},
        "left_out": left_out,
        "steps": sum(result["steps"] for result in results.values()),
        "seconds": round(sum(result["seconds"] for result in results.values()), 1),
    }
    if jax.process_index() == 0:
        for line in table(suite, scores, results):
            logging.info("%s", line)
        workdir_lib.write_result(root, summary)
    return summary


def _paths(suite: Suite, path: str) -> dict[str, str]:
    """Returns the data.path of each task that has its data."""
    folder = epath.Path(path).expanduser()
    if not folder.is_dir():
        if _TFDS_NAME.fullmatch(path):
            return {name: f"{path}/{member.tfds}" for name, member in suite.members.items()}
        raise ConfigError(
            f"data.path = {path!r}: neither the folder of the tasks' folders nor a TFDS name such as "
            f'"{suite.tfds}"'
        )
    found = {}
    for name, member in suite.members.items():
        own = folder / member.folder
        if all((own / file).is_file() for file in member.files):
            found[name] = str(own)
    if not found:
        named = ", ".join(member.folder for member in suite.members.values())
        raise ConfigError(f"data.path = {path!r}: none of {named} is there with {suite.files}")
    return found


def _score(member: Part, result: Mapping[str, Any]) -> float:
    """Returns a task's part in the average; with several seeds of their means."""
    parts = [result["value"], *(result[name] for name in member.others)]
    return sum(parts) / len(parts)


def table(suite: Suite, scores: Mapping[str, float], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the lines of a table: each task's score, what it is made of, and the average."""
    lines = [f"{'task':<8}{'score':>8}  metrics"]
    for name, score in scores.items():
        result = results[name]
        shown = [key for key in _PARTS.get(result["metric"], (result["metric"],)) if key in result]
        values = ", ".join(f"{key.replace('_', ' ')} {100 * result[key]:.1f}" for key in shown)
        lines.append(f"{suite.members[name].folder:<8}{100 * score:>8.1f}  {values}")
    average = sum(scores.values()) / len(scores)
    count = f"{len(scores)} of {suite.title}'s {len(suite.members)} tasks"
    lines.append(f"{'average':<8}{100 * average:>8.1f}  of {count}")
    return lines
