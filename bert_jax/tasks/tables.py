"""Task files as rows of named columns: TSV, CSV, JSON lines and TFDS. Each row knows where it is from."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import jsonl
from bert_jax.data import files
from bert_jax.tasks import TaskDataError

SUFFIXES = (".csv", ".tsv", ".jsonl")  # each also with .gz behind it
_TFDS_NAME = re.compile(r"\w+(/[\w.-]+)?(:[\d.*]+)?")  # as "glue/cola" and "glue/cola:2.0.0"
_LONGEST_FIELD = 1 << 24  # characters; a quote that is never closed runs on to here


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      where: its file and line, for messages.
      values: by column. Of TSV and CSV texts, of JSON what it says, of TFDS texts, numbers, and lists and
        dicts of these.
    """

    where: str
    values: Mapping[str, Any]


def is_table(name: str) -> bool:
    """Returns whether a file is a table by its name."""
    return name.lower().removesuffix(".gz").endswith(SUFFIXES)


def read(file: epath.Path, columns: Sequence[str], key: str) -> list[Row]:
    """Reads a table (`rows`).

    Args:
      file, columns: as in `rows`.
      key: what named the file, for messages.

    Raises:
      ValueError: as in `rows`, or the file is missing, no table by its name, or has no row.
    """
    if not file.is_file():
        raise TaskDataError(f"{key} = {str(file)!r}: there is no such file")
    if not is_table(file.name):
        raise TaskDataError(f"{key} = {str(file)!r}: its name must end in {', '.join(SUFFIXES)}")
    found = list(rows(file, columns))
    if not found:
        raise TaskDataError(f"{file} has no example")
    return found


