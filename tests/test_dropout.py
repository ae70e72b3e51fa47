"""Dropout: its share, its scale, and that elements are dropped each for itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.dropout import dropped


@pytest.mark.parametrize("size", [1, 7, 8])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_each_column_is_dropped_at_the_rate_and_alone(size: int, rate: float) -> None:
    rows = 100_000
    found = np.asarray(dropped(jnp.ones((rows, size)), rate, jax.random.key(0)))
    gone = found == 0
    assert abs(gone.mean(axis=0) - rate).max() < 5 * np.sqrt(rate * (1 - rate) / rows)
    np.testing.assert_allclose(found[~gone], 1 / (1 - rate), rtol=1e-4)
    shares = np.corrcoef(gone.T) if size > 1 else np.ones((1, 1))
    assert abs(shares - np.eye(size)).max() < 5 / np.sqrt(rows) + 1e-9  # two columns share each word drawn


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
