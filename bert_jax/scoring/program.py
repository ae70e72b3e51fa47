"""What is compiled: a batch's log-probabilities or sentence vectors, its rows shared among the devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec


def mesh() -> Mesh:
    """Returns the mesh of this process's devices, in one axis."""
    return Mesh(np.array(jax.local_devices()), ("rows",))


def on_all(params: Any, devices: Mesh) -> Any:
    """Returns the parameters with a copy on each device."""
    return jax.device_put(params, NamedSharding(devices, PartitionSpec()))


@functools.cache
def shared(function: Callable[..., Any], devices: Mesh, *static: Any) -> Callable[..., Any]:
    """Compiles `function(*static, params, *batch)`, each array's first axis shared among the devices.

    The devices have nothing to tell one another: each one computes its own rows' part.
    """
    whole, part = PartitionSpec(), PartitionSpec("rows")

    def run(params: Any, *batch: jax.Array) -> Any:
        mapped = jax.shard_map(
            functools.partial(function, *static),
            mesh=devices,
            in_specs=(whole, *[part] * len(batch)),
            out_specs=part,
            check_vma=False,  # it would not let a loop's length differ by device
        )
        return mapped(params, *batch)

    return jax.jit(run)


def forget() -> None:
    """Gives back all that was compiled in this process.

    On Linux a process may have 65,530 memory maps; programs of a few models fill them, and the next one then
    ends in an error of the compiler.
    """
    shared.cache_clear()
    jax.clear_caches()


def states(
    spec: ModelSpec, params: Any, tokens: jax.Array, segment_ids: jax.Array, asked: tuple[int, int | None]
) -> jax.Array:
    """Returns the (B, S, D) last states of texts, one in each row.

    Args:
      spec, params: the model's.
      tokens, segment_ids: (B, S) int32.
      asked: the part of each row that is wanted, from and to; (0, None) is all of it.
    """

    def of(model: Model) -> jax.Array:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32)[None], tokens.shape)
        # Of a prefix model the start token is the source, and all others see what is before them.
        prefix = (positions == 0).astype(jnp.int32)
        part = None if asked == (0, None) else slice(*asked)
        zeros = jnp.zeros_like(tokens)
        return model.encoder(tokens, segment_ids, positions, zeros, False, prefix=prefix, asked=part)

    return Model(spec).apply({"params": params}, method=of)


def log_probs(
    spec: ModelSpec,
    asked: tuple[int, int | None],
    chunk: int,
    params: Any,
    tokens: jax.Array,
    segment_ids: jax.Array,
    places: jax.Array,
    targets: jax.Array,
    count: jax.Array,
) -> jax.Array:
    """Returns (N,) float32 log-probabilities of tokens at some of a batch's states.

    Logits over the vocabulary exist for one chunk of them at a time, and only for those that count.

    Args:
      spec, params: the model's.
      asked: the part of each row whose states are wanted, as in `states`.
      chunk: states whose logits are made at once; N is a multiple of it.
      tokens, segment_ids: (B, S) int32.
      places: (N,) int32, which of the B * S states (B * M, where part of a row is asked for) predicts.
      targets: (N,) int32, what token is looked for.
      count: (1,) int32, how many of the N are wanted; the rest is 0.
    """
    hidden = states(spec, params, tokens, segment_ids, asked)
    hidden = hidden.reshape(-1, hidden.shape[-1])

    def add(number: jax.Array, found: jax.Array) -> jax.Array:
        some = jax.lax.dynamic_slice_in_dim(places, number * chunk, chunk)
        labels = jax.lax.dynamic_slice_in_dim(targets, number * chunk, chunk)
        logits = Model(spec).apply({"params": params}, hidden[some][None], method="token_logits")[0]
        label_logits = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
        values = label_logits - jax.nn.logsumexp(logits, axis=-1)
        return jax.lax.dynamic_update_slice_in_dim(found, values, number * chunk, axis=0)

    chunks = (count[0] + chunk - 1) // chunk
    return jax.lax.fori_loop(0, chunks, add, jnp.zeros(places.shape, jnp.float32))
