"""Dropout: its share, its scale, and that elements are dropped each for itself."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.dropout import dropped, threefry


@pytest.mark.parametrize("size", [1, 7, 8])
@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("prng", ["threefry2x32", "rbg"])
def test_each_column_is_dropped_at_the_rate_and_alone(size: int, rate: float, prng: str) -> None:
    rows = 100_000
    found = np.asarray(dropped(jnp.ones((rows, size)), rate, jax.random.key(0, impl=prng)))
    gone = found == 0
    assert abs(gone.mean(axis=0) - rate).max() < 5 * np.sqrt(rate * (1 - rate) / rows)
    np.testing.assert_allclose(found[~gone], 1 / (1 - rate), rtol=1e-4)
    shares = np.corrcoef(gone.T) if size > 1 else np.ones((1, 1))
    assert abs(shares - np.eye(size)).max() < 5 / np.sqrt(rows) + 1e-9  # four columns share each block drawn


def test_the_ends_of_the_rate() -> None:
    x = jnp.arange(1.0, 9.0)
    np.testing.assert_array_equal(dropped(x, 0.0, jax.random.key(0)), x)
    np.testing.assert_array_equal(dropped(x, 1.0, jax.random.key(0)), jnp.zeros(8))


def test_the_gradient_is_that_of_what_was_kept() -> None:
    x = jnp.ones((4, 6))
    kept = dropped(x, 0.5, jax.random.key(1))
    grads = jax.grad(lambda x: jnp.sum(dropped(x, 0.5, jax.random.key(1)) * 3))(x)
    np.testing.assert_array_equal(grads, 3 * kept)
    assert 0 < int(jnp.sum(kept == 0)) < 24


def test_threefry_is_the_one_that_jax_has() -> None:
    key, counters = jax.random.key_data(jax.random.key(7)), jnp.arange(1000, dtype=jnp.uint32)
    both = jax.extend.random.threefry_2x32(key, jnp.concatenate([counters, jnp.zeros_like(counters)]))
    np.testing.assert_array_equal(jnp.concatenate(threefry(key, counters)), both)


def test_threefry_of_the_published_vectors() -> None:
    """The known answers of Random123's kat_vectors for threefry2x32 with 20 rounds."""
    zero = threefry(jnp.zeros(2, jnp.uint32), jnp.zeros((), jnp.uint32))
    assert [int(word) for word in zero] == [0x6B200159, 0x99BA4EFE]


def test_no_place_shares_its_draw_with_another() -> None:
    """A block's number is its place in the array, whatever the axes: rows and heads differ."""
    found = np.asarray(dropped(jnp.ones((8, 4, 16, 64)), 0.5, jax.random.key(2))) == 0
    rows = found.reshape(-1, 64)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert abs(np.corrcoef(rows) - np.eye(len(rows))).max() < 0.8
    assert abs(np.corrcoef(rows).mean()) < 0.01


def test_runs_that_train_together_drop_what_each_drops_alone() -> None:
    keys = jax.random.split(jax.random.key(5), 3)
    together = jax.vmap(lambda key: dropped(jnp.ones((6, 10)), 0.3, key))(keys)
    for key, found in zip(keys, together, strict=True):
        np.testing.assert_array_equal(found, dropped(jnp.ones((6, 10)), 0.3, key))
