"""The processes of one run, on several hosts or one: what is said where another of them is gone."""

from __future__ import annotations

import re

import jax

from bert_jax import flags

# What collectives and the coordination service say of a process that they do not reach any more.
_GONE = re.compile(
    r"Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|Connection|[Hh]eartbeat|coordination service"
)


def gone(error: BaseException) -> flags.ElsewhereError | None:
    """Returns what is to be told of an error that another process's end has caused; None for any other."""
    cause: BaseException | None = error if jax.process_count() > 1 else None
    while cause is not None:
        if isinstance(cause, jax.errors.JaxRuntimeError) and _GONE.search(str(cause)):
            said = " ".join(str(cause).split())[:300]
            return flags.ElsewhereError(
                f"process {jax.process_index()} of {jax.process_count()} does not reach the others any more "
                f"({said}): the log of the one that ended first says why; start all of them again, and they "
                "go on from the last checkpoint"
            )
        cause = cause.__cause__ or cause.__context__
    return None