def rows(file: epath.Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of a table by its suffix, columns named in its first line or in each JSON object.

    A TSV has no quoting: a quote is a character, and a tab or line feed ends a field. A CSV has it, so
    that quoted fields may hold commas and line feeds.

    Args:
      file: `.csv` or `.tsv`, or one of these with `.gz`; any other is read as JSON lines. UTF-8.
      columns: those that must be there.

    Raises:
      ValueError: the file is not UTF-8 or not of this form, or lacks a column.
    """
    suffix = file.name.lower().removesuffix(".gz").rpartition(".")[2]
    return {"csv": _csv, "tsv": tsv}.get(suffix, _jsonl)(file, columns)


def tsv(
    file: epath.Path, columns: Sequence[str], header: Sequence[str] = (), drops: bool = False
) -> Iterator[Row]:
    """Yields the rows of a TSV without quoting.

    Args:
      file: UTF-8.
      columns: those that must be there.
      header: names of the columns of a file whose first line does not tell them.
      drops: leaves rows out that have another number of columns, and says how many, instead of
        refusing the file.

    Raises:
      TaskDataError: the file is not of this form.
    """
    known = "the first line names" if not header else "there are, without a header,"
    dropped, number = 0, 0
    for number, line in files.lines(file):
        fields = line.removesuffix("\r").split("\t")
        if not header:
            header = fields
            _check_columns(columns, header, str(file))
        elif len(fields) == len(header):
            yield Row(f"{file}, line {number}", dict(zip(header, fields, strict=True)))
        elif drops:
            dropped += 1
        else:
            raise TaskDataError(
                f"{file}, line {number}: {len(fields)} columns: {known} {len(header)}: {', '.join(header)}"
            )
    if dropped:
        logging.warning(
            "%s: %d of %d lines are left out: they do not have the header's %d columns",
            file, dropped, number, len(header),
        )  # fmt: skip


def _csv(file: epath.Path, columns: Sequence[str]) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader((line + "\n" for _, line in files.lines(file)), strict=True)
    header: list[str] = []
    begin = 1
    try:
        for fields in reader:
            where, begin = f"{file}, line {begin}", reader.line_num + 1
            if not fields:
                continue  # an empty line
            if not header:
                header = fields
                _check_columns(columns, header, str(file))
            elif len(fields) == len(header):
                yield Row(where, dict(zip(header, fields, strict=True)))
            else:
                raise TaskDataError(
                    f"{where}: {len(fields)} columns: the header has {len(header)}; quote a field that has "
                    "commas in it"
                )
    except csv.Error as error:
        raise TaskDataError(f"{file}, line {begin}: no CSV row ({error}): mend its quotes") from error


def _jsonl(file: epath.Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in files.lines(file):
        where = f"{file}, line {number}"
        if not line.strip():
            continue
        try:
            values = jsonl.parse(line)
        except ValueError as error:
            raise TaskDataError(f"{where}: not JSON ({error}): each line must be an object") from error
        if not isinstance(values, dict):
            raise TaskDataError(f"{where}: {line[:40]!r}: each line must be a JSON object")
        _check_columns(columns, list(values), where)
        yield Row(where, values)


def _check_columns(columns: Sequence[str], there: Sequence[str], where: str) -> None:
    twice = [name for name in there if there.count(name) > 1]
    if twice:
        raise TaskDataError(f"{where}: two columns are called {twice[0]!r}: name each once")
    for name in columns:
        if name not in there:
            told = f"{where}: there is no column {name!r}, but {', '.join(map(repr, there))}"
            apart = next((mark for mark in ";\t,|" if len(there) == 1 and mark in there[0]), None)
            # Such as ";", which spreadsheets write where the comma is the decimal mark.
            mend = f": {apart!r} stands between its columns: a .csv has commas, a .tsv tabs" if apart else ""
            raise TaskDataError(told + mend)


def text(row: Row, column: str, empty: bool = False) -> str:
    """Returns the text of a column.

    Args:
      row: the row.
      column: its name.
      empty: whether a text may be empty.

    Raises:
      TaskDataError: it is no text, or empty.
    """
    value = row.values[column]
    if not isinstance(value, str):
        raise TaskDataError(f"{row.where}: {column} {value!r}: it must be a text")
    if not empty and not value.strip():
        raise TaskDataError(f"{row.where}: the {column} is empty")
    return value


def number(row: Row, column: str) -> float:
    """Returns the number of a column; raises TaskDataError where it is none, NaN or infinite."""
    value = row.values[column]
    try:
        found = float("" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if not np.isfinite(found):
        raise TaskDataError(f"{row.where}: {column} {value!r}: it must be a number")
    return found


def is_tfds(path: str) -> bool:
    """Returns whether a data.path is the name of a TFDS dataset: it looks like one, and is no path."""
    return bool(_TFDS_NAME.fullmatch(path)) and not epath.Path(path).expanduser().exists()


def refuse_files(config: ConfigDict) -> None:
    """Raises TaskDataError where a file in data.path is named, and data.path is no folder."""
    for key in ("train_file", "eval_file"):
        if config.task[key]:
            raise TaskDataError(
                f"task.{key} = {config.task[key]!r} is a file in data.path, and data.path = "
                f"{config.data.path!r} is no folder: leave it out"
            )


class Tfds:
    """A TFDS dataset, downloaded if need be.

    Attributes:
      splits: names of its splits.
      features: names of its features.
    """

    def __init__(self, name: str, data_dir: str) -> None:
        """Opens a dataset by its name.

        Args:
          name: such as "glue/cola".
          data_dir: TFDS's; "" is its default.

        Raises:
          TaskDataError: TFDS cannot give it.
        """
        import tensorflow_datasets as tfds  # takes seconds, and files do without

        self.name = name
        try:
            self._builder = tfds.builder(name, data_dir=data_dir or None)
            self._builder.download_and_prepare()  # nothing to do where the dataset is there
        except Exception as error:  # TFDS and its downloads raise errors of every kind
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TaskDataError(
                f"data.path = {name!r}: there is no such file or folder, and TFDS cannot give this dataset: "
                f"{reason}"
            ) from error
        self.splits = list(self._builder.info.splits)
        self.features = list(self._builder.info.features)

    def classes(self, feature: str) -> list[str] | None:
        """Returns the names of a feature's classes; None where it is no ClassLabel."""
        import tensorflow_datasets as tfds

        found = self._builder.info.features[feature]
        return list(found.names) if isinstance(found, tfds.features.ClassLabel) else None

    def rows(self, split: str, columns: Sequence[str]) -> list[Row]:
        """Returns a split's rows, in the order of their `idx` where they have one.

        Args:
          split: its name.
          columns: features that are needed.

        Raises:
          TaskDataError: there is no such split or feature, or a text is not UTF-8.
        """
        import tensorflow_datasets as tfds

        for wanted, there, kind in ((split, self.splits, "split"), *((c, self.features, "feature")
                                    for c in columns)):  # fmt: skip
            if wanted not in there:
                raise TaskDataError(
                    f"data.path = {self.name!r}: the dataset has no {kind} {wanted!r}, but "
                    f"{', '.join(map(repr, there))}"
                )
        numbered = "idx" in self.features
        rows = []
        data = self._builder.as_dataset(split=split, shuffle_files=False)
        for place, example in enumerate(tfds.as_numpy(data)):
            index = _plain(example["idx"], "idx") if numbered else place
            key = tuple(index.values()) if isinstance(index, dict) else (index,)
            where = f"{self.name}, {split}, {'idx' if numbered else 'example'} {'/'.join(map(str, key))}"
            values = {name: _plain(example[name], f"{where}: {name}") for name in columns}
            rows.append((key, Row(where, {**values, "idx": index})))
        if numbered:  # shards hold the examples in an order of their own
            rows.sort(key=lambda pair: pair[0])
        if not rows:
            raise TaskDataError(f"{self.name}, {split} has no example")
        return [row for _, row in rows]


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each, where) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(each, where) for each in value]
    if not isinstance(value, bytes):
        return value.item() if isinstance(value, np.generic) else value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskDataError(f"{where} is not UTF-8") from error
