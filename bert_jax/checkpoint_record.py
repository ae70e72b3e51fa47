"""The record that lies in a checkpoint: each leaf's type, shape and checksum, and the metric.

It is what a restored state is held against: bits that changed on the way are noticed, and arrays of
another model are told from damage before anything is read.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from bert_jax import jsonl
from bert_jax.trees import named

PyTree = Any

FORMAT = 1  # version of the record
_METADATA = "_CHECKPOINT_METADATA"  # Orbax's JSON file of a checkpoint; holds what is given as its metadata


class CheckpointError(ValueError):
    """A checkpoint that is damaged, missing, or of another model; the message names it and why."""


class DamagedError(Exception):
    """One checkpoint cannot be used; the message says why."""


@jax.jit
def checksum(x: jax.Array) -> jax.Array:
    """Returns the uint32 sum, mod 2^32, of the bit patterns of x: the same on any mesh."""
    if x.dtype == jnp.bool_:
        bits = x.astype(jnp.uint8)
    else:
        # Types of 8 bytes become pairs of uint32.
        width = min(x.dtype.itemsize, 4)
        bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * width}"))
    return jnp.sum(bits, dtype=jnp.uint32)


def host_checksum(x: np.ndarray) -> int:
    """`checksum` in NumPy, for arrays that are not to be moved to a device."""
    bits = np.ascontiguousarray(x).reshape(-1).view(f"uint{8 * min(x.dtype.itemsize, 4)}")
    return int(bits.sum(dtype=np.uint64) % 2**32)


def check_leaves(path: epath.Path, leaves: dict[str, list[Any]], abstract_state: PyTree) -> None:
    """Raises CheckpointError if the run's arrays are not those saved: no damage, but another model."""
    asked = {name: [str(np.dtype(x.dtype)), list(x.shape)] for name, x in named(abstract_state)}
    for name in asked | leaves:
        found, wanted = leaves.get(name, [])[:2], asked.get(name, [])
        if found != wanted:
            has, needs = (" ".join(map(str, v)) or "no such array" for v in (found, wanted))
            raise CheckpointError(
                f"checkpoint {path} is of another model or optimizer: {name} is {has} there and {needs} "
                "in this run; use the config that it was saved with, or another workdir"
            )


def crc32(record: dict[str, Any]) -> int:
    """Returns the checksum of the record itself."""
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def read(directory: epath.Path, step: int) -> dict[str, Any]:
    """Returns {"format", "metric", "best_mode", "leaves": {name: [dtype, shape, checksum]}} of a step.

    Where something was noted beside its arrays, "notes" has it.

    Raises:
      DamagedError: it is not there, or its bits have changed.
      CheckpointError: another version of this program wrote it.
    """
    path = directory / str(step) / _METADATA
    try:
        metadata = jsonl.parse(path.read_bytes())["custom_metadata"]
        record = metadata["record"]
        whole = crc32(record) == metadata["crc32"] and "format" in {**record}
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{_METADATA} cannot be read: {first_line(error)}") from error
    if not whole:
        raise DamagedError(f"the checksum of {_METADATA} does not agree")
    if record["format"] != FORMAT:
        raise CheckpointError(
            f"checkpoint {directory / str(step)} has format {record['format']}; this version reads {FORMAT}"
        )
    return record


def first_line(error: BaseException) -> str:
    """Returns the kind of an error and the first line of its message, of the one at the bottom of it."""
    while error.__cause__ is not None:  # Orbax wraps a lost file in a remark on its handlers
        error = error.__cause__
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:600] if text else 'no message'}"
