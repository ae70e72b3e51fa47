"""What the commands share: reading flags and configs, and ending with one clear line on an error.

A command defines its flags by absl, has a docstring that `--help` shows, and ends with

    if __name__ == "__main__":
        flags.run(main)
"""

from __future__ import annotations

import difflib
import linecache
import logging as python_logging
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

from bert_jax import config as config_lib
from bert_jax import recorded
from bert_jax.config import ConfigError

EXIT_ELSEWHERE = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_UNREAD = 141  # 128 + SIGPIPE

# `--help` lists a flag with the command that asked for it, not with this module.
flags.disclaim_key_flags()

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple: 'a tuple such as "(16, 32)"',
    type(None): "true, false or None",
    ConfigDict: "set by its keys, one flag for each",
}
_PACKAGE = str(pathlib.Path(__file__).resolve().parent)


class UsageError(ValueError):
    """A command line that cannot be read; the message names the flag and the mend."""


class ElsewhereError(RuntimeError):
    """What went wrong outside this process, and is no mistake of the user's; the message says what to do."""


def define_config() -> flags.FlagHolder[ConfigDict]:
    """Defines --config=FILE and --config.KEY=VALUE; the value is checked to be a config, not yet valid."""
    return config_flags.DEFINE_config_file(
        "config",
        None,
        "Config file in Python, or a run's config.json; --config.KEY=VALUE sets one key of it.",
        lock_config=True,
    )


