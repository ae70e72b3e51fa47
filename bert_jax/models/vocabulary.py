"""Logits over the vocabulary that are never held whole: some rows of the table at a time."""

from __future__ import annotations

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Unmade:
    """What (B, M, V) float32 logits would be made of: states @ table^T + bias.

    Attributes:
      states: (B, M, E).
      table: (V, E), of the same dtype.
      bias: (V,) float32.
      parts: a divisor of V: so many times V / parts columns are made, one after the other, and again in
        the backward pass.
    """

    states: jax.Array
    table: jax.Array
    bias: jax.Array
    parts: int = flax.struct.field(pytree_node=False)

    def losses(self, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns -log p(label), (B, M) float32, and whether the label's logit is above all others, bool.

        Args:
          labels: (B, M) int32.
        """
        return _losses(self.states, self.table, self.bias, labels, self.parts)

    def best(self) -> tuple[jax.Array, jax.Array]:
        """Returns the most probable tokens, (B, M) int32, the first of equals, and their probabilities."""

        def one(carry: tuple[jax.Array, ...], part: tuple[jax.Array, ...]) -> tuple[Any, None]:
            total, most, best = carry
            logits = _logits(self.states, *part[:2])
            found = (jnp.argmax(logits, axis=-1) * self.parts + part[2]).astype(jnp.int32)
            value = jnp.max(logits, axis=-1)
            is_better = (value > most) | ((value == most) & (found < best))
            total = jnp.logaddexp(total, jax.nn.logsumexp(logits, axis=-1))
            return (total, jnp.maximum(most, value), jnp.where(is_better, found, best)), None

        none = jnp.full(self.states.shape[:2], -jnp.inf)
        start = (none, none, jnp.zeros(none.shape, jnp.int32))
        (total, most, best), _ = jax.lax.scan(one, start, _split(self.table, self.bias, self.parts))
        return best, jnp.exp(most - total)


def best(logits: jax.Array | Unmade) -> tuple[jax.Array, jax.Array]:
    """Returns the most probable tokens, (B, M) int32, the first of equals, and their probabilities."""
    if isinstance(logits, Unmade):
        return logits.best()
    share = jnp.exp(jnp.max(logits, axis=-1) - jax.nn.logsumexp(logits, axis=-1))
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), share


def _split(table: jax.Array, bias: jax.Array, parts: int) -> tuple[jax.Array, ...]:
    """Returns (parts, V / parts, E) of the table, the bias alike, and the parts' numbers.

    Part i has rows i, parts + i, 2 parts + i ..: a mesh axis that shares the table so shares each part.
    """
    rows = len(table) // parts
    of_table = table.reshape(rows, parts, -1).swapaxes(0, 1)
    return of_table, bias.reshape(rows, parts).T, jnp.arange(parts)


def _logits(states: jax.Array, rows: jax.Array, bias: jax.Array) -> jax.Array:
    logits = jnp.einsum("BME,VE->BMV", states, rows, preferred_element_type=jnp.float32)
    return logits + bias[None, None, :]


def _is_label(labels: jax.Array, number: jax.Array, parts: int, rows: int) -> jax.Array:
    """Returns (B, M, V / parts) bool: the label's column, where it is in part `number`."""
    inside = jnp.where(labels % parts == number, labels // parts, -1)
    return jnp.arange(rows)[None, None, :] == inside[..., None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _losses(
    states: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array, parts: int
) -> tuple[jax.Array, jax.Array]:
    return _forward(states, table, bias, labels, parts)[0]


def _forward(
    states: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array, parts: int
) -> tuple[tuple[jax.Array, jax.Array], Any]:
    def one(carry: tuple[jax.Array, ...], part: tuple[jax.Array, ...]) -> tuple[Any, None]:
        total, right, others = carry
        logits = _logits(states, *part[:2])
        is_label = _is_label(labels, part[2], parts, logits.shape[-1])
        total = jnp.logaddexp(total, jax.nn.logsumexp(logits, axis=-1))
        right += jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
        most = jnp.max(jnp.where(is_label, -jnp.inf, logits), axis=-1)
        return (total, right, jnp.maximum(others, most)), None

    none = jnp.full(labels.shape, -jnp.inf)
    start = (none, jnp.zeros(labels.shape), none)
    (total, right, others), _ = jax.lax.scan(one, start, _split(table, bias, parts))
    return (total - right, right > others), (states, table, bias, labels, total)


def _backward(parts: int, kept: Any, gradients: tuple[jax.Array, Any]) -> tuple[Any, ...]:
    states, table, bias, labels, total = kept
    of_losses = gradients[0][..., None]  # whether a guess is right has none

    def one(of_states: jax.Array, part: tuple[jax.Array, ...]) -> tuple[jax.Array, Any]:
        logits, pull = jax.vjp(_logits, states, *part[:2])
        is_label = _is_label(labels, part[2], parts, logits.shape[-1])
        more, *of_part = pull((jnp.exp(logits - total[..., None]) - is_label) * of_losses)
        return of_states + more, tuple(of_part)

    # Parts are added up in float32, whatever they are.
    zeros = jnp.zeros(states.shape, jnp.float32)
    of_states, (of_table, of_bias) = jax.lax.scan(one, zeros, _split(table, bias, parts))
    of_table = of_table.swapaxes(0, 1).reshape(table.shape)
    return of_states.astype(states.dtype), of_table, of_bias.T.reshape(bias.shape), None


_losses.defvjp(_forward, _backward)
