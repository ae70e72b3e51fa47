"""Losses, hits and baselines against NumPy and literal values."""

import math
import types

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.objectives.classification import Classification
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.objectives.nsp import NextSentence
from bert_jax.objectives.sop import SentenceOrder
from bert_jax.objectives.tokens import Unigram, token_sums
from bert_jax.objectives.tta import TransformerTextAutoencoder

TOKENIZER = types.SimpleNamespace(
    vocab_size=6, special_ids=np.array([0, 1, 2, 3], np.int32), mask_id=3, cls_id=1, sep_id=2
)


def test_token_loss_is_the_mean_of_minus_log_p() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 4, 11)).astype(np.float32) * 4
    labels = rng.integers(0, 11, (3, 4)).astype(np.int32)
    labels[0, 0] = 0  # a label like any other
    weights = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], np.float32)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    losses = -np.log(np.take_along_axis(p, labels[..., None], -1))[..., 0]
    hits = p.argmax(-1) == labels
    sums = token_sums(jnp.array(logits), jnp.array(labels), jnp.array(weights))
    assert float(sums["loss"]) / 6 == pytest.approx(losses[weights == 1].mean(), rel=1e-6)
    assert float(sums["accuracy"]) == hits[weights == 1].sum()


def test_label_zero_counts() -> None:
    logits, labels = jnp.zeros((1, 2, 4)), jnp.array([[0, 3]])
    sums = token_sums(logits, labels, jnp.array([[1.0, 0.0]]))
    assert float(sums["loss"]) == pytest.approx(math.log(4))


def test_a_tie_is_no_right_guess() -> None:
    logits = jnp.array([[[2.0, 2.0, 0.0], [2.0, 1.9, 0.0], [0.0, 0.0, 0.0]]])
    sums = token_sums(logits, jnp.array([[0, 0, 1]]), jnp.ones((1, 3)))
    assert float(sums["accuracy"]) == 1.0
    nsp = NextSentence(config.default().objective.nsp)
    batch = {"pair_labels": jnp.array([0, 1]), "pair_weights": jnp.ones(2)}
    for logits in (jnp.zeros((2, 2)), jnp.zeros((2, 1))):
        assert float(nsp.sums(batch, {"nsp_logits": logits})["accuracy"]) == 0.0


def test_not_a_number_is_no_right_guess() -> None:
    sums = token_sums(jnp.full((1, 1, 3), jnp.nan), jnp.array([[0]]), jnp.ones((1, 1)))
    assert float(sums["accuracy"]) == 0.0 and np.isnan(float(sums["loss"]))


def test_large_logits_neither_overflow_nor_lose_the_loss() -> None:
    sums = token_sums(jnp.array([[[1e4, -1e4, -1e9]]]), jnp.array([[1]]), jnp.ones((1, 1)))
    assert float(sums["loss"]) == pytest.approx(2e4)


def test_unigram_baseline_literal() -> None:
    # Counts 0, 3, 1 get one each: shares 1/7, 4/7, 2/7.
    sums = Unigram(np.array([0, 3, 1])).sums(
        jnp.array([[0, 1, 1], [2, 0, 0]]), jnp.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    )
    expected = math.log(7) + 2 * math.log(7 / 4) + math.log(7 / 2)
    assert float(sums["unigram_cross_entropy"]) == pytest.approx(expected, rel=1e-6)
    assert float(sums["most_frequent_accuracy"]) == 2.0


