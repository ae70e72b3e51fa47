"""The chain against all of its paths, one by one; words anywhere in the row; a BiLSTM under padding."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import crf
from bert_jax.models.heads import BiLstm
from bert_jax.models.spec import ModelSpec

# Rows of words (1) and places that are none (0): gaps at the start, within and at the end; one word; none.
MASK = np.array(
    [[1, 1, 1, 1, 1], [1, 0, 0, 1, 1], [0, 1, 0, 1, 0], [1, 1, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]],
    bool,
)


def drawn(tags: int, scale: float = 2.0) -> tuple[crf.Chain, np.ndarray]:
    """A chain and emissions of random scores, enough to make the most and least likely paths differ."""
    rng = np.random.default_rng(tags)
    shapes = ((tags, tags), (tags,), (tags,), (*MASK.shape, tags))
    *chain, emissions = (rng.normal(size=shape, scale=scale).astype(np.float32) for shape in shapes)
    return crf.Chain(*map(jnp.array, chain)), emissions


def paths(chain: crf.Chain, emissions: np.ndarray, words: np.ndarray) -> dict[tuple[int, ...], float]:
    """The score of every path over one row's words, in float64."""
    transitions, start, end = (np.asarray(x, np.float64) for x in chain)
    emissions = emissions[words].astype(np.float64)
    found = {}
    for path in itertools.product(range(len(start)), repeat=len(emissions)):
        steps = sum(transitions[a, b] for a, b in itertools.pairwise(path))
        found[path] = (
            start[path[0]] + end[path[-1]] + steps + sum(e[t] for e, t in zip(emissions, path, strict=True))
        )
    return found


@pytest.mark.parametrize("tags", [1, 2, 4])
def test_it_is_the_sum_and_the_best_of_all_paths(tags: int) -> None:
    chain, emissions = drawn(tags)
    partition = jax.jit(crf.log_partition)(chain, jnp.array(emissions), jnp.array(MASK))
    best = jax.jit(crf.decode)(chain, jnp.array(emissions), jnp.array(MASK))
    gold = np.random.default_rng(1).integers(0, tags, MASK.shape).astype(np.int32)
    scores = jax.jit(crf.score)(chain, jnp.array(emissions), jnp.array(gold), jnp.array(MASK))
    for row, words in enumerate(MASK):
        if not words.any():
            assert (float(partition[row]), float(scores[row]), np.array(best[row]).any()) == (0, 0, False)
            continue
        each = paths(chain, emissions[row], words)
        assert float(partition[row]) == pytest.approx(np.logaddexp.reduce([*each.values()]), rel=1e-5)
        assert float(scores[row]) == pytest.approx(each[tuple(gold[row][words].tolist())], rel=1e-5)
        assert tuple(np.array(best[row])[words].tolist()) == max(each, key=each.get)
        assert not np.array(best[row])[~words].any()