def run(main: Callable[..., None], names: bool = False) -> None:
    """Reads sys.argv, calls main() and exits: 0, 2 with one line on an error of the user's or the machine's,
    130 on ^C, 141 where nobody reads the output any more.

    An ElsewhereError is one line and 1, as it may go well when it is tried again. What nobody foresaw keeps
    its traceback, and exits with 1.

    Args:
      main: the command.
      names: main takes a list of what stands between the flags; else nothing may.
    """
    # TensorFlow reads the data here and computes nothing: no warning of its libraries is wanted.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    if {"--help", "-help", "-h", "--helpfull", "--helpshort"} & set(sys.argv[1:]):
        print(_help())
        sys.exit(0)
    try:
        rest = _parse(sys.argv)
        if rest and not names:
            raise UsageError(f"unexpected argument {rest[0]}: write --FLAG=VALUE; see --help")
        _say_plainly()
        main(*[rest] * names)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Who read standard output has had enough, as `head` has. Python would flush it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
        sys.exit(EXIT_UNREAD)
    except ElsewhereError as error:
        print(f"error: {_line(error)}", file=sys.stderr)
        sys.exit(EXIT_ELSEWHERE)
    except Exception as error:
        if not is_users(error):
            raise
        print(f"error: {_line(error)}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)


class _Plain(python_logging.Formatter):
    """What happens as a sentence; only a warning says what it is."""

    def format(self, record: python_logging.LogRecord) -> str:
        line = super().format(record)
        return line if record.levelno < python_logging.WARNING else f"{record.levelname.lower()}: {line}"


def _say_plainly() -> None:
    logging.use_absl_handler()
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(_Plain())
    # Libraries say much that is of no use to the reader; what they warn of comes through.
    for handler in python_logging.getLogger().handlers:
        handler.addFilter(lambda r: r.levelno >= python_logging.WARNING or r.name in ("absl", "root"))


def _help() -> str:
    command = sys.modules["__main__"]
    name = command.__spec__.name if command.__spec__ else sys.argv[0]
    about = (command.__doc__ or "").strip()
    return f"{about}\n\nUsage: python -m {name} --FLAG=VALUE ...\n{flags.FLAGS.main_module_help()}"


def _parse(argv: list[str]) -> list[str]:
    """Sets the flags, and returns what stands between them."""
    path = None
    flags.FLAGS.set_gnu_getopt()  # flags may stand behind other arguments
    if "config" in flags.FLAGS:
        argv, path = _with_config_file(argv)
        # A config derives from another by `from configs import base`, wherever the command is run.
        sys.path.append(str(pathlib.Path(path).resolve().parent.parent))
        _check_overrides(argv)
    try:
        rest = flags.FLAGS(argv)[1:]
    except flags.UnrecognizedFlagError as error:
        raise UsageError(f"{error}{_as_key(error.flagname)}; see --help") from error
    except flags.Error as error:
        # absl wraps a ValueError of the config file as if its path were a wrong value.
        raise _config_error(error, path) or UsageError(_flag_message(str(error))) from error
    except Exception as error:
        raise _config_error(error, path) or error from None
    if path is not None and not isinstance(flags.FLAGS["config"].value, ConfigDict):
        raise ConfigError(f"config file {path}: get_config() returns no ConfigDict")
    return rest


def _with_config_file(argv: list[str]) -> tuple[list[str], str]:
    """Returns the arguments and the Python file of their --config=FILE[:ARGUMENT].

    A run's config.json is checked here, and becomes the argument of the file that reads it. What is not there
    is told here, in plain words.
    """
    argv, at, value = list(argv), 0, ""
    for i, argument in enumerate(argv):
        if match := re.fullmatch(r"--?config(?:=(.*))?", argument, re.DOTALL):
            at, value = (i, match[1]) if match[1] is not None else (i + 1, "".join(argv[i + 1 : i + 2]))
    if match := re.fullmatch(r"(.+\.json):.*", value, re.DOTALL):
        raise UsageError(
            f"--config={value}: a run's config.json takes no argument: write --config={match[1]}"
        )
    if value.endswith(".json"):
        recorded.get_config(value)
        argv[at] = argv[at].removesuffix(value) + f"{recorded.__file__}:{value}"
        return argv, recorded.__file__
    path = value.split(":", 1)[0]
    if not path:
        raise UsageError("--config=FILE is required; see --help")
    if not os.path.isfile(path):
        raise ConfigError(f"config file {path} is not there: name a Python file such as configs/tiny.py")
    return argv, path


def _check_overrides(argv: list[str]) -> None:
    schema = config_lib.flatten(config_lib.default())
    given: set[str] = set()
    groups = {key[:i] for key in schema for i, letter in enumerate(key) if letter == "."}
    for argument in argv[1:]:
        match = re.match(r"--?(?:no)?config\.([^=]*)", argument)
        if match and match[1] not in schema and match[1] not in groups:
            key = match[1]
            # A key whose group was forgotten or mistaken lies far away by its letters.
            same = [k for k in schema if k.rpartition(".")[2] == key.rpartition(".")[2]]
            near = same or difflib.get_close_matches(key, schema, n=1, cutoff=0.7)
            raise ConfigError(f"unknown config key {key}" + (f"; did you mean {near[0]}?" if near else ""))
        if match and match[1] in given and isinstance(schema.get(match[1]), tuple):
            # Of other keys the last one counts; ml_collections joins tuples, which nobody would expect.
            raise UsageError(f"--config.{match[1]} is given twice: it would be both together; give it once")
        if match:
            given.add(match[1])


def _as_key(name: str) -> str:
    known = name.partition("=")[0] in config_lib.flatten(config_lib.default()) and "config" in flags.FLAGS
    return f": a key of the config is set by --config.{name}" if known else ""


def _flag_message(message: str) -> str:
    if match := re.match(r"flag --config\.([\w.]+)=(.*?): ", message, re.DOTALL):
        like = config_lib.flatten(config_lib.default()).get(match[1], ConfigDict())
        return f"config key {match[1]} = {match[2]!r}: it must be {_KINDS.get(type(like), 'a text')}"
    if match := re.search(r"Flag --(\w+) must (?:have a value|be specified)", message):
        return f"--{match[1]} is required; see --help"
    if "in argv before a value for --config" in message:
        return "--config=FILE must come before --config.KEY=VALUE"
    return message.removeprefix("flag ")


def _config_error(error: Exception, path: str | None) -> ConfigError | None:
    """Returns the error in the config file behind `error`, by its line; None where it is elsewhere."""
    if path is None:
        return None
    for cause in _chain(error):
        if isinstance(cause, SyntaxError) and cause.filename:
            return ConfigError(f"config file {cause.filename}, line {cause.lineno}: {cause.msg}")
        lines = [line for file, line in _frames(cause) if os.path.abspath(file) == os.path.abspath(path)]
        if lines:
            return ConfigError(f"config file {path}, line {lines[-1]}: {type(cause).__name__}: {cause}")
        if isinstance(cause, AttributeError) and "'get_config'" in str(cause):
            return ConfigError(f"config file {path} defines no get_config()")
    if isinstance(error, flags.Error):
        return None
    return ConfigError(f"config file {path} cannot be used: {type(error).__name__}: {error}")


def is_users(error: Exception) -> bool:
    """Whether the error was raised on purpose for what the user gave, and is no fault of the program."""
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return True  # a full disk, a name that is too long, a file system that cannot be written
    if isinstance(error, ConfigError | UsageError):
        return True
    if not isinstance(error, ValueError | FileExistsError):
        return False
    # A ValueError of the package's own `raise` is a message for the user; one that came out of a
    # library, or out of int() and the like, is a fault to be looked into.
    file, line = list(_frames(error))[-1]
    return os.path.abspath(file).startswith(_PACKAGE) and linecache.getline(file, line).lstrip().startswith(
        "raise"
    )


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        return f"{error.strerror}: {name if len(name) < 300 else name[:300] + '...'}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those behind it, the innermost first."""
    if error is not None:
        yield from _chain(error.__cause__ or error.__context__)
        yield error


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    """Yields (file, line) from the outermost call to the one that raised."""
    frame = error.__traceback__
    while frame is not None:
        yield frame.tb_frame.f_code.co_filename, frame.tb_lineno
        frame = frame.tb_next
