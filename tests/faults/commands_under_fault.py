"""Starts commands that are to be hurt: forks of one process that has the libraries.

The parent must never compute with JAX: its threads would be missing in the forks. Whatever is to be computed
(`in_fork`) is computed in a fork too.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import pickle
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
HANG = 240.0  # seconds after which a command counts as hung; campaign.py sets it


class Hung(Exception):
    """A command that did not end in time."""


def load() -> None:
    """Imports what takes long."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # programs that are compiled more often than they run
    os.environ["PYTHONPATH"] = str(ROOT)
    for name in (
        "bert_jax.train", "bert_jax.data.prepare", "bert_jax.interop.load", "bert_jax.scoring",
        "bert_jax.visual.report", "tensorflow", "orbax.checkpoint", "sklearn.metrics",
    ):  # fmt: skip
        importlib.import_module(name)


@dataclasses.dataclass
class Started:
    """A command that runs."""

    pid: int
    log: pathlib.Path
    code: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal, or None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float | None = None) -> int:
        """Returns the exit code. Raises Hung, and kills it, where it does not end in time."""
        seconds = HANG if seconds is None else seconds
        ends = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > ends:
                self.kill()
                raise Hung(f"not ended after {seconds:.0f} s: {self.said()[-300:]}")
            time.sleep(0.01)
        return code

    def signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it as a machine would, at once."""
        self.signal(signal.SIGKILL)
        while self.poll() is None:
            time.sleep(0.002)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def error(self) -> str:
        """Returns the line that tells what was wrong; "" where there is none."""
        lines = [line for line in self.said().splitlines() if line.startswith("error: ")]
        return lines[-1].removeprefix("error: ") if lines else ""


def start(
    words: Sequence[str], log: pathlib.Path, before: Callable[[], None] | None = None, **env: str
) -> Started:
    """Starts `python -m bert_jax.WORDS`, its output going to a file.

    Args:
      words: the command's name and its flags.
      log: written anew.
      before: done in the new process first.
      env: of the new process, beside what is there.
    """
    log.write_bytes(b"")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Started(pid, log)
    code = 1
    try:
        out = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.setsid()
        os.environ.update(env)
        os.chdir(log.parent)
        if before:
            before()
        sys.argv = ["command", *words[1:]]
        runpy.run_module(f"bert_jax.{words[0]}", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 255)


def run(words: Sequence[str], log: pathlib.Path, **more: Any) -> Started:
    """Runs a command to its end."""
    started = start(words, log, **more)
    started.wait()
    return started


def in_fork(what: Callable[[], Any]) -> Any:
    """Returns what a function returns, called in a fork."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(write, "wb") as pipe:
            try:
                pickle.dump(what(), pipe)
            except BaseException as error:
                pickle.dump(error, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        found = pickle.load(pipe)
    os.waitpid(pid, 0)
    if isinstance(found, BaseException):
        raise found
    return found
