"""Masks as literal matrices, and attention against a few lines of NumPy."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.models import spec as spec_lib
from bert_jax.models.attention import Attention
from bert_jax.models.masks import Mask, attention_weights, dense

MASKS = {
    "padding": ([1, 1, 1, 0], {}, """
        1110
        1110
        1110
        0000"""),
    "packed": ([1, 1, 2, 3, 3, 0], {}, """
        110000
        110000
        001000
        000110
        000110
        000000"""),
    "diagonal": ([1, 1, 1, 0], {"diagonal": True}, """
        0110
        1010
        1100
        0000"""),
    "packed diagonal": ([1, 1, 2, 3, 3, 0], {"diagonal": True}, """
        010000
        100000
        000000
        000010
        000100
        000000"""),
    "causal": ([1, 1, 1, 0], {"causal": True}, """
        1000
        1100
        1110
        0000"""),
    "packed causal": ([1, 1, 1, 2, 2, 0], {"causal": True}, """
        100000
        110000
        111000
        000100
        000110
        000000"""),
    "prefix": ([1, 1, 1, 1, 0], {"prefix": [1, 1, 0, 0, 0]}, """
        11000
        11000
        11100
        11110
        00000"""),
    "packed prefix": ([1, 1, 1, 2, 2, 2], {"prefix": [1, 0, 0, 1, 1, 0]}, """
        100000
        110000
        111000
        000110
        000110
        000111"""),
    "prefix of the whole text": ([1, 1, 1, 0], {"prefix": [1, 1, 1, 0]}, """
        1110
        1110
        1110
        0000"""),
    "window": ([1, 1, 1, 1, 1, 0], {"window": 2}, """
        110000
        111000
        011100
        001110
        000110
        000000"""),
    "packed window": ([1, 1, 1, 2, 2, 2], {"window": 2}, """
        110000
        111000
        011000
        000110
        000111
        000011"""),
    "window wider than the row": ([1, 1, 1], {"window": 8}, """
        111
        111
        111"""),
    "causal window": ([1, 1, 1, 1], {"causal": True, "window": 2}, """
        1000
        1100
        0110
        0011"""),
    "prefix window": ([1, 1, 1, 1, 1], {"prefix": [1, 1, 1, 0, 0], "window": 2}, """
        11000
        11100
        01100
        00110
        00011"""),
    "diagonal window": ([1, 1, 1, 1], {"diagonal": True, "window": 2}, """
        0100
        1010
        0101
        0010"""),
    "packed diagonal window": ([1, 1, 1, 2, 2], {"diagonal": True, "window": 2}, """
        01000
        10100
        01000
        00001
        00010"""),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_mask_matrix(name: str) -> None:
    segments, fields, drawn = MASKS[name]
    expected = [[int(c) for c in line.strip()] for line in drawn.split()]
    if "prefix" in fields:
        fields = {**fields, "prefix": jnp.array([fields["prefix"]])}
    visible = dense(Mask(jnp.array([segments]), **fields))
    np.testing.assert_array_equal(visible, np.array(expected, bool)[None, None])


def test_each_row_of_a_batch_has_its_own_mask() -> None:
    visible = dense(Mask(jnp.array([[1, 0], [1, 1]])))
    np.testing.assert_array_equal(visible[:, 0], [[[1, 0], [0, 0]], [[1, 1], [1, 1]]])


def _softmax(scores: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Over the visible keys only, by leaving the others out; zeros where there is none."""
    weights = np.zeros_like(scores)
    for index in np.ndindex(scores.shape[:-1]):
        seen = np.flatnonzero(visible[index])
        if len(seen):
            e = np.exp(scores[index][seen] - scores[index][seen].max())
            weights[index][seen] = e / e.sum()
    return weights


SEGMENTS = np.array([[1, 1, 1, 2, 2, 0, 0], [1, 2, 2, 3, 3, 3, 3]], np.int32)


