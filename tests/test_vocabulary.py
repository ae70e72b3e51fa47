"""Losses over parts of the vocabulary: the numbers of all logits at once, without holding them."""

import types

import devices_worker
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models

from bert_jax import config, step
from bert_jax.models.model import Model
from bert_jax.models.vocabulary import Unmade, best
from bert_jax.objectives.causal import CausalLM
from bert_jax.objectives.prefix import PrefixLM
from bert_jax.objectives.tokens import token_sums
from bert_jax.objectives.tta import TransformerTextAutoencoder

B, M, E, V = 2, 5, 8, 128


def given():
    draw = np.random.default_rng(0)
    states, table = draw.normal(size=(B, M, E)), draw.normal(size=(V, E))
    bias = np.where(np.arange(V) < 100, draw.normal(size=V), -1e9)
    made_of = (jnp.asarray(x, jnp.float32) for x in (states, table, bias))
    return *made_of, jnp.asarray([[1.0, 1, 0, 1, 1], [0, 0, 1, 1, 0]])


def logits_of(states, table, bias):
    return jnp.einsum("BME,VE->BMV", states, table) + bias[None, None]


@pytest.mark.parametrize("parts", [2, 128])
def test_losses_gradients_and_guesses_are_those_of_all_logits(parts):
    *made_of, weights = given()
    guesses = best(logits_of(*made_of))[0]
    labels = jnp.where(jnp.arange(M)[None] < 2, guesses, (guesses + 1) % 100)  # two a row are right

    def plain(*made_of):
        return token_sums(logits_of(*made_of), labels, weights)

    def in_parts(*made_of):
        return token_sums(Unmade(*made_of, parts), labels, weights)

    def both(sums):
        def loss(*made_of):
            found = sums(*made_of)
            return found["loss"], found["accuracy"]

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(*made_of)

    found, want = both(in_parts), both(plain)
    assert float(want[0][1]) == 2.0  # the others have no weight
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, want)
    assert not np.asarray(found[1][1])[100:].any()  # padded rows
    for a, b in zip(best(Unmade(*made_of, parts)), best(logits_of(*made_of)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_ties_and_numbers_that_are_none():
    table, bias = jnp.zeros((V, E)), jnp.zeros(V)
    states = jnp.ones((1, 2, E)).at[0, 1].set(jnp.nan)
    tied = Unmade(states, table, bias, 4)
    losses, hits = tied.losses(jnp.asarray([[7, 7]]))
    assert float(losses[0, 0]) == pytest.approx(np.log(V)) and np.isnan(float(losses[0, 1]))
    assert not hits.any()  # the label's logit is above no other
    assert int(tied.best()[0][0, 0]) == 0  # of equal ones the first
    large = Unmade(jnp.full((1, 1, E), 1e4), table.at[3].set(1.0), bias, 4)
    losses, hits = large.losses(jnp.asarray([[3]]))
    assert float(losses[0, 0]) == 0.0 and bool(hits[0, 0])


def setup_of(folder, name, parts, vocab=1000):
    """A set-up with the one objective, a batch for it, and its parameters."""
    kind = {"tta": {"kind": "tta"}, "mlm": {}}.get(name, {"mask": name})
    source = tiny_models.source(
        tiny_models.tokenizer(folder), **kind, vocab_size=vocab, layers=1, max_positions=32
    )
    values = config.default()
    tokenizer = types.SimpleNamespace(cls_id=2, sep_id=3, mask_id=4)
    if name == "mlm":
        objective = devices_worker.make_setup().objectives[0]
    else:
        made = {"tta": TransformerTextAutoencoder, "causal": CausalLM, "prefix": PrefixLM}[name]
        objective = made(values.objective[name], tokenizer, 32, np.ones(vocab))
        objective.weight = 1.0
    setup = devices_worker.make_setup(
        model=Model(source.spec), objectives=(objective,), **{"train.vocabulary_parts": parts}
    )
    return setup, source.params


def batch_of(setup, length=32):
    draw = np.random.default_rng(0)
    tokens = draw.integers(5, 17, (2, length)).astype(np.int32)
    segments = np.ones((2, length), np.int32)
    segments[1, length // 2 :] = 0
    batch = {"tokens": tokens, "segment_ids": segments}
    (objective,) = setup.objectives
    if objective.name == "mlm":
        places = np.tile(np.arange(6, dtype=np.int32), (2, 1))
        return {
            **batch, "mlm_positions": places, "mlm_labels": tokens[:, :6],
            "mlm_weights": np.ones((2, 6), np.float32),
        }  # fmt: skip
    generators = [np.random.default_rng(i) for i in range(2)]
    return {**batch, **objective.features(batch, generators)}


@pytest.mark.parametrize(
    "name", ["tta", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mlm", "causal", "prefix"))]
)
def test_every_objective_that_predicts_tokens_gives_the_same(tmp_path, name):
    def of(parts):
        setup, params = setup_of(tmp_path, name, parts)
        batch = batch_of(setup)
        counts = {name: setup.objectives[0].count(batch)}

        def gradients(params):
            return step._gradients(setup, params, ({}, None, None), batch, counts, jax.random.key(0))

        (gradient, sums), evaluated = (
            jax.jit(gradients)(params), step.make_eval_step(setup)(params, batch),
        )  # fmt: skip
        return gradient, sums, evaluated

    found, want = of(8), of(1)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, want)


def test_no_logits_are_held(tmp_path):
    """T-TA predicts all S tokens: half of the memory, and more, are logits over a large vocabulary."""
    vocab, length = 20_000, 32

    def temporaries(parts):
        setup, params = setup_of(tmp_path, "tta", parts, vocab)
        batch = batch_of(setup, length)
        counts = {"tta": jnp.ones(())}

        def gradients(params):
            return step._gradients(setup, params, ({}, None, None), batch, counts, jax.random.key(0))

        return jax.jit(gradients).lower(params).compile().memory_analysis().temp_size_in_bytes

    logits = 2 * length * vocab * 4
    assert temporaries(1) > logits
    assert temporaries(32) < temporaries(1) - 0.8 * logits
