"""The other side of a comparison: a process with PyTorch and transformers that does what it is told.

It is told by lines of JSON on its standard input, and answers each with one on its standard output.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.flags import UsageError
from bert_jax.models.spec import ModelSpec

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What `bash launch/test.sh --parity` makes.
_ENVIRONMENT = _ROOT / ".venv-parity" / "bin" / "python"


class PeerError(ValueError):
    """The other process cannot do what it was told; the message has its last line."""


class Peer:
    """A running worker; a context, at whose end it ends."""

    def __init__(self, python: str = "") -> None:
        """Starts it.

        Args:
          python: the interpreter that has torch and transformers; "" takes the one of .venv-parity.

        Raises:
          UsageError: there is no such interpreter.
          PeerError: it lacks torch or transformers.
        """
        chosen = pathlib.Path(python) if python else _ENVIRONMENT
        if not chosen.exists():
            raise UsageError(
                f"--peer=transformers needs a Python with torch and transformers, and {chosen} is not there: "
                "make it by bash launch/test.sh --parity, or name one by --peer_python"
            )
        self._folder = tempfile.TemporaryDirectory()
        self._number = 0
        self._log = open(pathlib.Path(self._folder.name) / "log", "w+")  # noqa: SIM115, closed in __exit__
        self._process = subprocess.Popen(
            [str(chosen), "-m", "bert_jax.benchmarks.transformers_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "ignore"},
        )
        try:
            self.versions = self.ask("versions")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Returns the worker's answer to one of its functions.

        Args:
          what: the function's name.
          arguments: JSON values.

        Raises:
          PeerError: it failed.
        """
        try:
            self._process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._log.seek(0)
            said = self._log.read().strip().splitlines() or ["it ended without a word"]
            raise PeerError(f"PyTorch's process failed at {what!r}: {said[-1]}")
        return json.loads(line)

    def give(self, batches: Sequence[Mapping[str, np.ndarray]]) -> str:
        """Returns the file in which the worker finds some batches."""
        self._number += 1
        path = pathlib.Path(self._folder.name) / f"{self._number}.npz"
        np.savez(path, **{f"{i}/{name}": x for i, batch in enumerate(batches) for name, x in batch.items()})
        return str(path)

    def path(self, name: str) -> str:
        """Returns a place where the worker may write a file."""
        return str(pathlib.Path(self._folder.name) / name)


def bert_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the fields of transformers' BertConfig for a model of ours.

    Raises:
      UsageError: transformers' BERT does not compute it.
    """
    wanted = {
        "kind": "encoder", "position": "learned", "norm": "post", "mask": "full", "attention": "dot",
        "gated": False, "share_layers": False, "bias": True, "embedding_size": 0, "local_window": 0,
        "position_offset": 0, "mlm_head": "tied", "activation": "gelu",
    }  # fmt: skip
    for name, value in wanted.items():
        if getattr(spec, name) != value:
            raise UsageError(
                f"--peer=transformers compares with BERT, and model.{name} is {getattr(spec, name)!r}: "
                f"set it to {value!r}"
            )
    return {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "intermediate_size": spec.feed_forward_size,
        "max_position_embeddings": spec.max_positions,
        "type_vocab_size": max(1, spec.segments),
        "hidden_dropout_prob": spec.dropout,
        "attention_probs_dropout_prob": spec.attention_dropout,
        "initializer_range": spec.init_std,
        "layer_norm_eps": spec.norm_eps,
    }
