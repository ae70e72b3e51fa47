"""Rotary and sinusoidal positions against their definitions and a released model's numbers."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.masks import Mask, attention_weights, dense
from bert_jax.models.positions import rotary_table, rotate, sinusoidal

B, S, H, K = 2, 9, 2, 8


def _positions(size: int = S, batch: int = B) -> jnp.ndarray:
    return jnp.tile(jnp.arange(size, dtype=jnp.int32)[None], (batch, 1))


def _rotation(offset: float, layout: str) -> np.ndarray:
    """The (K, K) block-diagonal matrix of Su et al. 2021, equation 15, for a position."""
    matrix = np.zeros((K, K))
    for k in range(1, K // 2 + 1):
        theta = 10_000.0 ** (-2 * (k - 1) / K)
        a, b = (2 * k - 2, 2 * k - 1) if layout == "adjacent" else (k - 1, K // 2 + k - 1)
        cos, sin = np.cos(offset * theta), np.sin(offset * theta)
        matrix[a, a], matrix[a, b], matrix[b, a], matrix[b, b] = cos, -sin, sin, cos
    return matrix


@pytest.mark.parametrize("layout", ["adjacent", "half"])
def test_efficient_form_equals_the_dense_tensor(layout: str) -> None:
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, B, S, H, K)).astype(np.float32)
    # R[i, j] turns by j - i, so that q_i^T R[i, j] k_j = (R_i q_i)^T (R_j k_j).
    dense_rotation = np.array([[_rotation(j - i, layout) for j in range(S)] for i in range(S)])
    scores = np.einsum("bshk,stkl,bthl->bhst", query, dense_rotation, key) / np.sqrt(K)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhst,bthk->bshk", weights, value)

    table = rotary_table(_positions(), K, 10_000.0)
    visible = dense(Mask(jnp.ones((B, S), jnp.int32)))
    found = attention_weights(
        rotate(jnp.array(query), table, layout), rotate(jnp.array(key), table, layout), visible
    )
    np.testing.assert_allclose(found, weights, atol=2e-6)
    mixed = jnp.einsum("bhst,bthk->bshk", found, jnp.array(value))
    np.testing.assert_allclose(mixed, expected, atol=1e-5)


@pytest.mark.parametrize("layout", ["adjacent", "half"])
def test_scores_depend_on_the_distance_only(layout: str) -> None:
    rng = np.random.default_rng(1)
    query, key = jnp.array(rng.normal(size=(2, 1, 1, 1, K)), jnp.float32)

    def score(i: int, j: int) -> float:
        def turned(x: jnp.ndarray, position: int) -> jnp.ndarray:
            return rotate(x, rotary_table(jnp.array([[position]]), K, 10_000.0), layout)

        return float(jnp.sum(turned(query, i) * turned(key, j)))

    for i, j in ((0, 3), (5, 0), (7, 7)):
        for shift in (1, 40, 500):
            assert score(i + shift, j + shift) == pytest.approx(score(i, j), abs=5e-4)
    assert abs(score(0, 3) - score(3, 0)) > 1e-2  # the direction counts
    assert score(4, 4) == pytest.approx(float(jnp.sum(query * key)), abs=1e-5)


def test_layouts_differ_by_a_permutation_of_columns() -> None:
    x = np.random.default_rng(2).normal(size=(B, S, H, K)).astype(np.float32)
    columns = np.concatenate([np.arange(0, K, 2), np.arange(1, K, 2)])
    table = rotary_table(_positions(), K, 10_000.0)
    half = rotate(jnp.array(x[..., columns]), table, "half")
    adjacent = rotate(jnp.array(x), table, "adjacent")
    np.testing.assert_array_equal(half, np.asarray(adjacent)[..., columns])
    assert not np.allclose(rotate(jnp.array(x), table, "half"), adjacent)


def test_rotation_keeps_lengths_dtype_and_position_zero() -> None:
    x = jnp.array(np.random.default_rng(3).normal(size=(1, 5, H, K)), jnp.float32)
    table = rotary_table(jnp.array([[0, 1, 100, 511, 7]]), K, 10_000.0)
    turned = rotate(x, table, "adjacent")
    np.testing.assert_array_equal(turned[:, 0], x[:, 0])
    np.testing.assert_allclose(jnp.linalg.norm(turned, axis=-1), jnp.linalg.norm(x, axis=-1), rtol=1e-5)
    assert rotate(x.astype(jnp.bfloat16), table, "half").dtype == jnp.bfloat16


def test_theta_is_the_base_of_the_frequencies() -> None:
    cos, sin = rotary_table(jnp.array([[3]]), 4, 100.0)
    np.testing.assert_allclose(cos[0, 0], np.cos([3.0, 0.3]), atol=1e-6)
    np.testing.assert_allclose(sin[0, 0], np.sin([3.0, 0.3]), atol=1e-6)


@pytest.fixture(scope="module")
def golden(test_data: pathlib.Path) -> dict:
    return json.loads((test_data / "golden" / "vectors.json").read_text())["roformer_rotary__hf"]


def test_sinusoidal_is_roformers(golden: dict) -> None:
    small = sinusoidal(_positions(6, 1), 6)[0]
    np.testing.assert_allclose(small[:2], golden["sinusoidal_6x6_first2"], atol=golden["atol"])
    large = sinusoidal(_positions(512, 1), 512)[0]
    np.testing.assert_allclose(large[:3, :5], golden["sinusoidal_512x512_[:3,:5]"], atol=golden["atol"])


def test_rotation_is_roformers(golden: dict) -> None:
    query = (np.arange(2 * 12 * 16 * 64, dtype=np.float32).reshape(2, 12, 16, 64) / 100).swapaxes(1, 2)
    table = rotary_table(_positions(16), 64, 10_000.0)
    expected = np.array(golden["rotary"]["query_out[0,0,:6,:8]"])
    found = rotate(jnp.array(query), table, "adjacent")[0, :6, 0, :8]
    np.testing.assert_allclose(found, expected, atol=golden["atol"])
    found = rotate(jnp.array(-query), table, "adjacent")[0, :6, 0, :8]
    np.testing.assert_allclose(found, -expected, atol=golden["atol"])
