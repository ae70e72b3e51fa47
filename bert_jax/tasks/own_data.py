"""The user's own tables as texts and labels: which files there are, and what a row of them says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bert_jax.tasks import TaskDataError, tables
from bert_jax.tasks.sequence import Split

_EVALS = ("dev", "eval", "valid", "validation")  # what files and splits of an evaluation are called


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns that a task reads.

    Attributes:
      text, text_pair, choices: of the texts; "" or () where there are none.
      label: of what is right.
      names: what the label column calls the classes or choices; () where the data tells.
      number: whether the label is a number, as a regression's.
    """

    text: str
    text_pair: str
    choices: tuple[str, ...]
    label: str
    names: tuple[str, ...]
    number: bool

    @classmethod
    def of(cls, config: ConfigDict) -> Columns:
        """Returns those of a config."""
        task = config.task
        choices = tuple(task.choices)
        names = tuple(task.labels) or choices
        return cls(task.text, task.text_pair, choices, task.label, names, task.name == "regression")

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of all texts, in the order in which they are given to a model."""
        return tuple(name for name in (self.text, self.text_pair, *self.choices) if name)

    def facts(self) -> dict[str, Any]:
        """Returns the texts' columns in JSON values."""
        return {"text": self.text, "text_pair": self.text_pair, "choices": list(self.choices)}


def read(
    config: ConfigDict, columns: Columns, more: Sequence[str] = ()
) -> tuple[list[tables.Row], list[tables.Row] | None]:
    """Returns the rows of the training data, and those of the evaluation where there is any.

    Args:
      config: the whole config.
      columns: those that must be there.
      more: those that are read too where they are there.

    Raises:
      ValueError: a file is missing or cannot be read, or lacks a column.
    """
    needed = (*columns.texts, columns.label)
    path = epath.Path(config.data.path).expanduser()
    if not path.is_dir():
        tables.refuse_files(config)
    if tables.is_tfds(config.data.path) and not tables.is_table(config.data.path):
        return _of_tfds(config, needed, more)
    train = path
    found: epath.Path | None = None
    if path.is_dir():
        train = _file(path, ("train",), config.task.train_file, "task.train_file", must=True)
        wanted = not config.data.eval_path
        found = _file(path, _EVALS, config.task.eval_file, "task.eval_file") if wanted else None
    key = "data.path" if found is None else "task.eval_file"
    if config.data.eval_path:
        found, key = epath.Path(config.data.eval_path).expanduser(), "data.eval_path"
    rows = tables.read(train, needed, "data.path")
    return rows, None if found is None else tables.read(found, needed, key)


def _file(
    folder: epath.Path, stems: Sequence[str], named: str, key: str, must: bool = False
) -> epath.Path | None:
    """Returns the file of a folder that is called by one of the stems, or the one that is named."""
    if named:
        return folder / named
    endings = [suffix + zipped for suffix in tables.SUFFIXES for zipped in ("", ".gz")]
    files = [folder / (stem + ending) for stem in stems for ending in endings]
    files = [file for file in files if file.is_file()]
    if len(files) > 1:
        raise TaskDataError(f"{folder} has {files[0].name} and {files[1].name}: name one of them by {key}")
    if not files and must:
        raise TaskDataError(
            f"{folder} has no {stems[0]}{', '.join(tables.SUFFIXES)}: name the training file by {key}"
        )
    return files[0] if files else None


def _of_tfds(
    config: ConfigDict, needed: Sequence[str], more: Sequence[str]
) -> tuple[list[tables.Row], list[tables.Row] | None]:
    data = tables.Tfds(config.data.path, config.data.tfds_dir)
    read = [*needed, *(name for name in more if name in data.features)]
    held_out = config.data.eval_path or next((name for name in _EVALS if name in data.splits), "")
    train = data.rows(config.data.tfds_split, read)
    names = data.classes(needed[-1]) if needed[-1] in data.features else None
    splits = [train, data.rows(held_out, read) if held_out else None]
    if names is not None:
        splits = [rows and [_named(row, needed[-1], names) for row in rows] for rows in splits]
    return splits[0], splits[1]


def _named(row: tables.Row, column: str, names: Sequence[str]) -> tables.Row:
    """Returns a row in which the class is called by its name."""
    number = row.values[column]
    if not 0 <= number < len(names):
        raise TaskDataError(f"{row.where}: {column} {number}: this split has no labels")
    return tables.Row(row.where, {**row.values, column: names[number]})


def label(row: tables.Row, columns: Columns) -> str:
    """Returns what the label column says, as a text: 3, true and " b " are "3", "true" and "b".

    Raises:
      TaskDataError: it says nothing.
    """
    value = row.values[columns.label]
    said = value if isinstance(value, str) else json.dumps(value)
    if value is None or isinstance(value, list | dict) or not said.strip():
        raise TaskDataError(f"{row.where}: the {columns.label} {value!r} names no class")
    return said.strip()


def split(rows: Sequence[tables.Row], columns: Columns, names: Sequence[str]) -> Split:
    """Returns the texts and labels of rows.

    Args:
      rows: of a table.
      columns: those of the task.
      names: of the classes or choices.

    Raises:
      TaskDataError: a text is empty, a label is unknown or no number.
    """
    numbers = {name: i for i, name in enumerate(names)}
    if columns.choices and columns.names == columns.choices:
        numbers = {**{str(i): i for i in range(len(names))}, **numbers}
    texts: list[str] = []
    pairs: list[str] = []
    labels: list[float] = []
    for row in rows:
        if columns.number:
            labels.append(tables.number(row, columns.label))
        else:
            said = label(row, columns)
            if said not in numbers:
                raise TaskDataError(
                    f"{row.where}: the {columns.label} is {said!r}: it must be one of "
                    f"{', '.join(map(repr, numbers))}"
                )
            labels.append(numbers[said])
        first = [tables.text(row, columns.text)] if columns.text else []
        if columns.choices:
            choices = [tables.text(row, name) for name in columns.choices]
            texts += first * len(choices) if first else choices
            pairs += choices if first else []
        else:
            texts += first
            pairs += [tables.text(row, columns.text_pair)] if columns.text_pair else []
    kind = np.float32 if columns.number else np.int32
    return Split(texts, pairs or None, np.array(labels, kind))
