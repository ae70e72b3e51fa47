"""Runs a command in this process as a shell would run it: flags anew, exit code, what it printed."""

import contextlib
import dataclasses
import io
import logging
import os
import pathlib
import runpy
import signal
import sys
import warnings
from collections.abc import Iterator
from unittest import mock

from absl import flags as absl_flags
from absl import logging as absl_logging

# What absl and the libraries define when they are imported; a command's own flags go with it.
_OTHERS = frozenset(absl_flags.FLAGS)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a command left: its exit code and its two streams."""

    code: int
    out: str
    err: str


def run(module: str, *arguments: str, folder: pathlib.Path) -> Result:
    """Runs `python -m bert_jax.MODULE ARGUMENTS` in a folder.

    Raises:
      Whatever the command does not turn into a line and an exit code: then a user would see a traceback.
    """
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with _as_a_process(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv[1:] = arguments
        code = 0
        try:
            runpy.run_module(f"bert_jax.{module}", run_name="__main__", alter_sys=True)
        except SystemExit as leaving:
            code = leaving.code or 0
    out.flush()
    return Result(code, out.buffer.getvalue().decode(), err.getvalue())


@contextlib.contextmanager
def _as_a_process(folder: pathlib.Path) -> Iterator[None]:
    """Undoes what a command does to its process."""
    for name in set(absl_flags.FLAGS) - _OTHERS:
        delattr(absl_flags.FLAGS, name)
    sys.modules.pop("config_config", None)  # what ml_collections calls every config file
    root = logging.getLogger()
    filters = [(handler, list(handler.filters)) for handler in root.handlers]
    handlers, handler = list(root.handlers), absl_logging.get_absl_handler()
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    before = pathlib.Path.cwd()
    with (
        mock.patch.object(sys, "argv", ["command"]),
        mock.patch.object(sys, "path", list(sys.path)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # of how ml_collections imports a config
        warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)  # of runpy
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            handler.setFormatter(absl_logging.PythonFormatter())
            for each, its in filters:
                each.filters = its
            root.handlers = handlers
            for number, its in signals.items():
                signal.signal(number, its)
            for name in set(absl_flags.FLAGS) - _OTHERS:
                delattr(absl_flags.FLAGS, name)