def test_mlm_counts_sums_and_baseline() -> None:
    mlm = MaskedLM(config.default().objective.mlm, TOKENIZER, 8, np.array([0, 0, 0, 0, 5, 2]))
    batch = {
        "mlm_labels": jnp.array([[4, 5], [4, 0]]),
        "mlm_weights": jnp.array([[1.0, 1.0], [1.0, 0.0]]),
    }
    assert float(mlm.count(batch)) == 3.0
    logits = jnp.zeros((2, 2, 6)).at[0, 0, 4].set(1.0)
    sums = mlm.sums(batch, {"mlm_logits": logits})
    assert float(sums["loss"]) == pytest.approx(math.log(5 + math.e) - 1 + 2 * math.log(6), rel=1e-6)
    assert float(sums["accuracy"]) == 1.0
    baseline = mlm.baselines(batch)
    assert float(baseline["most_frequent_accuracy"]) == 2.0
    # Shares 6/13 and 3/13 after one is added to each of the six counts.
    expected = 2 * math.log(13 / 6) + math.log(13 / 3)
    assert float(baseline["unigram_cross_entropy"]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", [NextSentence, SentenceOrder])
@pytest.mark.parametrize("head", ["pooled", "single"])
def test_nsp_and_sop_equal_numpy(head: str, kind: type) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(5, 2 if head == "pooled" else 1)).astype(np.float32) * 3
    labels = np.array([0, 1, 1, 0, 1], np.int32)
    weights = np.array([1, 1, 1, 1, 0], np.float32)
    wide = logits.astype(np.float64)
    if head == "pooled":
        p = np.exp(wide)
        p_random = p[:, 1] / p.sum(-1)
    else:
        p_random = 1 / (1 + np.exp(-wide[:, 0]))
    losses = -np.log(np.where(labels == 1, p_random, 1 - p_random))
    hits = (p_random > 0.5) == (labels == 1)
    nsp = kind(config.default().objective.nsp)
    batch = {"pair_labels": jnp.array(labels), "pair_weights": jnp.array(weights)}
    sums = nsp.sums(batch, {"nsp_logits": jnp.array(logits)})
    assert float(nsp.count(batch)) == 4.0
    assert float(sums["loss"]) == pytest.approx((losses * weights).sum(), rel=1e-6)
    assert float(sums["accuracy"]) == (hits * weights).sum()
    baseline = {"nsp": "always_next_accuracy", "sop": "always_in_order_accuracy"}[nsp.name]
    assert {key: float(value) for key, value in nsp.baselines(batch).items()} == {baseline: 2.0}


def test_nsp_rows_of_padding_have_no_weight() -> None:
    nsp = NextSentence(config.default().objective.nsp)
    made = nsp.features({"segment_ids": np.array([[1, 1, 0], [0, 0, 0]])}, [])
    np.testing.assert_array_equal(made["pair_weights"], np.array([1, 0], np.float32))


def _tta(rate: float) -> TransformerTextAutoencoder:
    objective = config.default().objective.tta
    objective.rate = rate
    return TransformerTextAutoencoder(objective, TOKENIZER, 6, np.array([0, 0, 0, 0, 6, 2]))


ROWS = {
    "tokens": np.array([[1, 4, 4, 5, 4, 2], [1, 4, 2, 0, 0, 0], [0, 0, 0, 0, 0, 0]], np.int32),
    "segment_ids": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]], np.int32),
}


def test_tta_predicts_every_real_token_and_no_padding() -> None:
    made = _tta(1.0).features(ROWS, [])
    np.testing.assert_array_equal(made["tta_weights"], ROWS["segment_ids"].astype(np.float32))
    np.testing.assert_array_equal(made["tta_labels"], ROWS["tokens"])
    assert "tokens" not in made  # the text is not corrupted
    assert float(_tta(1.0).count({"tta_weights": jnp.array(made["tta_weights"])})) == 9.0


def test_tta_at_a_lower_rate_predicts_some() -> None:
    tta = _tta(0.5)
    generators = [np.random.default_rng(i) for i in range(3)]
    made = tta.features(ROWS, generators)
    for row in range(3):
        chosen = made["tta_positions"][row][made["tta_weights"][row] == 1]
        assert len(set(chosen)) == len(chosen)
        assert (ROWS["segment_ids"][row][chosen] == 1).all()
        labels = made["tta_labels"][row][made["tta_weights"][row] == 1]
        np.testing.assert_array_equal(labels, ROWS["tokens"][row][chosen])
    assert made["tta_weights"][2].sum() == 0


def test_classification_equals_numpy() -> None:
    logits = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 9.0]], np.float32)
    labels, weights = np.array([1, 2, 0], np.int32), np.array([1, 1, 0], np.float32)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -np.log(p[0, 1]) - np.log(p[1, 2])
    batch = {"labels": jnp.array(labels), "weights": jnp.array(weights)}
    sums = Classification().sums(batch, {"logits": jnp.array(logits)})
    assert float(sums["loss"]) == pytest.approx(expected, rel=1e-6)
    assert float(sums["accuracy"]) == 1.0
    assert float(Classification().count(batch)) == 2.0
