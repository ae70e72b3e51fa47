"""Words, n-grams and spans: their laws, that no word or border is crossed, and what becomes of them."""

import types

import numpy as np
import pytest
import scipy.stats

from bert_jax import config
from bert_jax.data import masking, spans
from bert_jax.data.ordering import generators
from bert_jax.objectives.mlm import MaskedLM

SPECIAL = np.arange(5, dtype=np.int32)  # [PAD] [UNK] [CLS] [SEP] [MASK]
CLS, SEP, MASK = 2, 3, 4
V = 305
CONTINUES = np.arange(V) % 4 == 3  # a quarter of the tokens
CONTINUES[:5] = False
TOKENIZER = types.SimpleNamespace(vocab_size=V, special_ids=SPECIAL, mask_id=MASK, continues=CONTINUES)
SURE = 1e-5  # a right program fails a statistical check with this probability; the draws are fixed
LAWS = {"word": spans.ONE_WORD, "ngram": spans.ngram_law(3), "span": spans.span_law(0.2, 10)}
CHOICES = ("bernoulli", "count")


def draw(count: int, stream: str = "mask") -> list[np.random.Generator]:
    return generators(3, stream, np.zeros(count, np.int64), np.arange(count))


def rows(count: int, seq_len: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns rows of two packed units, the first a pair, with an [UNK] and padding."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, V, (count, seq_len)).astype(np.int32)
    tokens[:, 0], tokens[:, 30], tokens[:, 50], tokens[:, 51], tokens[:, -5] = CLS, SEP, SEP, CLS, SEP
    tokens[:, 70], tokens[:, -4:] = 1, 0
    segment_ids = np.ones_like(tokens)
    segment_ids[:, 51:], segment_ids[:, -4:] = 2, 0
    return {"tokens": tokens, "segment_ids": segment_ids}


def within(hits: int, trials: int, share: float) -> bool:
    low, high = scipy.stats.binom.ppf([SURE / 2, 1 - SURE / 2], trials, share)
    return low <= hits <= high


def objective(unit: str, choice: str, seq_len: int = 128, **values: object) -> MaskedLM:
    c = config.default().objective.mlm
    c.unit, c.choice = unit, choice
    for key, value in values.items():
        c[key] = value
    return MaskedLM(c, TOKENIZER, seq_len, np.ones(V, np.int64))


def choose(batch: dict[str, np.ndarray], streams: list[np.random.Generator], **options: object) -> tuple:
    tokens, segments = batch["tokens"], batch["segment_ids"]
    may = masking.eligible(tokens, segments, SPECIAL)
    starts = masking.word_starts(tokens, segments, SPECIAL, CONTINUES)
    return may, starts, *spans.choose(may, starts, segments, streams, **options)


def test_laws_literal() -> None:
    np.testing.assert_allclose(spans.ngram_law(3), [6 / 11, 3 / 11, 2 / 11])
    np.testing.assert_allclose(spans.span_law(0.5, 3), [4 / 7, 2 / 7, 1 / 7])
    law = spans.span_law(0.2, 10)
    assert law.sum() == pytest.approx(1)
    assert law @ np.arange(1, 11) == pytest.approx(3.797, abs=1e-3)  # 3.8 in the paper
    np.testing.assert_allclose(law[1:] / law[:-1], 0.8)
    np.testing.assert_array_equal(spans.ngram_law(1), [1.0])


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("unit", ["token", *LAWS])
def test_shares_over_a_million_tokens(unit: str, choice: str) -> None:
    count = 9000
    mlm, batch = objective(unit, choice), rows(count, 128)
    tokens = batch["tokens"]
    made = mlm.features(batch, draw(count))
    may = masking.eligible(tokens, batch["segment_ids"], SPECIAL)
    assert may.sum() > 1e6
    chosen = np.zeros_like(may)
    used = made["mlm_weights"] > 0
    chosen[np.nonzero(used)[0], made["mlm_positions"][used]] = True
    # Special tokens never, and the labels are what stood there.
    assert not (chosen & ~may).any()
    assert chosen.sum() == used.sum()
    np.testing.assert_array_equal(made["mlm_labels"][used], tokens[chosen])
    np.testing.assert_array_equal(made["tokens"][~chosen], tokens[~chosen])
    number = chosen.sum(axis=1)
    quota = np.rint(0.15 * may.sum(axis=1))
    if choice == "count":
        assert (number <= quota).all()
        assert (number == quota).mean() > 0.999
    elif unit == "token":
        assert within(chosen.sum(), may.sum(), 0.15)
    else:  # the tokens of a span are chosen together: rows are independent, tokens are not
        excess = number - 0.15 * may.sum(axis=1)
        assert abs(excess.mean()) < 4.4 * excess.std() / count**0.5
        assert number.max() < mlm.capacity  # 9,000 rows, and fewer than 1 in 10,000 would have more
    out = made["tokens"][chosen]
    masked, same = out == MASK, out == tokens[chosen]
    assert not np.isin(out[~masked], SPECIAL).any()
    if unit == "span":
        options = {"rate": 0.15, "capacity": mlm.capacity, "choice": choice, "law": mlm.law}
        *_, again, first = choose(batch, draw(count), **options)
        np.testing.assert_array_equal(again, chosen)
        # All of a span or none of it, and of spans the shares of the recipe.
        name = (np.arange(count)[:, None] * 128 + first)[chosen]
        _, at, sizes = np.unique(name, return_index=True, return_counts=True)
        number_masked = np.add.reduceat(masked, at)
        assert ((number_masked == 0) | (number_masked == sizes)).all()
        assert within((number_masked > 0).sum(), len(sizes), 0.8)
        number_same = np.add.reduceat(same, at)
        long = sizes > 3  # replaced by chance by themselves as a whole: once in 8e9
        assert within((number_same == sizes)[long].sum(), long.sum(), 0.1)
        assert within((number_same < sizes)[long & (number_masked == 0)].sum(), long.sum(), 0.1)
    else:
        assert within(masked.sum(), len(out), 0.8)
        assert within((~masked & ~same).sum(), len(out), 0.1 * (1 - 1 / (V - 5)))
        assert within(same.sum(), len(out), 0.1 * (1 + 1 / (V - 5)))


@pytest.mark.parametrize("unit", ["ngram", "span"])
def test_random_ids_are_uniform_over_what_is_no_special_token(unit: str) -> None:
    mlm, batch = objective(unit, "count", mask_share=0.0, random_share=1.0), rows(6000, 128)
    made = mlm.features(batch, draw(6000))
    used = made["mlm_weights"] > 0
    out = made["tokens"][np.nonzero(used)[0], made["mlm_positions"][used]]
    counts = np.bincount(out, minlength=V)
    assert counts.sum() > 1e5 and not counts[:5].any()
    assert scipy.stats.chisquare(counts[5:]).pvalue > SURE


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("unit", LAWS)
@pytest.mark.parametrize("capacity", [6, 128])
def test_words_stay_whole_and_spans_within_their_run(unit: str, choice: str, capacity: int) -> None:
    batch = rows(3000, 128)
    may, starts, chosen, first = choose(
        batch, draw(3000), rate=0.2, capacity=capacity, choice=choice, law=LAWS[unit]
    )
    assert chosen.sum(axis=1).max() <= capacity
    inside = ~starts[:, 1:] & may[:, 1:] & may[:, :-1]  # goes on with the word of the token before
    np.testing.assert_array_equal(chosen[:, 1:][inside], chosen[:, :-1][inside])
    np.testing.assert_array_equal(first[:, 1:][inside], first[:, :-1][inside])
    # From a span's first token to each of its others, all may be chosen, are chosen, and are of one unit.
    row, column = np.nonzero(chosen)
    start = first[row, column]
    assert (start <= column).all() and chosen[row, start].all() and starts[row, start].all()
    for values in (may, chosen):
        behind = np.cumsum(~values, axis=1)
        assert (behind[row, column] == behind[row, start]).all()
    assert (batch["segment_ids"][row, column] == batch["segment_ids"][row, start]).all()
    # At most as many words as the law has.
    words = np.cumsum(starts & may, axis=1)
    most = (words[row, column] - words[row, start]).max() + 1
    assert most == len(LAWS[unit]) or (capacity == 6 and most < len(LAWS[unit]))


def test_a_unit_ends_a_span_without_a_special_token() -> None:
    batch = {"tokens": np.full((500, 12), 8, np.int32), "segment_ids": np.repeat([[1] * 6 + [2] * 6], 500, 0)}
    *_, chosen, first = choose(
        batch, draw(500), rate=1.0, capacity=12, choice="count", law=spans.span_law(0.01, 10)
    )
    assert chosen.all()
    assert (first[:, :6] < 6).all() and (first[:, 6:] >= 6).all()
    assert (first[:, 6] == 6).all()


def one_run(count: int, words: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns rows of one run of words of one to three tokens, between [CLS] and [SEP]."""
    tokens = np.full((count, 3 * words + 2), 0, np.int32)
    sizes = np.random.default_rng(seed).choice([1, 2, 3], (count, words), p=[0.7, 0.2, 0.1])
    tokens[:, 0] = CLS
    for row, size in zip(tokens, sizes, strict=True):
        ids = np.full(size.sum(), 7)  # continues
        ids[np.cumsum(size) - size] = 8
        row[1 : len(ids) + 1] = ids
        row[len(ids) + 1] = SEP
    return {"tokens": tokens, "segment_ids": (tokens > 0).astype(np.int32)}


@pytest.mark.parametrize(("choice", "rate"), [("bernoulli", 0.15), ("bernoulli", 0.6), ("count", 1.0)])
@pytest.mark.parametrize("unit", ["ngram", "span"])
def test_spans_follow_their_law(unit: str, choice: str, rate: float) -> None:
    count, words, law = 1500 if rate < 1 else 300, 200, LAWS[unit]
    batch = one_run(count, words)
    may, starts, chosen, first = choose(
        batch, draw(count), rate=rate, capacity=batch["tokens"].shape[1], choice=choice, law=law
    )
    begins = chosen & (first == np.arange(may.shape[1]))
    number = np.cumsum(starts & may, axis=1) - 1  # of the word that a token is in
    row, column = np.nonzero(chosen & starts)
    _, length = np.unique(row * 10**6 + first[row, column], return_counts=True)
    begin = number[begins]
    assert len(begin) == len(length)
    # Each word starts a chosen span with probability rate / mean length, if no edge cuts it.
    whole = (begin > 0) & (begin + length < words)
    found = np.bincount(length[whole], minlength=len(law) + 1)[1:]
    expected = (
        count * (words - 1 - np.arange(1, len(law) + 1)) * rate * law / (law @ np.arange(1, len(law) + 1))
    )
    assert scipy.stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > SURE
    assert found.sum() == pytest.approx(expected.sum(), rel=0.02)
    # They start anywhere alike, and every word has the same chance.
    starts_at = np.bincount(begin[(begin > 0) & (begin < words - len(law))], minlength=words)
    assert scipy.stats.chisquare(starts_at[1 : words - len(law)]).pvalue > SURE
    share = np.bincount(number[chosen & starts], minlength=words) / count
    assert np.abs(share - rate).max() <= 4.8 * (rate * (1 - rate) / count) ** 0.5


@pytest.mark.parametrize("unit", LAWS)
@pytest.mark.parametrize(("choice", "rate"), [("count", 0.15), ("bernoulli", 0.5)])
def test_a_spent_budget_favours_no_place(unit: str, choice: str, rate: float) -> None:
    """In every row a span is cut or left out: 6 tokens of 40."""
    batch = {"tokens": np.full((20_000, 42), 8, np.int32), "segment_ids": np.ones((20_000, 42), np.int32)}
    batch["tokens"][:, 0], batch["tokens"][:, 41] = CLS, SEP
    *_, chosen, _ = choose(batch, draw(20_000), rate=rate, capacity=6, choice=choice, law=LAWS[unit])
    assert (chosen.sum(axis=1) == 6).mean() > 0.94
    share = chosen.mean(axis=0)[1:41] / chosen.mean() / 42 * 40
    if unit == "word":
        assert scipy.stats.chisquare(chosen.sum(axis=0)[1:41]).pvalue > SURE
    # A span of 10 words that an edge cuts leaves more of the budget to the others than to itself.
    assert np.abs(share - 1).max() < (0.1 if unit == "span" else 0.06)


@pytest.mark.parametrize("unit", LAWS)
def test_rows_overflow_rarely(unit: str) -> None:
    """With words of a random number of tokens, as `capacity` takes them to be."""
    mlm, batch = objective(unit, "bernoulli"), {}
    rng = np.random.default_rng(0)
    batch["tokens"] = np.where(rng.random((30_000, 128)) < 0.25, 7, 8).astype(np.int32)
    batch["tokens"][:, 0], batch["tokens"][:, 127] = CLS, SEP
    batch["segment_ids"] = np.ones((30_000, 128), np.int32)
    *_, chosen, _ = choose(batch, draw(30_000), rate=0.15, capacity=128, choice="bernoulli", law=mlm.law)
    number = chosen.sum(axis=1)
    assert (number > mlm.capacity).mean() < 3e-4
    assert (number > mlm.capacity - 16).mean() > 1e-4  # and no room is wasted
    assert objective(unit, "count").capacity == 19
    assert objective(unit, "bernoulli", rate=1.0).capacity == 128
    assert objective(unit, "bernoulli", max_predictions=20).capacity == 20


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("unit", LAWS)
def test_a_row_does_not_depend_on_the_others(unit: str, choice: str) -> None:
    mlm, batch, part = objective(unit, choice), rows(50, 128), [41, 3, 17]
    whole = mlm.features(batch, draw(50))
    some = mlm.features({k: v[part] for k, v in batch.items()}, [draw(50)[i] for i in part])
    for key, value in whole.items():
        np.testing.assert_array_equal(some[key], value[part])


def test_a_row_without_eligible_tokens_chooses_none() -> None:
    batch = {"tokens": np.array([[2, 3, 0, 0], [2, 9, 3, 0]], np.int32)}
    batch["segment_ids"] = (batch["tokens"] > 0).astype(np.int32)
    for law in LAWS.values():
        for choice in CHOICES:
            options = {"rate": 1.0, "capacity": 2, "choice": choice, "law": law}
            *_, chosen, _ = choose(batch, draw(2), **options)
            np.testing.assert_array_equal(chosen, [[0, 0, 0, 0], [0, 1, 0, 0]])
            *_, chosen, _ = choose({k: v[:1] for k, v in batch.items()}, draw(1), **options)
            assert not chosen.any()


@pytest.mark.parametrize("unit", LAWS)
def test_units_of_words_need_a_tokenizer_that_marks_them(unit: str) -> None:
    plain = types.SimpleNamespace(**{**vars(TOKENIZER), "continues": np.zeros(V, bool)})
    c = config.default().objective.mlm
    c.unit = unit
    with pytest.raises(ValueError, match=rf'objective\.mlm\.unit = "{unit}"'):
        MaskedLM(c, plain, 128, np.ones(V, np.int64))
    c.unit = "token"
    MaskedLM(c, plain, 128, np.ones(V, np.int64))


def test_unknown_choice() -> None:
    with pytest.raises(ValueError, match='"bernoulli" or "count"'):
        choose(rows(1, 128), draw(1), rate=0.1, capacity=1, choice="all", law=spans.ONE_WORD)
