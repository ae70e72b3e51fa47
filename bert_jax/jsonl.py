"""JSON lines, written whole or not at all: what the commands answer."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from etils import epath


def encoded(value: Mapping[str, Any]) -> bytes:
    """Returns a JSON object as one line of UTF-8; lone surrogates, which have no UTF-8 form, escaped."""
    try:
        return (json.dumps(value, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(value) + "\n").encode()


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
