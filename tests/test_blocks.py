"""Attention in blocks: the numbers of all pairs at once, in memory that grows with the length."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models
from test_attention import MASKS

from bert_jax.models import blocks
from bert_jax.models.masks import Mask, attention_weights, dense
from bert_jax.models.model import Model


def mask_of(name):
    segments, extra, _ = MASKS[name]
    extra = dict(extra)
    if "prefix" in extra:
        extra["prefix"] = jnp.asarray([extra["prefix"]], jnp.int32)
    return Mask(jnp.asarray([segments], jnp.int32), **extra)


@pytest.mark.parametrize("name", MASKS)
def test_a_blocks_rows_are_those_of_the_whole_mask(name):
    mask = mask_of(name)
    whole = np.asarray(dense(mask))
    size = whole.shape[-1]
    for block in (1, 2, size):
        for start in range(0, size, block):
            some = np.asarray(blocks.Rows(mask).of(jnp.asarray(start), block))
            inside = whole[:, :, start : start + block]
            np.testing.assert_array_equal(some[:, :, : inside.shape[2]], inside)
            assert not some[:, :, inside.shape[2] :].any()  # behind the row


def test_a_reach_is_half_a_window():
    segments = jnp.ones((1, 9), jnp.int32)
    rows = blocks.Rows(Mask(segments), jnp.asarray(2, jnp.int32))
    np.testing.assert_array_equal(rows.of(jnp.asarray(0), 9), dense(Mask(segments, window=4)))


def at_once(query, key, value, mask):
    weights = attention_weights(query, key, dense(mask))
    return jnp.einsum("BHST,BTHK->BSHK", weights, value)


@pytest.mark.parametrize("block", [1, 4, 5, 100])
@pytest.mark.parametrize("name", ["diagonal", "packed causal"])
def test_forward_and_backward_are_those_of_all_pairs(name, block):
    mask = mask_of(name)
    keys = jax.random.split(jax.random.key(0), 4)
    query, key, value, weight = (jax.random.normal(k, (1, mask.segment_ids.shape[1], 2, 4)) for k in keys)

    def total(attend):
        return lambda *args: jnp.sum(attend(*args) * weight)

    ours = total(lambda q, k, v: blocks.attend(q, k, v, blocks.Rows(mask), None, block))
    want = jax.value_and_grad(total(lambda q, k, v: at_once(q, k, v, mask)), (0, 1, 2))(query, key, value)
    found = jax.value_and_grad(ours, (0, 1, 2))(query, key, value)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), found, want)
    assert float(jnp.abs(want[1][0]).max()) > 0.01


def test_dropout_meets_its_rate_and_is_the_same_in_the_backward_pass():
    size, rate = 64, 0.25
    segments = jnp.ones((4, size), jnp.int32)
    query = jnp.zeros((4, size, 2, 8))  # every weight is 1 / S
    value = jnp.broadcast_to(jnp.eye(size)[None, :, None, :], (4, size, 2, size))

    def attend(value):
        return blocks.attend(query, query, value, blocks.Rows(Mask(segments)), jax.random.key(1), 16, rate)

    weights = np.asarray(attend(value))  # values are unit vectors: what comes out are the weights
    kept = weights > 0
    np.testing.assert_allclose(weights[kept], 1 / size / (1 - rate), rtol=1e-4)
    assert abs(kept.mean() - (1 - rate)) < 4 * np.sqrt(rate * (1 - rate) / kept.size)
    assert len({kept[b, s, h].tobytes() for b in range(4) for s in range(size) for h in range(2)}) == 512
    # The sum's gradient by a value is the sum of the weights that reach it.
    gradient = np.asarray(jax.grad(lambda v: attend(v)[..., :1].sum())(value))[..., 0]
    np.testing.assert_allclose(gradient, weights.sum(1).transpose(0, 2, 1), rtol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        {}, {"kind": "tta", "position": "rotary"}, {"mask": "causal"}, {"mask": "prefix"},
        {"local_window": 4, "global_every": 2, "layers": 3, "position": "rotary"},
        {"local_window": 4, "global_every": 2, "layers": 3, "scan": False, "norm": "pre"},
        {"share_layers": True}, {"remat": "full"},
    ],
)  # fmt: skip
def test_models_of_every_kind_give_the_same(tmp_path, model):
    source = tiny_models.source(tiny_models.tokenizer(tmp_path), **model)
    tokens = jax.random.randint(jax.random.key(0), (2, 19), 5, 17)
    segments = jnp.asarray([[1] * 8 + [2] * 9 + [0] * 2, [1] * 19], jnp.int32)
    batch = {
        "tokens": tokens,
        "segment_ids": segments,
        "prefix": (jnp.arange(19) % 8 < 3)[None] + 0 * segments,
    }

    def of(kernel):
        spec = dataclasses.replace(source.spec, attention_kernel=kernel, attention_block=5)

        def loss(params):
            hidden = Model(spec).apply({"params": params}, batch, method="hidden")
            return jnp.sum(jnp.sin(hidden) * (segments > 0)[..., None]), hidden

        (_, hidden), gradient = jax.value_and_grad(loss, has_aux=True)(source.params)
        return hidden * (segments > 0)[..., None], gradient

    found, want = of("blocks"), of("dense")
    np.testing.assert_allclose(found[0], want[0], atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-4, rtol=1e-3), found[1], want[1])


def test_no_token_of_tta_reaches_its_own_state(tmp_path):
    source = tiny_models.source(
        tiny_models.tokenizer(tmp_path), kind="tta", attention_kernel="blocks", attention_block=4
    )
    model, ids = Model(source.spec), jnp.asarray([[2, 5, 6, 7, 8, 9, 3]], jnp.int32)

    def states(ids):
        return model.apply({"params": source.params}, {"tokens": ids}, method="hidden")[0]

    before = states(ids)
    for place in range(ids.shape[1]):
        moved = np.abs(states(ids.at[0, place].set(11)) - before).max(-1)
        assert moved[place] == 0 and (np.delete(moved, place) > 0).all()


@pytest.mark.parametrize(("kernel", "low", "high"), [("dense", 3.0, 5.0), ("blocks", 1.5, 2.6)])
def test_memory_grows_with_the_length_alone(tmp_path, kernel, low, high):
    source = tiny_models.source(
        tiny_models.tokenizer(tmp_path), max_positions=2048, attention_kernel=kernel, attention_block=32
    )

    def temporaries(length):
        batch = {"tokens": jnp.ones((1, length), jnp.int32)}

        def loss(params):
            return jnp.sum(Model(source.spec).apply({"params": params}, batch, method="hidden") ** 2)

        compiled = jax.jit(jax.grad(loss)).lower(source.params).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert low < temporaries(2048) / temporaries(1024) < high
