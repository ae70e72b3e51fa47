"""Attention for some queries at a time, in memory that grows with S and not with its square.

Each block of queries has its softmax over all keys at once, and the backward pass computes it again from
queries, keys and values, its dropout from the same bits; so of (B, H, S, S) scores no more than one block's
exist at any time. It is plain JAX, runs on every device, and takes every mask and dropout.
"""

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models import sequence
from bert_jax.models.dropout import dropped
from bert_jax.models.masks import Mask, attention_weights, seen_by

_NO_UNIT = -1  # segment of queries behind the row: they see nothing


@flax.struct.dataclass
class Rows:
    """Which keys the queries of a row see, told for some of them at a time.

    Attributes:
      mask: of the row.
      reach: () int32, how far to each side a query sees; None: as far as the mask says.
    """

    mask: Mask
    reach: jax.Array | None = None

    def of(self, start: jax.Array, size: int) -> jax.Array:
        """Returns (B, 1, size, S) bool of the queries from `start` on; those behind the row see nothing."""
        ids = self.mask.segment_ids
        padded = jnp.pad(ids, [(0, 0), (0, size)], constant_values=_NO_UNIT)
        places = start + jnp.arange(size)
        visible = seen_by(self.mask, jax.lax.dynamic_slice_in_dim(padded, start, size, axis=1), places)
        if self.reach is not None:
            distance = jnp.abs(places[:, None] - jnp.arange(ids.shape[1])[None, :])
            visible &= (distance <= self.reach)[None, None]
        return visible


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    rows: Rows,
    random: jax.Array | None = None,
    block: int = 128,
    rate: float = 0.0,
) -> jax.Array:
    """Returns softmax(query key^T / sqrt(K)) value over the visible keys, (B, S, H, K).

    Where devices share the positions, each has a block of its own at any time.

    Args:
      query, key, value: (B, S, H, K).
      rows: who sees whom.
      random: the key of dropout's bits; None: no dropout.
      block: queries that are computed at once.
      rate: dropout of the weights.
    """
    length, shares = query.shape[1], sequence.shares()
    if shares == 1 or length % shares:
        return _attend(query, key, value, rows, random, jnp.array(0), block, rate)
    size = length // shares
    # Whole blocks, so that none has the number, and the bits, of another.
    block = next(count for count in range(min(block, size), 0, -1) if size % count == 0)
    parts = query.reshape(len(query), shares, size, *query.shape[2:])
    of_share = jax.vmap(
        lambda queries, first: _attend(queries, key, value, rows, random, first, block, rate), (1, 0), 1
    )
    return of_share(parts, jnp.arange(shares) * size).reshape(query.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def _attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    rows: Rows,
    random: jax.Array | None,
    first: jax.Array,
    block: int,
    rate: float,
) -> jax.Array:
    """As `attend`, of (B, M, H, K) queries that stand from place `first` on, a multiple of the block."""

    def one(carry: None, part: tuple[jax.Array, jax.Array]) -> tuple[None, jax.Array]:
        return carry, _of_block(part[0], key, value, rows, random, part[1], block, rate)

    block = min(block, query.shape[1])
    parts = _parts(query, block)
    _, mixed = jax.lax.scan(one, None, (parts, first // block + jnp.arange(len(parts))))
    return _whole(mixed, query.shape[1])


def _of_block(
    queries: jax.Array,
    key: jax.Array,
    value: jax.Array,
    rows: Rows,
    random: jax.Array | None,
    number: jax.Array,
    block: int,
    rate: float,
) -> jax.Array:
    """Returns (B, block, H, K) of block `number` of the queries."""
    weights = attention_weights(queries, key, rows.of(number * block, block)).astype(value.dtype)
    if random is not None:
        weights = dropped(weights, rate, jax.random.fold_in(random, number))
    return jnp.einsum("BHST,BTHK->BSHK", weights, value)


def _forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    rows: Rows,
    random: jax.Array | None,
    first: jax.Array,
    block: int,
    rate: float,
) -> tuple[jax.Array, Any]:
    kept = (query, key, value, rows, random, first)
    return _attend(query, key, value, rows, random, first, block, rate), kept


# Written out, since `jax.checkpoint` under the loop over layers keeps each block's mask, S^2 in all.
def _backward(block: int, rate: float, kept: Any, gradient: jax.Array) -> tuple[Any, ...]:
    query, key, value, rows, random, first = kept
    block = min(block, query.shape[1])
    parts, gradients = _parts(query, block), _parts(gradient, block)

    def one(sums: Any, part: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
        queries, above, number = part

        def of(queries: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
            return _of_block(queries, key, value, rows, random, number, block, rate)

        _, pull = jax.vjp(of, queries, key, value)
        of_queries, *of_keys = pull(above)
        return jax.tree.map(jnp.add, sums, tuple(of_keys)), of_queries

    # Many small parts are added up: in float32, whatever the parts are.
    zeros = jnp.zeros(key.shape, jnp.float32), jnp.zeros(value.shape, jnp.float32)
    numbers = first // block + jnp.arange(len(parts))
    (of_key, of_value), of_query = jax.lax.scan(one, zeros, (parts, gradients, numbers))
    of_key, of_value = of_key.astype(key.dtype), of_value.astype(value.dtype)
    return _whole(of_query, query.shape[1]), of_key, of_value, None, None, None


_attend.defvjp(_forward, _backward)


def _parts(x: jax.Array, block: int) -> jax.Array:
    """Returns (count, B, block, H, K) blocks of (B, S, H, K), the last one filled up with 0."""
    batch, length, heads, size = x.shape
    count = -(-length // block)
    padded = jnp.pad(x, [(0, 0), (0, count * block - length), (0, 0), (0, 0)])
    return padded.reshape(batch, count, block, heads, size).swapaxes(0, 1)


def _whole(parts: jax.Array, length: int) -> jax.Array:
    """Returns (B, S, H, K) of what `_parts` made, or of what came of it."""
    count, batch, block, heads, size = parts.shape
    return parts.swapaxes(0, 1).reshape(batch, count * block, heads, size)[:, :length]
