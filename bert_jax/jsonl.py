"""JSON, read so that whatever is wrong in it is told; JSON lines, written whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from etils import epath


def parse(content: str | bytes) -> Any:
    """Returns the value of a JSON text.

    Raises:
      ValueError: it is none, not in UTF-8, nested too deeply, or has a number of thousands of digits.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(str(error).partition(";")[0]) from error


def read_object(file: epath.Path | pathlib.Path) -> dict[str, Any]:
    """Returns the JSON object of a file that this program wrote; raises ValueError where it holds none."""
    try:
        found = parse(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is damaged, no JSON ({error}): restore it from a copy") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} is damaged, no JSON object: restore it from a copy")
    return found


def read_objects(file: epath.Path | pathlib.Path) -> list[dict[str, Any]]:
    """Returns the objects of a file of JSON lines that this program wrote; one without its end is none.

    Raises:
      ValueError: a line holds no object; the message names it.
    """
    found = []
    for number, line in enumerate(file.read_bytes().split(b"\n")[:-1], 1):
        try:
            found.append(parse(line))
        except ValueError as error:
            raise ValueError(
                f"{file}, line {number}: damaged, no JSON ({error}): mend or remove the line"
            ) from error
        if not isinstance(found[-1], dict):
            raise ValueError(f"{file}, line {number}: damaged, no JSON object: mend or remove the line")
    return found


def encoded(value: Mapping[str, Any]) -> bytes:
    """Returns a JSON object as one line of UTF-8; lone surrogates, which have no UTF-8 form, escaped."""
    return (json.dumps(value, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def write(values: Iterable[Mapping[str, Any]], path: str) -> None:
    """Writes JSON lines: to stdout ("-") as they come, to a file whole or not at all.

    Args:
      values: one object a line.
      path: local or gs://; a name in .gz is compressed.
    """
    if path == "-":
        for value in values:
            sys.stdout.buffer.write(encoded(value))
        sys.stdout.buffer.flush()
        return
    file = epath.Path(path).expanduser()
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as raw:
            stream = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) if path.lower().endswith(".gz") else raw
            for value in values:
                stream.write(encoded(value))
            if stream is not raw:
                stream.close()
        partial.replace(file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        raise
