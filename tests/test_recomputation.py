"""What the backward pass makes again, counted in the program, and rows of 8,192 tokens."""

import types

import devices_worker
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models

from bert_jax import config, flops, step
from bert_jax.models.model import Model
from bert_jax.objectives.tta import TransformerTextAutoencoder

ROWS, LENGTH = 4, 64


def products(jaxpr, times=1.0):
    """The FLOPs of all matrix products in a program, loops as often as they run."""
    found = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ((contracted, _), _), left = equation.params["dimension_numbers"], equation.invars[0].aval
            size = np.prod([left.shape[axis] for axis in contracted])
            found += times * 2.0 * size * equation.outvars[0].aval.size
        inner = times * equation.params.get("length", 1)
        for value in equation.params.values():
            value = getattr(value, "jaxpr", value)
            if hasattr(value, "eqns"):
                found += products(value, inner)
    return found


@pytest.mark.parametrize(
    ("remat", "more"),
    [("none", {}), ("dots", {}), ("feed_forward", {}), ("feed_forward", {"gated": True}),
     ("feed_forward", {"norm": "pre"}), ("full", {})],
)  # fmt: skip
def test_products_are_made_again_as_counted(tmp_path, remat, more):
    source = tiny_models.source(
        tiny_models.tokenizer(tmp_path), hidden_size=32, feed_forward_size=64, max_positions=LENGTH,
        remat=remat, attention_kernel="dense", **more,
    )  # fmt: skip
    spec = source.spec

    def loss(params):
        batch = {"tokens": jnp.ones((ROWS, LENGTH), jnp.int32)}
        return jnp.sum(Model(spec).apply({"params": params}, batch, method="hidden") ** 2)

    found = products(jax.make_jaxpr(jax.grad(loss))(source.params).jaxpr)
    once = sum(flops.parts(spec, ROWS, LENGTH, 0).values())
    again = sum(flops.recomputed(spec, ROWS, LENGTH, 0).values())
    assert found == pytest.approx(3 * once + again, rel=1e-6)
    assert (again > 0) == (remat != "none")


@pytest.mark.slow
def test_rows_of_8192_tokens_train_in_memory_that_is_linear(tmp_path):
    """T-TA, whose every token has logits over the vocabulary, on one device."""
    vocab = 2048
    tokenizer = types.SimpleNamespace(cls_id=2, sep_id=3)

    def made(length):
        source = tiny_models.source(
            tiny_models.tokenizer(tmp_path), kind="tta", position="rotary", max_positions=length,
            vocab_size=vocab, hidden_size=8, layers=1,
        )  # fmt: skip
        goal = TransformerTextAutoencoder(config.default().objective.tta, tokenizer, length, np.ones(vocab))
        goal.weight = 1.0
        setup = devices_worker.make_setup(
            **{"train.vocabulary_parts": 32, "optimizer.learning_rate": 1e-3}, model=Model(source.spec),
            objectives=(goal,),
        )  # fmt: skip
        tokens = np.random.default_rng(0).integers(5, 17, (1, length)).astype(np.int32)
        batch = {"tokens": tokens, "segment_ids": np.ones_like(tokens)}
        batch |= goal.features(batch, [])
        state = step.create_state(setup, batch, 0)
        return step.make_train_step(setup), state, batch

    sizes = {}
    for length in (4096, 8192):
        update, state, batch = made(length)
        compiled = update.lower(state, batch).compile()
        sizes[length] = compiled.memory_analysis().temp_size_in_bytes
    assert sizes[8192] < 2.1 * sizes[4096]
    assert sizes[8192] < 8192**2 * 4 / 2  # half of one head's scores
    _, sums = compiled(state, batch, None)
    assert 0 < step.means(step.add(None, sums))["tta_loss"] < 20