def test_its_gradient_is_each_tags_probability() -> None:
    chain, emissions = drawn(3)
    gradient = jax.grad(lambda e, c: crf.log_partition(c, e, jnp.array(MASK)).sum(), argnums=(0, 1))
    of_emissions, of_chain = jax.jit(gradient)(jnp.array(emissions), chain)
    expected = np.zeros_like(emissions)
    transitions, start, end = np.zeros((3, 3)), np.zeros(3), np.zeros(3)
    for row, words in enumerate(MASK):
        if words.any():
            each = paths(chain, emissions[row], words)
            whole = np.logaddexp.reduce([*each.values()])
            for path, score in each.items():
                share = np.exp(score - whole)
                expected[row, np.flatnonzero(words), path] += share
                start[path[0]] += share
                end[path[-1]] += share
                for pair in itertools.pairwise(path):
                    transitions[pair] += share
    np.testing.assert_allclose(of_emissions, expected, atol=2e-6)
    for found, wanted in zip(of_chain, (transitions, start, end), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_what_is_no_word_changes_nothing() -> None:
    chain, emissions = drawn(3)
    other = np.where(MASK[..., None], emissions, 1e6)
    some = jnp.array(np.zeros(MASK.shape, np.int32)), jnp.array(MASK)
    for function in (
        lambda e: crf.log_partition(chain, e, some[1]),
        lambda e: crf.score(chain, e, *some),
        lambda e: crf.decode(chain, e, some[1]),
    ):
        np.testing.assert_array_equal(function(jnp.array(emissions)), function(jnp.array(other)))


def test_a_chain_of_zeros_is_a_softmax_of_each_word() -> None:
    _, emissions = drawn(4)
    zeros = crf.Chain(jnp.zeros((4, 4)), jnp.zeros(4), jnp.zeros(4))
    found = crf.log_partition(zeros, jnp.array(emissions), jnp.array(MASK))
    each = jax.nn.logsumexp(jnp.array(emissions), axis=-1)
    np.testing.assert_allclose(found, jnp.sum(each * MASK, axis=1), rtol=1e-5, atol=1e-6)
    best = crf.decode(zeros, jnp.array(emissions), jnp.array(MASK))
    np.testing.assert_array_equal(best, np.where(MASK, emissions.argmax(-1), 0))


def test_constraints_leave_the_paths_of_iob2() -> None:
    chain, emissions = drawn(5, scale=4.0)  # O, B-1, I-1, B-2, I-2
    bound = crf.constrained(chain)
    forbidden = {(0, 2), (0, 4), (1, 4), (2, 4), (3, 2), (4, 2)}
    changed = np.argwhere(np.asarray(bound.transitions) != np.asarray(chain.transitions))
    assert {tuple(pair) for pair in changed.tolist()} == forbidden
    assert np.flatnonzero(np.asarray(bound.start) != np.asarray(chain.start)).tolist() == [2, 4]
    np.testing.assert_array_equal(bound.end, chain.end)
    best = np.asarray(crf.decode(bound, jnp.array(emissions), jnp.array(MASK)))
    free = np.asarray(crf.decode(chain, jnp.array(emissions), jnp.array(MASK)))
    broken = 0
    for row, words in enumerate(MASK[:5]):
        allowed = {
            path: score
            for path, score in paths(chain, emissions[row], words).items()
            if path[0] not in (2, 4) and not {*itertools.pairwise(path)} & forbidden
        }
        assert tuple(best[row][words].tolist()) == max(allowed, key=allowed.get)
        partition = crf.log_partition(bound, jnp.array(emissions), jnp.array(MASK))[row]
        assert float(partition) == pytest.approx(np.logaddexp.reduce([*allowed.values()]), rel=1e-5)
        broken += tuple(free[row][words].tolist()) not in allowed
    assert broken  # else the constraints had nothing to do


@pytest.fixture(scope="module")
def lstm() -> tuple[Any, Any, np.ndarray]:
    module = BiLstm(ModelSpec(vocab_size=8, mask_id=4, hidden_size=6, lstm_size=5))
    x = np.random.default_rng(0).normal(size=(3, 7, 6)).astype(np.float32)
    params = jax.jit(module.init)(jax.random.key(0), jnp.array(x), jnp.array([7, 7, 7]))
    return jax.jit(module.apply), params, x


def test_a_bilstm_does_not_read_padding(lstm: tuple[Any, Any, np.ndarray]) -> None:
    apply, params, x = lstm
    lengths = np.array([7, 3, 1])
    found = np.asarray(apply(params, jnp.array(x), jnp.array(lengths)))
    assert found.shape == (3, 7, 10) and found.dtype == np.float32
    garbage = np.where(np.arange(7)[None, :, None] < lengths[:, None, None], x, 1e3).astype(np.float32)
    again = np.asarray(apply(params, jnp.array(garbage), jnp.array(lengths)))
    for row, length in enumerate(lengths):
        alone = apply(params, jnp.array(x[row : row + 1, :length]), jnp.array([length]))
        np.testing.assert_allclose(found[row, :length], alone[0], atol=1e-6)
        np.testing.assert_array_equal(found[row, :length], again[row, :length])


def test_a_bilstm_reads_to_both_sides(lstm: tuple[Any, Any, np.ndarray]) -> None:
    apply, params, x = lstm
    whole = jnp.array([7, 7, 7])
    changed = x.copy()
    changed[0, 3] += 1.0
    difference = np.abs(
        np.asarray(apply(params, jnp.array(changed), whole) - apply(params, jnp.array(x), whole))
    )
    assert not difference[1:].any()
    assert (difference[0, :3, :5] == 0).all() and (difference[0, 3:, :5].max(axis=1) > 0).all()
    assert (difference[0, 4:, 5:] == 0).all() and (difference[0, :4, 5:].max(axis=1) > 0).all()
