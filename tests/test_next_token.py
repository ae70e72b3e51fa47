"""Left-to-right and prefix objectives: what is predicted where, and that no position sees its label."""

import math
import types

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bert_jax import config
from bert_jax.data.ordering import generators
from bert_jax.objectives import from_config
from bert_jax.objectives.causal import CausalLM
from bert_jax.objectives.next_token import NextToken, has_next
from bert_jax.objectives.prefix import PrefixLM

SURE = 1e-5
TOKENIZER = types.SimpleNamespace(
    vocab_size=6, special_ids=np.array([0, 1, 2, 3], np.int32), mask_id=3, cls_id=1, sep_id=2
)
KINDS = {"causal": CausalLM, "prefix": PrefixLM}

# Two packed units and padding; one unit; a unit of one token beside one of two; padding alone.
ROWS = {
    "tokens": np.array(
        [[1, 4, 5, 2, 1, 5, 2, 0], [1, 4, 4, 5, 5, 4, 4, 2], [1, 1, 2, 0, 0, 0, 0, 0], [0] * 8], np.int32
    ),
    "segment_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0], [1] * 8, [1, 2, 2, 0, 0, 0, 0, 0], [0] * 8], np.int32),
}


def make(name: str, rate: float = 1.0, seq_len: int = 8) -> NextToken:
    group = config.default().objective[name]
    group.rate, group.weight = rate, 1.0
    return KINDS[name](group, TOKENIZER, seq_len, np.array([0, 0, 0, 0, 6, 2]))


def draw(count: int, epoch: int = 0) -> list[np.random.Generator]:
    return generators(5, "x", np.full(count, epoch), np.arange(count))


def random_rows(count: int, seq_len: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns rows of packed units of 1 to 12 tokens, and padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 13, (count, seq_len))
    unit = (np.arange(seq_len)[None, :, None] >= np.cumsum(lengths, axis=1)[:, None, :]).sum(axis=2) + 1
    segments = np.where(np.arange(seq_len) < rng.integers(0, seq_len + 1, (count, 1)), unit, 0)
    tokens = np.where(segments > 0, rng.integers(4, 6, segments.shape), 0)
    return {"tokens": tokens.astype(np.int32), "segment_ids": segments.astype(np.int32)}


def predicted(made: dict[str, np.ndarray], name: str, seq_len: int) -> np.ndarray:
    """Returns (B, S) bool: positions whose next token is predicted; each at most once."""
    weights, positions = made[f"{name}_weights"], made[f"{name}_positions"]
    counts = np.zeros((len(weights), seq_len), int)
    np.add.at(counts, (np.nonzero(weights)[0], positions[weights > 0]), 1)
    assert counts.max() <= 1
    return counts > 0


def test_has_next_literal() -> None:
    np.testing.assert_array_equal(
        has_next(ROWS["segment_ids"]),
        [[1, 1, 1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0], [0, 1, 0, 0, 0, 0, 0, 0], [0] * 8],
    )


def test_causal_rows_literal() -> None:
    lm = make("causal")
    made = lm.features(ROWS, [])
    assert lm.capacity == 7 and "tokens" not in made and "prefix" not in made
    np.testing.assert_array_equal(made["causal_positions"], [[0, 1, 2, 3, 4, 5, 6]] * 4)
    weights = [[1, 1, 1, 0, 1, 1, 0], [1] * 7, [0, 1, 0, 0, 0, 0, 0], [0] * 7]
    np.testing.assert_array_equal(made["causal_weights"], weights)
    labels = [[4, 5, 2, 0, 5, 2, 0], [4, 4, 5, 5, 4, 4, 2], [0, 2, 0, 0, 0, 0, 0], [0] * 7]
    np.testing.assert_array_equal(made["causal_labels"], labels)
    types = [made[f"causal_{part}"].dtype for part in ("positions", "labels", "weights")]
    assert types == [np.int32, np.int32, np.float32]
    assert float(lm.count({k: jnp.array(v) for k, v in made.items()})) == 13.0


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("name", KINDS)
def test_labels_are_the_next_tokens_of_the_same_unit(name: str, rate: float) -> None:
    lm, batch = make(name, rate, 64), random_rows(400, 64)
    made = lm.features(batch, draw(400))
    assert made[f"{name}_positions"].shape == (400, lm.capacity)
    row, slot = np.nonzero(made[f"{name}_weights"])
    at = made[f"{name}_positions"][row, slot]
    np.testing.assert_array_equal(made[f"{name}_labels"][row, slot], batch["tokens"][row, at + 1])
    segments = batch["segment_ids"]
    assert (segments[row, at] > 0).all()
    np.testing.assert_array_equal(segments[row, at], segments[row, at + 1])
    found = predicted(made, name, 64)
    may = has_next(segments)
    if name == "prefix":
        may[:, :-1] &= made["prefix"][:, 1:] == 0
    assert not (found & ~may).any()
    if rate == 1:
        np.testing.assert_array_equal(found, may)
    else:
        assert scipy.stats.binomtest(int(found.sum()), int(may.sum()), rate).pvalue > SURE
        shares = found.sum(axis=0)[:63] / np.maximum(may.sum(axis=0)[:63], 1)
        assert shares[:40].std() < 0.06  # no place is favoured


