"""The feed-forward's nonlinearities."""

from __future__ import annotations

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp


@jax.custom_jvp
def gelu(x: jax.Array) -> jax.Array:
    """Returns x Phi(x) of each element, exact to float32's rounding of erf (Hendrycks and Gimpel 2016)."""
    wide = x.astype(jnp.float32)
    return (wide * (0.5 + 0.5 * jax.lax.erf(wide * math.sqrt(0.5)))).astype(x.dtype)


@gelu.defjvp
def _gelu_jvp(inputs: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = inputs, tangents
    wide = x.astype(jnp.float32)
    # Written with the other sign: were it gelu's own erf, the compiler would compute that once and keep it
    # for the backward pass, an array as large as x, which costs more than another erf.
    phi = 0.5 - 0.5 * jax.lax.erf(wide * -math.sqrt(0.5))
    slope = phi + wide * jnp.exp(-0.5 * wide * wide) * (1 / math.sqrt(2 * math.pi))
    return gelu(x), tangent * slope.astype(x.dtype)


# By the names of `model.activation`.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
    "relu": nn.relu,
}
