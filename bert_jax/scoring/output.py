"""JSON lines that a killed run goes on with.

`Resumable` writes FILE.partial and, beside it, FILE.partial.json: what the lines are made with, how many
lines and bytes of FILE.partial are whole, and a digest of the inputs that they belong to. What a kill
leaves behind those bytes is cut off. At the end FILE.partial becomes FILE by one rename.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from bert_jax import forms, jsonl
from bert_jax.jsonl import encoded

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None

_FORMAT = 1
_FORM = {"bytes": forms.COUNT, "lines": forms.COUNT, "inputs": forms.TEXT}
_SUM = forms.Kind("a number", lambda value: isinstance(value, int | float))  # which may have become infinite


class Resumable:
    """Lines of a local file, one for each input, that may be killed and gone on with.

    Attributes:
      totals: sums over the lines so far, kept with them; the caller adds to them before `add`.
      done: lines that an earlier run left.

    Args:
      path: the file to be; a name in .gz is compressed, each part that is saved as a member of its own.
      made_with: what decides the lines, in values that JSON keeps: model, method and so on.
      totals: names and starting values of the sums.
      every: seconds between the points that a killed run goes on from.

    Raises:
      ValueError: FILE.partial was made with something else, or is being written by another process.
    """

    def __init__(
        self, path: str, made_with: Mapping[str, Any], totals: Mapping[str, float], every: float = 5.0
    ) -> None:
        self._path = pathlib.Path(path).expanduser()
        self._partial = self._path.with_name(self._path.name + ".partial")
        self._journal = self._path.with_name(self._path.name + ".partial.json")
        self._zip = self._path.name.lower().endswith(".gz")
        self._every, self._saved = every, time.monotonic()
        self._made_with, self.totals = dict(made_with), dict(totals)
        self._digest, self._lines, self._bytes = hashlib.sha256(), 0, 0
        self._buffer: list[bytes] = []
        self._expected: str | None = None
        self.done = 0
        self._file = open(os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")  # noqa: SIM115
        try:
            self._claim()
            self._find()
        except BaseException:
            self._file.close()
            raise
        self._file.truncate(self._bytes)
        self._file.seek(self._bytes)

    def _claim(self) -> None:
        """Keeps other processes off the file, for as long as this one has it open."""
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"another process is writing {self._partial}: wait for it or end it") from error

    def _find(self) -> None:
        """Reads what an earlier run left."""
        if not self._journal.exists():
            return
        try:
            found = jsonl.read_object(self._journal)
        except ValueError:
            found = {}
        if found.get("format") != _FORMAT or found.get("made_with") != self._made_with:
            raise ValueError(
                f"{self._partial} was made with another model or other options: remove it and "
                f"{self._journal.name}, or name another --output"
            )
        forms.check(found, {**_FORM, "totals": dict.fromkeys(self.totals, _SUM)}, self._journal)
        if self._partial.stat().st_size < found["bytes"]:
            self._journal.unlink()  # a journal without its file says nothing
            return
        self.done = self._lines = found["lines"]
        self._bytes, self._expected, self.totals = found["bytes"], found["inputs"], found["totals"]
        logging.info("%s: going on behind its %d lines", self._partial, self.done)

    def rest(self, inputs: Iterable[str]) -> Iterator[str]:
        """Yields the inputs that have no line yet.

        Raises:
          ValueError: those that have one differ from what the lines were made of.
        """
        inputs = iter(inputs)
        for _ in range(self.done):
            text = next(inputs, None)
            if text is None:
                break
            self._take(text)
        if self.done and self._digest.hexdigest() != self._expected:
            raise ValueError(
                f"{self._partial} belongs to another input: remove it and {self._journal.name}, or name "
                "another --output"
            )
        yield from inputs

    def _take(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._digest.update(len(data).to_bytes(8, "big") + data)

    def add(self, text: str, value: Mapping[str, Any]) -> None:
        """Adds the line of an input; from time to time saves what there is."""
        self._take(text)
        self._lines += 1
        self._buffer.append(encoded(value))
        if time.monotonic() - self._saved >= self._every:
            self._save()

    def _save(self) -> None:
        data = b"".join(self._buffer)
        self._buffer.clear()
        # Also of nothing, gzip makes a file that can be read.
        self._file.write(gzip.compress(data, mtime=0) if self._zip and (data or not self._bytes) else data)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._bytes = self._file.tell()
        state = {
            "format": _FORMAT,
            "made_with": self._made_with,
            "lines": self._lines,
            "bytes": self._bytes,
            "inputs": self._digest.hexdigest(),
            "totals": self.totals,
        }
        written = self._journal.with_name(self._journal.name + ".new")
        written.write_text(json.dumps(state))
        written.replace(self._journal)
        self._saved = time.monotonic()

    def __enter__(self) -> Resumable:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Makes the file of what was written; after an error keeps what was saved, if anything was."""
        if kind is None:
            self._save()
            self._partial.replace(self._path)
            self._journal.unlink()
        elif self._bytes:
            logging.info("%s is kept: the same command goes on from it", self._partial)
        else:
            self._partial.unlink()
        self._file.close()
