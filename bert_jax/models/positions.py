"""Positions that are computed, not learned: sinusoidal vectors and rotary rotations."""

import jax
import jax.numpy as jnp


def sinusoidal(positions: jax.Array, size: int) -> jax.Array:
    """Returns sinusoidal vectors: sines in the first half, cosines in the second.

    Vaswani et al. 2017, section 3.5, in the layout of RoFormer's released table.

    Args:
      positions: (B, S) int32.
      size: D, even.

    Returns:
      (B, S, D) float32.
    """
    angles = _angles(positions, size, 10_000.0)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def rotary_table(positions: jax.Array, head_size: int, theta: float) -> tuple[jax.Array, jax.Array]:
    """Returns cosines and sines of position * theta_k, with theta_k = theta^(-2(k-1)/K), k = 1..K/2.

    Su et al. 2021, equation 15.

    Args:
      positions: (B, S) int32.
      head_size: K, even.
      theta: base of the frequencies, 10000 in the paper.

    Returns:
      Two (B, S, K/2) float32 arrays.
    """
    angles = _angles(positions, head_size, theta)
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, table: tuple[jax.Array, jax.Array], layout: str) -> jax.Array:
    """Rotates each pair of features of x by its angle (Su et al. 2021, equation 34).

    Args:
      x: (B, S, H, K) queries or keys, after projection and head split, before the 1/sqrt(K) scale.
      table: cosines and sines of `rotary_table`, each (B, S, K/2).
      layout: "adjacent" pairs features (0,1), (2,3).. (paper, RoFormer); "half" pairs (0,K/2),
        (1,K/2+1).. (ModernBERT). The two differ by a permutation of the projection's columns.

    Returns:
      (B, S, H, K) in x's dtype; computed in float32.
    """
    cos, sin = (t[:, :, None, :] for t in table)
    wide = x.astype(jnp.float32)
    if layout == "adjacent":
        a, b = wide[..., 0::2], wide[..., 1::2]
        rotated = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)
    else:
        a, b = jnp.split(wide, 2, axis=-1)
        rotated = jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    return rotated.astype(x.dtype)


def _angles(positions: jax.Array, size: int, theta: float) -> jax.Array:
    frequencies = theta ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    return positions[..., None].astype(jnp.float32) * frequencies[None, None, :]
