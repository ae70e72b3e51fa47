"""Choice of tokens, what stands in their place, and the gathered labels."""

import numpy as np
import pytest
import scipy.stats

from bert_jax.data import masking
from bert_jax.data.ordering import generators

SPECIAL = np.arange(5, dtype=np.int32)  # [PAD] [UNK] [CLS] [SEP] [MASK]
CLS, SEP, MASK = 2, 3, 4
V = 300
SURE = 1e-5  # a right program fails a statistical check with this probability; the draws are fixed


def rows(count: int, seq_len: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens and segment ids of rows with specials, an [UNK] and padding."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, V, (count, seq_len)).astype(np.int32)
    tokens[:, 0], tokens[:, -5], tokens[:, -4:], tokens[:, 7] = CLS, SEP, 0, 1
    segment_ids = np.ones_like(tokens)
    segment_ids[:, -4:] = 0
    return tokens, segment_ids


def draw(count: int, stream: str = "mask") -> list[np.random.Generator]:
    return generators(3, stream, np.zeros(count, np.int64), np.arange(count))


def within(hits: int, trials: int, share: float) -> bool:
    low, high = scipy.stats.binom.ppf([SURE / 2, 1 - SURE / 2], trials, share)
    return low <= hits <= high


@pytest.mark.parametrize(
    ("rate", "seq_len", "choice", "asked", "expected"),
    [
        (0.15, 128, "count", 0, 19),
        (0.15, 512, "count", 0, 76),
        (0.15, 128, "bernoulli", 0, 40),
        (0.15, 512, "bernoulli", 0, 112),
        (0.15, 128, "bernoulli", 20, 20),
        (1.0, 16, "count", 0, 14),
        (1.0, 16, "bernoulli", 0, 16),
        (0.15, 4, "count", 0, 1),
        (0.15, 4, "bernoulli", 0, 4),
    ],
)
def test_capacity(rate: float, seq_len: int, choice: str, asked: int, expected: int) -> None:
    assert masking.capacity(rate, seq_len, choice, asked) == expected


def test_automatic_capacity_is_the_smallest_that_overflows_rarely() -> None:
    m = masking.capacity(0.15, 128, "bernoulli")
    assert scipy.stats.binom.sf(m, 126, 0.15) < 1e-4 <= scipy.stats.binom.sf(m - 8, 126, 0.15)


def test_eligible_literal() -> None:
    # Whatever stands in padding is never eligible.
    tokens, segment_ids = np.array([[2, 9, 1, 4, 8, 3, 7, 0]]), np.array([[1, 1, 1, 1, 2, 2, 0, 0]])
    found = masking.eligible(tokens, segment_ids, SPECIAL)
    np.testing.assert_array_equal(found, [[0, 1, 0, 0, 1, 0, 0, 0]])


def test_shares_and_specials() -> None:
    tokens, segment_ids = rows(2000, 128)
    may = masking.eligible(tokens, segment_ids, SPECIAL)
    assert may.sum() == 2000 * (128 - 7)
    chosen = masking.choose(may, draw(2000), rate=0.15, capacity=128, choice="bernoulli")
    assert not (chosen & ~may).any()
    assert within(chosen.sum(), may.sum(), 0.15)
    out = masking.corrupt(
        tokens, chosen, draw(2000, "corrupt"), mask_id=MASK, mask_share=0.8, random_share=0.1,
        random_ids=np.arange(5, V),
    )  # fmt: skip
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out[~chosen], tokens[~chosen])
    n = chosen.sum()
    masked, replaced = out[chosen] == MASK, (out[chosen] != MASK) & (out[chosen] != tokens[chosen])
    assert within(masked.sum(), n, 0.8)
    assert within(replaced.sum(), n, 0.1 * (1 - 1 / (V - 5)))  # one in 295 draws is the token itself


@pytest.mark.parametrize("choice", ["bernoulli", "count"])
def test_all_masked_and_none_masked(choice: str) -> None:
    tokens, segment_ids = rows(8, 32)
    may = masking.eligible(tokens, segment_ids, SPECIAL)
    chosen = masking.choose(may, draw(8), rate=1.0, capacity=32, choice=choice)
    np.testing.assert_array_equal(chosen, may)
    ids = np.arange(5, V)
    share = {"mask_id": MASK, "random_ids": ids}
    out = masking.corrupt(tokens, chosen, draw(8), mask_share=1.0, random_share=0.0, **share)
    np.testing.assert_array_equal(out, np.where(may, MASK, tokens))
    out = masking.corrupt(tokens, chosen, draw(8), mask_share=0.0, random_share=0.0, **share)
    np.testing.assert_array_equal(out, tokens)


