"""Tables of texts: TSV with a header, or JSON lines, by the names of their columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from bert_jax.data import files


def rows(path: epath.Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the named columns of each row, in their order.

    A file whose name ends in .jsonl (or .jsonl.gz) holds a JSON object a line. Any other has columns
    between tabs, quotes being text like any other, and their names in its first line; columns that are
    all named by numbers, from 0, are those of a file without such a line.

    Args:
      path: UTF-8, gzipped where the name ends in .gz.
      columns: those that are wanted.

    Raises:
      ValueError: a column or a value is not there; the message names the line.
    """
    name = path.name.lower().removesuffix(".gz")
    yield from (_of_json if name.endswith(".jsonl") else _of_tsv)(path, list(dict.fromkeys(columns)))


def _of_json(path: epath.Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, line in files.lines(path):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
        missing = [c for c in columns if not isinstance(found, dict) or c not in found]
        if missing:
            known = f"it has {', '.join(found)}" if isinstance(found, dict) else "it is no object"
            raise ValueError(f"{path}, line {number}: no {missing[0]!r}: {known}")
        yield {c: found[c] for c in columns}


def _of_tsv(path: epath.Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    lines = ((number, line.removesuffix("\r").split("\t")) for number, line in files.lines(path))
    if all(c.isdecimal() for c in columns):
        places = {c: int(c) for c in columns}
    else:
        _, header = next(lines, (0, []))
        missing = [c for c in columns if c not in header]
        if missing:
            raise ValueError(f"{path}: no column {missing[0]!r} in its first line: {', '.join(header)}")
        places = {c: header.index(c) for c in columns}
    for number, fields in lines:
        if fields == [""]:
            continue
        short = [c for c, place in places.items() if place >= len(fields)]
        if short:
            raise ValueError(f"{path}, line {number}: {len(fields)} columns between tabs, no {short[0]!r}")
        yield {c: fields[place] for c, place in places.items()}


def number(value: Any, column: str) -> float:
    """Returns a value as a finite number.

    Raises:
      ValueError: it is none.
    """
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if found != found or abs(found) == float("inf"):
        raise ValueError(f"{column} = {value!r} is not a number")
    return found


def text(value: Any, column: str) -> str:
    """Returns a value that must be a text.

    Raises:
      ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"{column} = {value!r} is no text")
    return value