@pytest.mark.parametrize("diagonal", [False, True])
def test_weights_equal_numpy(diagonal: bool) -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 2, 7, 3, 4)).astype(np.float32) * 3
    visible = dense(Mask(jnp.array(SEGMENTS), diagonal=diagonal))
    weights = attention_weights(jnp.array(query), jnp.array(key), visible)
    scores = np.einsum("bshk,bthk->bhst", query.astype(np.float64), key) / np.sqrt(4)
    expected = _softmax(scores, np.broadcast_to(visible, scores.shape))
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    # Exact, not small: what is hidden has no weight at all, and a row without a key is zeros.
    assert np.all(np.asarray(weights)[~np.broadcast_to(visible, weights.shape)] == 0)
    sums = np.asarray(weights).sum(-1)
    has_key = np.broadcast_to(np.asarray(visible).any(-1), sums.shape)
    np.testing.assert_allclose(sums, has_key.astype(np.float32), atol=1e-6)


def _attention(dtype: str = "float32", **values: object) -> Attention:
    model = config.default().model
    model.update(
        {"hidden_size": 12, "heads": 3, "layers": 1, "dtype": dtype, "attention_dropout": 0.0, **values}
    )
    return Attention(spec_lib.from_config(model, vocab_size=10, mask_id=3))


@pytest.mark.parametrize("two_streams", [False, True])
def test_attention_equals_numpy(two_streams: bool) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 7, 12)).astype(np.float32)
    memory = rng.normal(size=(2, 7, 12)).astype(np.float32) if two_streams else x
    attention = _attention()
    visible = dense(Mask(jnp.array(SEGMENTS)))
    shapes = jax.eval_shape(lambda: attention.init(jax.random.key(0), x, x, visible, None, False))["params"]
    params = jax.tree.map(lambda s: rng.normal(size=s.shape).astype(np.float32), nn.unbox(shapes))
    assert {k: v["kernel"].shape for k, v in params.items()} == {
        "query": (12, 3, 4), "key": (12, 3, 4), "value": (12, 3, 4), "out": (3, 4, 12),
    }  # fmt: skip
    found = attention.apply({"params": params}, jnp.array(x), jnp.array(memory), visible, None, False)

    wide = jax.tree.map(lambda p: p.astype(np.float64), params)

    def project(name: str, stream: np.ndarray) -> np.ndarray:
        flat = stream @ wide[name]["kernel"].reshape(12, 12) + wide[name]["bias"].reshape(12)
        return flat.reshape(2, 7, 3, 4).transpose(0, 2, 1, 3)

    scores = project("query", x) @ project("key", memory).swapaxes(2, 3) / 2.0
    mixed = _softmax(scores, np.broadcast_to(visible, scores.shape)) @ project("value", memory)
    expected = mixed.transpose(0, 2, 1, 3).reshape(2, 7, 12) @ wide["out"]["kernel"].reshape(12, 12)
    np.testing.assert_allclose(found, expected + wide["out"]["bias"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_visible_key_gives_zeros_and_no_nan(dtype: str) -> None:
    # Large scores too, which is where a mask by addition of a small negative lets hidden keys through.
    query = key = jnp.full((1, 3, 2, 4), 100.0, dtype)
    visible = dense(Mask(jnp.array([[1, 2, 2]]), diagonal=True))

    def total(query: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.sum(attention_weights(query, key, visible))

    weights = attention_weights(query, key, visible)
    np.testing.assert_array_equal(weights[0, 0], [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    gradients = jax.grad(total, argnums=(0, 1))(query, key)
    assert all(np.isfinite(np.asarray(g, np.float32)).all() for g in gradients)


def test_hidden_keys_of_any_size_change_nothing() -> None:
    rng = np.random.default_rng(2)
    query, key = jnp.array(rng.normal(size=(2, 1, 4, 2, 4)), jnp.float32)
    visible = dense(Mask(jnp.array([[1, 1, 1, 0]])))
    loud = key.at[:, 3].set(1e30)
    np.testing.assert_array_equal(
        attention_weights(query, key, visible), attention_weights(query, loud, visible)
    )


def test_bfloat16_keeps_parameters_and_weights_in_float32() -> None:
    attention = _attention("bfloat16")
    x = jnp.ones((2, 7, 12), jnp.bfloat16)
    visible = dense(Mask(jnp.array(SEGMENTS)))
    variables = attention.init(jax.random.key(0), x, x, visible, None, False)
    assert {p.dtype for p in jax.tree.leaves(variables["params"])} == {jnp.dtype("float32")}
    out, sown = attention.apply(
        {"params": variables["params"]}, x, x, visible, None, False, mutable=["attention"]
    )
    assert out.dtype == jnp.bfloat16
    assert sown["attention"]["weights"][0].dtype == jnp.float32
