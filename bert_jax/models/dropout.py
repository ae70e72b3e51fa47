"""Dropout from 16 random bits an element."""

import flax.linen as nn
import jax
import jax.numpy as jnp


def dropped(x: jax.Array, rate: float, key: jax.Array) -> jax.Array:
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    Integers are compared as they are drawn, without floats between. The rate is met to within 2^-17.
    """
    threshold = round(rate * 2**16)
    if threshold == 2**16:
        return jnp.zeros_like(x)
    # A word is drawn for two elements, half a row apart: the draws are most of dropout's cost.
    size = x.shape[-1]
    words = jax.random.bits(key, (*x.shape[:-1], -(-size // 2)), jnp.uint32)
    kept = jnp.concatenate([(words & 0xFFFF) >= threshold, (words >> 16) >= threshold], axis=-1)[..., :size]
    return jnp.where(kept, x / (1.0 - threshold / 2**16), jnp.zeros_like(x))


class Dropout(nn.Module):
    """`dropped`, in training, by the random stream "dropout"."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if not train or self.rate == 0.0:
            return x
        return dropped(x, self.rate, self.make_rng("dropout"))
