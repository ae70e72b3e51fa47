"""Choice of tokens, what stands in their place, and the gathered labels."""

import numpy as np
import pytest
import scipy.stats

from bert_jax.data import masking
from bert_jax.data.pipeline import generators

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
    chosen = masking.choose(tokens, may, draw(2000), rate=0.15, capacity=128, choice="bernoulli")
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
    chosen = masking.choose(tokens, may, draw(8), rate=1.0, capacity=32, choice=choice)
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


@pytest.mark.parametrize("whole", [False, True])
def test_overflow_favours_no_position(whole: bool) -> None:
    tokens = np.full((6000, 40), 9, np.int32)
    may = np.ones_like(tokens, bool)
    may[:, [0, 39]] = False
    starts = np.ones_like(may) if whole else None
    chosen = masking.choose(
        tokens, may, draw(6000), rate=0.5, capacity=4, choice="bernoulli", word_starts=starts
    )
    assert chosen.sum(axis=1).max() == 4
    counts = chosen.sum(axis=0)[1:39]
    assert scipy.stats.chisquare(counts).pvalue > SURE
    # Not the first ones of those that were drawn either: with rate 1 all are drawn.
    chosen = masking.choose(
        tokens, may, draw(6000), rate=1.0, capacity=4, choice="bernoulli", word_starts=starts
    )
    assert (chosen.sum(axis=1) == 4).all()
    assert scipy.stats.chisquare(chosen.sum(axis=0)[1:39]).pvalue > SURE


def test_count_is_exact_and_uniform() -> None:
    tokens = np.full((5000, 24), 9, np.int32)
    real = np.arange(5000) % 23  # eligible tokens: 0 .. 22
    may = (np.arange(24) > 0) & (np.arange(24) <= real[:, None])
    chosen = masking.choose(tokens, may, draw(5000), rate=0.15, capacity=3, choice="count")
    assert not (chosen & ~may).any()
    expected = [0 if n == 0 else min(3, max(1, round(0.15 * n))) for n in real]
    np.testing.assert_array_equal(chosen.sum(axis=1), expected)
    counts = chosen[real == 22].sum(axis=0)[1:23]
    assert scipy.stats.chisquare(counts).pvalue > SURE


WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##want", "##ed", "run", "##ning", "a", ","]
SENTENCEPIECE = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁un", "want", "ed", "▁run", "ning", "▁a", ","]
CONTINUES = {
    "wordpiece": np.array([t.startswith("##") for t in WORDPIECE]),
    "sentencepiece": np.array([i > 4 and not t.startswith("▁") for i, t in enumerate(SENTENCEPIECE)]),
}


def test_word_starts_literal() -> None:
    #                   [CLS] un ##want ##ed [UNK] ##ed run [SEP] | [CLS] ##ed ##ed [SEP] pad
    tokens = np.array([[2, 5, 6, 7, 1, 7, 8, 3, 2, 7, 7, 3, 0]], np.int32)
    segments = np.array([[1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0]])
    starts = masking.word_starts(tokens, segments, SPECIAL, CONTINUES["wordpiece"])
    np.testing.assert_array_equal(starts, [[1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1]])
    # A unit border parts pieces even where no special token does.
    tokens, segments = np.array([[5, 6, 6, 7]], np.int32), np.array([[1, 1, 2, 2]])
    starts = masking.word_starts(tokens, segments, SPECIAL, CONTINUES["wordpiece"])
    np.testing.assert_array_equal(starts, [[1, 0, 1, 0]])


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
@pytest.mark.parametrize("choice", ["bernoulli", "count"])
@pytest.mark.parametrize("capacity", [6, 40])
def test_words_stay_whole(kind: str, choice: str, capacity: int) -> None:
    tokens = np.random.default_rng(1).integers(5, 12, (3000, 40)).astype(np.int32)
    tokens[:, 0], tokens[:, -1], tokens[:, 20] = CLS, SEP, 1
    segments = np.ones_like(tokens)
    may = masking.eligible(tokens, segments, SPECIAL)
    starts = masking.word_starts(tokens, segments, SPECIAL, CONTINUES[kind])
    chosen = masking.choose(
        tokens, may, draw(3000), rate=0.2, capacity=capacity, choice=choice, word_starts=starts
    )
    assert not (chosen & ~may).any()
    inside = ~starts[:, 1:] & may[:, 1:]  # goes on with the word of the token before
    np.testing.assert_array_equal(chosen[:, 1:][inside], chosen[:, :-1][inside])
    count = chosen.sum(axis=1)
    assert count.max() <= capacity
    if choice == "count":
        quota = np.minimum(capacity, np.rint(0.2 * may.sum(axis=1)))
        assert (count <= quota).all()
        assert (count == quota).mean() > 0.9  # words of one token fill what longer ones leave
    elif capacity == 40:
        # A word is chosen with p = 0.2, whatever its length.
        words = starts & may
        assert within((chosen & words).sum(), words.sum(), 0.2)


def test_a_row_without_eligible_tokens_chooses_none() -> None:
    tokens, may = np.array([[2, 3, 0, 0]], np.int32), np.zeros((1, 4), bool)
    for starts in (None, np.ones((1, 4), bool)):
        for choice in ("bernoulli", "count"):
            chosen = masking.choose(
                tokens, may, draw(1), rate=1.0, capacity=2, choice=choice, word_starts=starts
            )
            assert not chosen.any()


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
    tokens, segment_ids = rows(50, 64)
    may = masking.eligible(tokens, segment_ids, SPECIAL)
    starts = masking.word_starts(tokens, segment_ids, SPECIAL, np.arange(V) % 2 == 1)
    for choice in ("bernoulli", "count"):
        for words in (None, starts):
            options = {"rate": 0.3, "capacity": 9, "choice": choice}
            whole = masking.choose(tokens, may, draw(50), word_starts=words, **options)
            part = [41, 3, 17]
            some = masking.choose(
                tokens[part], may[part], [draw(50)[i] for i in part],
                word_starts=None if words is None else words[part], **options,
            )  # fmt: skip
            np.testing.assert_array_equal(some, whole[part])


def test_unknown_choice() -> None:
    with pytest.raises(ValueError, match='"bernoulli" or "count"'):
        masking.choose(np.ones((1, 2)), np.ones((1, 2), bool), draw(1), rate=0.1, capacity=1, choice="all")