def visible(segment_ids: np.ndarray, prefix: np.ndarray) -> np.ndarray:
    """Returns (B, S, S) bool: query i sees key j under the mask "prefix"."""
    same = (segment_ids[:, :, None] == segment_ids[:, None, :]) & (segment_ids[:, :, None] > 0)
    place = np.arange(segment_ids.shape[1])
    return same & ((prefix[:, None, :] == 1) | (place[None, :] <= place[:, None])[None])


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_prefix_is_the_beginning_of_each_unit_and_no_label_is_seen(rate: float) -> None:
    lm, batch = make("prefix", rate, 64), random_rows(400, 64)
    segments, tokens = batch["segment_ids"], batch["tokens"]
    made = lm.features(batch, draw(400))
    prefix = made["prefix"]
    assert prefix.dtype == np.int32 and prefix.shape == tokens.shape
    assert not prefix[segments == 0].any()
    for row in range(400):
        for unit in range(1, segments[row].max() + 1):
            inside = prefix[row, segments[row] == unit]
            source = inside.sum()
            assert (inside[:source] == 1).all() and 1 <= source <= max(1, len(inside) - 1)
    # A position sees all of its source, itself, and not the token that it predicts.
    row, slot = np.nonzero(made["prefix_weights"])
    at = made["prefix_positions"][row, slot]
    sees = visible(segments, prefix)[row, at]
    assert not sees[np.arange(len(at)), at + 1].any()
    assert sees[np.arange(len(at)), at].all()
    same_unit = segments[row] == segments[row, at][:, None]
    assert sees[same_unit & (prefix[row] == 1)].all()
    # Beyond the source, what comes before it and no more.
    np.testing.assert_array_equal(sees, same_unit & ((prefix[row] == 1) | (np.arange(64) <= at[:, None])))
    first = prefix[row, at] == 1  # the last source token predicts the first target token
    assert not (sees[first] & (prefix[row[first]] == 0)).any()
    if rate == 1:
        units = sum(((segments == u).sum(axis=1) >= 2).sum() for u in range(1, segments.max() + 1))
        assert first.sum() == units


def test_cuts_are_uniform() -> None:
    batch = {
        "tokens": np.full((20_000, 12), 4, np.int32),
        "segment_ids": np.repeat([[1] * 8 + [2] * 4], 20_000, 0),
    }
    prefix = make("prefix", 1.0, 12).features(batch, draw(20_000))["prefix"]
    first, second = prefix[:, :8].sum(axis=1), prefix[:, 8:].sum(axis=1)
    table = np.zeros((9, 5))
    np.add.at(table, (first, second), 1)
    assert table[1:8, 1:4].sum() == 20_000
    assert scipy.stats.chisquare(table[1:8, 1:4].ravel()).pvalue > SURE  # and independent of each other


def test_short_units_literal() -> None:
    made = make("prefix").features(ROWS, draw(4))
    np.testing.assert_array_equal(made["prefix"][2], [1, 1, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(made["prefix_weights"][2], [0, 1, 0, 0, 0, 0, 0])
    assert made["prefix_labels"][2, 1] == TOKENIZER.sep_id
    assert not made["prefix"][3].any() and not made["prefix_weights"][3].any()


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("name", KINDS)
def test_a_row_does_not_depend_on_the_others(name: str, rate: float) -> None:
    lm, batch, part = make(name, rate, 40), random_rows(30, 40), [22, 3, 17]
    whole = lm.features(batch, draw(30))
    some = lm.features({k: v[part] for k, v in batch.items()}, [draw(30)[i] for i in part])
    for key, value in whole.items():
        np.testing.assert_array_equal(some[key], value[part])
    if name == "prefix" or rate < 1:
        again = lm.features(batch, draw(30, epoch=1))
        assert any((again[key] != value).any() for key, value in whole.items())


@pytest.mark.parametrize("name", KINDS)
def test_sums_and_baselines(name: str) -> None:
    lm = make(name)
    batch = {
        f"{name}_labels": jnp.array([[4, 2], [5, 0]]),
        f"{name}_weights": jnp.array([[1.0, 1.0], [1.0, 0.0]]),
    }
    logits = jnp.zeros((2, 2, 6)).at[0, 1, 2].set(1.0)
    sums = lm.sums(batch, {f"{name}_logits": logits})
    assert float(sums["loss"]) == pytest.approx(math.log(5 + math.e) - 1 + 2 * math.log(6), rel=1e-6)
    assert float(sums["accuracy"]) == 1.0
    assert float(lm.count(batch)) == 3.0
    # 8 tokens in rows of 8: one [SEP], no [CLS]; one added to each: 1 1 2 1 7 3 of 15.
    found = lm.baselines(batch)
    expected = math.log(15 / 7) + math.log(15 / 2) + math.log(15 / 3)
    assert float(found["unigram_cross_entropy"]) == pytest.approx(expected, rel=1e-6)
    assert float(found["most_frequent_accuracy"]) == 1.0


@pytest.mark.parametrize("name", [*KINDS, "sop", "nsp", "tta", "mlm"])
def test_objectives_are_made_where_they_have_a_weight(name: str) -> None:
    c = config.default()
    c.objective.mlm.weight = 0.0
    c.objective[name].weight = 2.0
    (made,) = from_config(c, TOKENIZER, np.ones(6, np.int64), 16)
    assert (made.name, made.weight) == (name, 2.0)
