"""TPU's kernel, computed by JAX here, against attention over all pairs at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import splash
from bert_jax.models.masks import Mask, attention_weights, dense

S = 256
ROWS = np.zeros((2, S), np.int32)
ROWS[0, :100], ROWS[0, 100], ROWS[0, 101:230] = 1, 2, 3  # one unit is a single token, the rest padding
ROWS[1] = 1


@pytest.mark.parametrize(
    "fields",
    [
        {"diagonal": True},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"causal": True}, marks=pytest.mark.slow),
        pytest.param({"window": 60}, marks=pytest.mark.slow),
        pytest.param({"window": 60, "diagonal": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_numbers_and_gradients_are_those_of_all_pairs(fields):
    mask = Mask(jnp.asarray(ROWS), **fields)
    draw = np.random.default_rng(0)
    query, key, value, weight = (jnp.asarray(draw.normal(size=(2, S, 2, 32)), jnp.float32) for _ in range(4))

    def at_once(query, key, value):
        return jnp.einsum("BHST,BTHK->BSHK", attention_weights(query, key, dense(mask)), value)

    def by_kernel(query, key, value):
        return splash.attend(query, key, value, mask, interpret=True)

    def both(attend):
        def total(*args):
            mixed = attend(*args)
            return jnp.sum(mixed * weight), mixed

        return jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))(query, key, value)

    (_, found), found_gradients = both(by_kernel)
    (_, want), want_gradients = both(at_once)
    np.testing.assert_allclose(found, want, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-5), found_gradients, want_gradients)
    assert np.abs(want).max() > 0.1
    assert not np.asarray(found)[0, 230:].any()
    assert np.asarray(found)[0, 100].any() != mask.diagonal
