"""Dropout from 16 random bits an element."""

import flax.linen as nn
import jax
import jax.numpy as jnp

# Threefry-2x32: rotations of its rounds, four by four, and the constant of its third key word.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def dropped(x: jax.Array, rate: float, key: jax.Array) -> jax.Array:
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    Integers are compared as they are drawn, without floats between. The rate is met to within 2^-17.
    """
    threshold = round(rate * 2**16)
    if threshold == 2**16:
        return jnp.zeros_like(x)
    # Two words are drawn for four elements, a quarter of a row apart: the draws are most of dropout's cost.
    size = x.shape[-1]
    first, second = _words(key, (*x.shape[:-1], -(-size // 4)))
    halves = (first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16)
    kept = jnp.concatenate([half >= threshold for half in halves], axis=-1)[..., :size]
    return jnp.where(kept, x / (1.0 - threshold / 2**16), jnp.zeros_like(x))


def _words(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns two arrays of random uint32 words.

    With keys of Threefry they are its blocks. `jax.random.bits` makes one word of a block's two, and on a CPU
    loops over the rounds, each through memory: four times the time.
    """
    if jax.random.key_impl(key) != "threefry2x32":
        words = jax.random.bits(key, (2, *shape), jnp.uint32)
        return words[0], words[1]
    place, stride = jnp.zeros(shape, jnp.uint32), 1
    for axis in reversed(range(len(shape))):  # of sums, so that devices number what they hold
        place += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride)
        stride *= shape[axis]
    return threefry(jax.random.key_data(key), place)


@jax.jit  # so that each shape is traced once, and not in every layer
def threefry(key: jax.Array, counter: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the two words of Threefry-2x32's blocks, with 20 rounds (Salmon et al. 2011, section 4.2).

    Args:
      key: (2,) uint32.
      counter: any shape, uint32, the first word of what is enciphered; the second is 0.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    first, second = counter + keys[0], jnp.broadcast_to(keys[1], counter.shape)
    for group in range(1, 6):
        for rotation in _ROTATIONS[(group - 1) % 2]:
            first += second
            second = (second << rotation | second >> (32 - rotation)) ^ first
        first += keys[group % 3]
        second += keys[(group + 1) % 3] + jnp.uint32(group)
    return first, second


class Dropout(nn.Module):
    """`dropped`, in training, by the random stream "dropout"."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if not train or self.rate == 0.0:
            return x
        return dropped(x, self.rate, self.make_rng("dropout"))
