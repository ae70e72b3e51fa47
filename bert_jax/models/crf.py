"""The linear-chain conditional random field (Lafferty et al. 2001), in log space and float32.

A path of tags y over the words of a row scores the sum of start[y_1], each word's emission and each
transition, and end[y_n]. Places that the mask leaves out, wherever they stand, are no part of the chain:
the words before and after them are neighbours.

Letters: B rows, W places, C tags.
"""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

# Added to the score of what must not follow: far below any learnt score, and no infinity, whose gradient
# would be no number.
_FORBIDDEN = -1e4


class Chain(NamedTuple):
    """The scores of a chain, float32.

    Attributes:
      transitions: (C, C), of tag j after tag i.
      start, end: (C,), of the first and last tag.
    """

    transitions: jax.Array
    start: jax.Array
    end: jax.Array


class Crf(nn.Module):
    """The parameters of a chain: 0 at first, so that it begins as independent softmaxes."""

    tags: int

    @nn.compact
    def __call__(self) -> Chain:
        zeros = nn.initializers.zeros

        def scores(name: str, *axes: str | None) -> jax.Array:
            init = nn.with_logical_partitioning(zeros, axes)
            return self.param(name, init, (self.tags,) * len(axes), jnp.float32)

        return Chain(
            scores("transitions", None, "labels"), scores("start", "labels"), scores("end", "labels")
        )


def constrained(chain: Chain) -> Chain:
    """Returns the chain without what IOB2 rules out, the tags being O, B-1, I-1, B-2, I-2 and so on.

    An I- follows the B- or I- of its own type, and nothing else. Most systems keep to this where they choose
    a path, and train against all paths; training without the others too is Wei et al. 2021's.
    """
    tags = len(chain.start)
    number = np.arange(tags)
    inside = (number > 0) & (number % 2 == 0)
    same = (number[:, None] > 0) & ((number[:, None] - 1) // 2 == (number[None, :] - 1) // 2)
    forbidden = inside[None, :] & ~same
    return Chain(
        chain.transitions + jnp.where(forbidden, _FORBIDDEN, 0.0),
        chain.start + jnp.where(inside, _FORBIDDEN, 0.0),
        chain.end,
    )


def log_partition(chain: Chain, emissions: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns (B,) float32: the log of the sum, over all paths, of exp(score); 0 of a row without words.

    Args:
      chain: the scores.
      emissions: (B, W, C) float32.
      mask: (B, W) bool, true at words.
    """

    def step(carry: tuple[jax.Array, jax.Array], at: tuple[jax.Array, jax.Array]) -> tuple[object, None]:
        alpha, begun = carry  # (B, C): log of the sum over the paths that end in each tag
        emission, is_word = at
        before = jax.nn.logsumexp(alpha[:, :, None] + chain.transitions[None], axis=1)
        new = jnp.where(begun[:, None], before, chain.start[None]) + emission
        return (jnp.where(is_word[:, None], new, alpha), begun | is_word), None

    alpha, begun = _scan(step, emissions, mask)[0]
    return jnp.where(begun, jax.nn.logsumexp(alpha + chain.end[None], axis=-1), 0.0)


def score(chain: Chain, emissions: jax.Array, tags: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns the (B,) float32 scores of (B, W) int tags; 0 of a row without words.

    Args:
      chain, emissions, mask: as in `log_partition`.
      tags: (B, W) int32; any number where the mask is false.
    """
    place = jnp.arange(mask.shape[1])[None]
    latest = jax.lax.cummax(jnp.where(mask, place, -1), axis=1)  # of each place: the last word up to it
    before = jnp.pad(latest[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    # Sums over one-hot rows, whose gradients are sums again: a gather's would be a scatter.
    one = jax.nn.one_hot(tags, len(chain.start), dtype=jnp.float32) * mask[..., None]  # (B, W, C)
    previous = jnp.take_along_axis(one, jnp.maximum(before, 0)[..., None], axis=1)
    follows = (mask & (before >= 0))[..., None]
    last = jnp.take_along_axis(one, jnp.maximum(latest[:, -1:], 0)[..., None], axis=1)[:, 0]
    steps = jnp.einsum("BWC,CD,BWD->B", previous * follows, chain.transitions, one)
    first = one * (mask & (before < 0))[..., None]
    return (
        jnp.einsum("BWC,BWC->B", one, emissions)
        + steps
        + jnp.einsum("BWC,C->B", first, chain.start)
        + jnp.einsum("BC,C->B", last, chain.end)
    )


def decode(chain: Chain, emissions: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns the best path, (B, W) int32, 0 where the mask is false (Viterbi 1967).

    Of equal paths it takes one with the lowest tags from the end on.

    Args:
      chain, emissions, mask: as in `log_partition`.
    """
    itself = jnp.arange(len(chain.start), dtype=jnp.int32)[None]

    def step(carry: tuple[jax.Array, jax.Array], at: tuple[jax.Array, jax.Array]) -> tuple[object, jax.Array]:
        best, begun = carry  # (B, C): the score of the best path that ends in each tag
        emission, is_word = at
        scores = best[:, :, None] + chain.transitions[None]
        new = jnp.where(begun[:, None], jnp.max(scores, axis=1), chain.start[None]) + emission
        came = jnp.argmax(scores, axis=1).astype(jnp.int32)
        came = jnp.where((begun & is_word)[:, None], came, itself)  # the tag before, at the word before
        return (jnp.where(is_word[:, None], new, best), begun | is_word), came

    (best, _), came = _scan(step, emissions, mask)
    last = jnp.argmax(best + chain.end[None], axis=-1).astype(jnp.int32)

    def back(tag: jax.Array, came: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.take_along_axis(came, tag[:, None], axis=1)[:, 0], tag

    _, tags = jax.lax.scan(back, last, came, reverse=True)
    return jnp.where(mask, tags.T, 0)


def _scan(step: object, emissions: jax.Array, mask: jax.Array) -> object:
    rows, _, tags = emissions.shape
    start = jnp.zeros((rows, tags), jnp.float32), jnp.zeros(rows, bool)
    return jax.lax.scan(step, start, (emissions.swapaxes(0, 1), mask.T))
