"""The nonlinearities: values, slopes, and what their gradient keeps."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bert_jax.models.activations import ACTIVATIONS, gelu

X = np.linspace(-12, 12, 4801, dtype=np.float64)


def test_gelu_and_its_slope_are_those_of_float64() -> None:
    phi = special.ndtr(X)
    slope = phi + X * np.exp(-X * X / 2) / np.sqrt(2 * np.pi)
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_allclose(gelu(x), X * phi, rtol=2e-7, atol=7e-7)
    np.testing.assert_allclose(jax.vmap(jax.grad(gelu))(x), slope, rtol=2e-7, atol=3e-7)


def test_gelu_far_out() -> None:
    x = jnp.array([-3e38, -1e20, -40.0, -0.0, 0.0, 40.0, 1e20, 3e38])
    np.testing.assert_array_equal(gelu(x), np.float32([0, 0, 0, 0, 0, 40, 1e20, 3e38]))
    np.testing.assert_array_equal(jax.vmap(jax.grad(gelu))(x), [0, 0, 0, 0.5, 0.5, 1, 1, 1])


def test_gelu_of_bfloat16_is_rounded_once() -> None:
    x = jnp.asarray(X, jnp.bfloat16)
    wide = gelu(x.astype(jnp.float32)).astype(jnp.bfloat16)
    assert gelu(x).dtype == jnp.bfloat16
    np.testing.assert_array_equal(gelu(x), wide)


def test_gelu_forwards_and_backwards_give_the_same() -> None:
    x = jnp.asarray(X, jnp.float32)
    _, forwards = jax.jvp(gelu, (x,), (jnp.ones_like(x),))
    np.testing.assert_allclose(forwards, jax.grad(lambda y: gelu(y).sum())(x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["gelu_tanh", "relu"])
def test_the_others(name: str) -> None:
    x = jnp.asarray(X, jnp.float32)
    expected = nn.gelu(x, approximate=True) if name == "gelu_tanh" else np.maximum(X, 0)
    np.testing.assert_allclose(ACTIVATIONS[name](x), expected, rtol=1e-6, atol=1e-6)


def test_the_forward_pass_keeps_no_erf_for_the_backward_one() -> None:
    def loss(x: jax.Array) -> jax.Array:
        return gelu(x).sum()

    lowered = jax.jit(jax.value_and_grad(loss)).lower(jnp.ones((256, 256)))
    # One for each pass: where they are alike the compiler makes one of them, and keeps what it gave.
    assert len(re.findall(r"\berf\(", lowered.compile().as_text())) == 2
