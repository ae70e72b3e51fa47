"""Runs the `python` commands of docs/ in forks of one process, which has imported the libraries once.

    python tests/docs_server.py SOCKET

A command comes with its folder, environment and the three standard streams. Long recipes are cut to a few
steps of a tiny model (`shrunk`); nothing else of a command is changed.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback

# What a recipe's run is cut to. A checkpoint that it starts from decides over the group `model` all the same.
TINY = {
    "model.hidden_size": "32",
    "model.layers": "2",
    "model.heads": "2",
    "model.feed_forward_size": "64",
    "model.dtype": "float32",
    "data.vocab_size": "400",
    "data.buckets": "()",
    "data.workers": "1",
    "train.steps": "4",
    "train.batch_size": "4",
    "train.log_every": "2",
}
_WITH_CONFIG = ("bert_jax.main", "bert_jax.prepare")


def shrunk(words: list[str]) -> list[str]:
    """Returns a command's words, after `python`, with other values of some keys.

    Phases become two steps of four rows an eighth as long. The config of a run that was cut is cut already.
    """
    if words[0] != "-m" or words[1] not in _WITH_CONFIG or any(word.endswith(".json") for word in words):
        return words
    given = dict(word.removeprefix("--config.").split("=", 1) for word in words if "--config." in word)
    other = dict(TINY)
    if "train.phases" in given and ast.literal_eval(given["train.phases"]):
        phases = tuple((length // 8, 2, 4) for length, *_ in ast.literal_eval(given["train.phases"]))
        other |= {"train.phases": str(phases), "data.seq_len": str(phases[0][0])}
    elif "init_from" not in given:
        other |= {"train.phases": "()", "data.seq_len": "64"}
    kept = [word for word in words if word.removeprefix("--config.").split("=", 1)[0] not in other]
    return [*kept, *(f"--config.{key}={value}" for key, value in other.items())]


def run(words: list[str]) -> int:
    """Runs `python WORDS` in this process and returns its exit code."""
    sys.path.insert(0, os.getcwd())
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def answer(connection: socket.socket) -> None:
    """Runs the command that a connection asks for and says its exit code; does not return."""
    said, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    asked = json.loads(said)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(asked["cwd"])
    os.environ.update(asked["env"])
    code = run(shrunk(asked["words"]))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    connection.sendall(str(code).encode())
    os._exit(code)


def serve(path: str) -> None:
    """Answers at a socket until it is killed."""
    # All that is slow to import, and nothing of this project: a page may change a copy of that.
    for name in (
        "flax.linen", "jax.experimental.multihost_utils", "matplotlib.backends.backend_agg", "optax",
        "orbax.checkpoint", "sacrebleu.metrics", "scipy.stats", "sklearn.metrics", "tensorflow", "tokenizers",
    ):  # fmt: skip
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listening.close()
                answer(connection)
            connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