def test_random_ids_are_uniform_over_what_is_given() -> None:
    tokens = np.full((1500, 128), 9, np.int32)
    ids = np.setdiff1d(np.arange(V), [0, 1, 2, 3, 4, 77])
    everything = np.ones_like(tokens, bool)
    out = masking.corrupt(
        tokens, everything, draw(1500), mask_id=MASK, mask_share=0.3, random_share=0.7, random_ids=ids
    )
    counts = np.bincount(out.ravel(), minlength=V)
    assert within(counts[MASK], tokens.size, 0.3)
    assert not counts[[0, 1, 2, 3, 77]].any()
    assert scipy.stats.chisquare(counts[ids]).pvalue > SURE


def test_overflow_favours_no_position() -> None:
    may = np.ones((6000, 40), bool)
    may[:, [0, 39]] = False
    for rate in (0.5, 1.0):  # with rate 1 all are drawn, and not the first ones of them kept
        chosen = masking.choose(may, draw(6000), rate=rate, capacity=4, choice="bernoulli")
        assert (chosen.sum(axis=1) == 4).all()
        assert scipy.stats.chisquare(chosen.sum(axis=0)[1:39]).pvalue > SURE


def test_count_is_exact_and_uniform() -> None:
    real = np.arange(5000) % 23  # eligible tokens: 0 .. 22
    may = (np.arange(24) > 0) & (np.arange(24) <= real[:, None])
    chosen = masking.choose(may, draw(5000), rate=0.15, capacity=3, choice="count")
    assert not (chosen & ~may).any()
    expected = [0 if n == 0 else min(3, max(1, round(0.15 * n))) for n in real]
    np.testing.assert_array_equal(chosen.sum(axis=1), expected)
    counts = chosen[real == 22].sum(axis=0)[1:23]
    assert scipy.stats.chisquare(counts).pvalue > SURE


def test_a_row_without_eligible_tokens_chooses_none() -> None:
    for choice in ("bernoulli", "count"):
        assert not masking.choose(np.zeros((1, 4), bool), draw(1), rate=1.0, capacity=2, choice=choice).any()


def test_gather_literal() -> None:
    tokens = np.array([[2, 10, 11, 12, 3], [2, 20, 21, 3, 0]], np.int32)
    chosen = np.array([[0, 1, 0, 1, 0], [0, 0, 1, 0, 0]], bool)
    positions, labels, weights = masking.gather(tokens, chosen, 3)
    np.testing.assert_array_equal(positions, [[1, 3, 0], [2, 0, 0]])
    np.testing.assert_array_equal(labels, [[10, 12, 0], [21, 0, 0]])
    np.testing.assert_array_equal(weights, [[1, 1, 0], [1, 0, 0]])
    assert (positions.dtype, labels.dtype, weights.dtype) == (np.int32, np.int32, np.float32)
    with pytest.raises(ValueError, match="2 tokens are chosen in a row with room for 1"):
        masking.gather(tokens, chosen, 1)


def test_a_row_does_not_depend_on_the_others() -> None:
    may = masking.eligible(*rows(50, 64), SPECIAL)
    part = [41, 3, 17]
    for choice in ("bernoulli", "count"):
        options = {"rate": 0.3, "capacity": 9, "choice": choice}
        whole = masking.choose(may, draw(50), **options)
        some = masking.choose(may[part], [draw(50)[i] for i in part], **options)
        np.testing.assert_array_equal(some, whole[part])


def test_unknown_choice() -> None:
    with pytest.raises(ValueError, match='"bernoulli" or "count"'):
        masking.choose(np.ones((1, 2), bool), draw(1), rate=0.1, capacity=1, choice="all")


def test_what_is_drawn_is_stable() -> None:
    """Literal: other masks would be a break in runs that are continued with a newer version."""
    may = masking.eligible(*rows(1, 24), SPECIAL)
    options = {"rate": 0.3, "capacity": 12}
    found = masking.choose(may, draw(1), choice="bernoulli", **options)
    np.testing.assert_array_equal(np.flatnonzero(found), [10, 13, 15])
    found = masking.choose(may, draw(1), choice="count", **options)
    np.testing.assert_array_equal(np.flatnonzero(found), [6, 10, 12, 13, 15])
