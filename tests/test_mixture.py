"""Mixtures: exact shares, an order that is a function of the number, and texts of every kind."""

import dataclasses
import math
import time

import numpy as np
import pytest
from test_pipeline import MODES, Masked, Split, Tokenizer, equal, long_text, make

from bert_jax.data import pipeline
from bert_jax.data.mixture import BLOCK, CYCLE, Mixture, Shares

WEIGHTS = {
    "thirds": (1, 1, 1),
    "uneven": (0.7, 0.2999, 0.0001),
    "tiny": (5, 1e-5),
    "one": (3,),
    "pi": (math.pi, 1),
}


def shifted(split: Split, offset: int) -> Split:
    return dataclasses.replace(split, tokens=split.tokens + offset)


def parts(mode: str, train: bool = True, masked: bool = True, **values: object) -> list[pipeline.Examples]:
    """Returns texts of different sizes whose tokens lie 100,000 apart."""
    config = make(**MODES[mode], **values)
    return [
        pipeline.Examples(
            shifted(long_text(20 + 15 * number, seed=number), 100_000 * number), Tokenizer(), config,
            objectives=[Masked()] if masked else [], batch_size=8, train=train, part=number,
        )
        for number in range(3)
    ]  # fmt: skip


def mixture(texts: list[pipeline.Examples], train: bool = True, **options: object) -> Mixture:
    options = {"seed": 3, "batch_size": 8, "pad_id": 0, **options}
    return Mixture(texts, (5, 2, 1)[: len(texts)], train=train, **options)


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
def test_shares_are_exact(weights: tuple[float, ...]) -> None:
    share = np.array(weights) / sum(weights)
    shares = Shares(weights, seed=1)
    # In every block to one example, and over a cycle to the rounding of the share to a millionth.
    assert shares.counts.shape == (CYCLE, len(weights))
    assert (shares.counts.sum(axis=1) == BLOCK).all()
    assert np.abs(shares.counts - share * BLOCK).max() < 1 + 1e-3
    total = shares.counts.sum(axis=0)
    assert np.abs(total - share * BLOCK * CYCLE).max() < 1
    # On the way, too: the roundings up do not crowd.
    drift = np.cumsum(shares.counts, axis=0) - np.arange(1, CYCLE + 1)[:, None] * BLOCK * share
    assert np.abs(drift).max() < 12
    # What `of` gives is that, block by block, and each text's numbers run on without a gap.
    text, number = shares.of(np.arange(4 * BLOCK))
    for k in range(len(weights)):
        np.testing.assert_array_equal(
            np.bincount(np.flatnonzero(text == k) // BLOCK, minlength=4), shares.counts[:4, k]
        )
        np.testing.assert_array_equal(np.sort(number[text == k]), np.arange((text == k).sum()))


def test_numbers_run_on_over_blocks_and_cycles() -> None:
    shares = Shares((3, 2, 1.7), seed=1)
    for start in (0, 5 * BLOCK, (CYCLE - 2) * BLOCK, (7 * CYCLE - 1) * BLOCK, 10**15 // BLOCK * BLOCK):
        text, number = shares.of(start + np.arange(3 * BLOCK))
        for k in range(3):
            found = np.sort(number[text == k])
            np.testing.assert_array_equal(found, found[0] + np.arange(len(found)))
            assert abs(found[0] - start * (3, 2, 1.7)[k] / 6.7) < 12 + start * 1e-6


def test_order_is_a_function_of_seed_and_number() -> None:
    shares, g = Shares((2, 1), seed=1), np.arange(2048)
    text, number = shares.of(g)
    again = Shares((2, 1), seed=1).of(g[[2000, 3, 17]])
    np.testing.assert_array_equal(again, [text[[2000, 3, 17]], number[[2000, 3, 17]]])
    assert (Shares((2, 1), seed=2).of(g)[0] != text).any()
    # Mixed within a block: of ten examples in a row, about the share.
    runs = text.reshape(-1, 32).sum(axis=1)
    assert 5 < runs.mean() < 16 and runs.max() < 24 and runs.std() > 1
    assert (text[:1024] != text[1024:]).any()


def test_order_is_stable() -> None:
    """Literal: another order would be a break in runs that are continued with a newer version."""
    text, number = Shares((2, 1), seed=1).of(np.array([0, 1, 2, 3, 4, 5, 6, 7, 10**12]))
    np.testing.assert_array_equal(text, [1, 0, 0, 0, 0, 1, 0, 0, 1])
    np.testing.assert_array_equal(number, [199, 588, 601, 368, 427, 181, 265, 96, 333_333_015_486])


@pytest.mark.parametrize("mode", MODES)
def test_batches_are_pure_and_are_those_of_the_parts(mode: str) -> None:
    mixed, everything = mixture(parts(mode)), np.arange(8)
    steps = [0, 1, 1000, 5]
    batches = {step: mixed.batch(step, everything) for step in steps}
    fresh = mixture(parts(mode))
    for step in reversed(steps):
        assert equal(fresh.batch(step, everything), batches[step])
    rows = np.array([6, 2, 7, 2])
    for step in steps:
        assert equal(fresh.batch(step, rows), {key: value[rows] for key, value in batches[step].items()})
    # Each row is that of its own text, masks and all.
    text, number = Shares((5, 2, 1), seed=3).of(8000 + everything)
    for row in range(8):
        alone = parts(mode)[text[row]].numbered(number[[row]])
        assert equal(alone, {key: value[[row]] for key, value in batches[1000].items()})
    assert not equal(mixture(parts(mode), seed=4).batch(0, everything), batches[0])
    assert not equal(mixture(parts(mode), phase=1).batch(0, everything), batches[0])
    assert mixed.num_examples == sum(part.num_examples for part in parts(mode))


def test_parts_go_through_their_epochs() -> None:
    texts = parts("windows", masked=False)
    mixed = mixture(texts, batch_size=64)
    first = np.concatenate([mixed.batch(step, np.arange(64))["tokens"][:, 1] for step in range(64)])
    text = first // 100_000
    assert np.abs(np.bincount(text) - 4096 * np.array([5, 2, 1]) / 8).max() <= 4  # of the four blocks
    for number, part in enumerate(texts):
        _, times = np.unique(first[text == number], return_counts=True)
        epochs, more = divmod((text == number).sum(), part.total)
        assert len(times) == (part.total if epochs else more)
        assert (times == epochs + 1).sum() == more and (times >= epochs).all()
    assert (text == 0).sum() > 2 * texts[0].total


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch_size", [7, 1000])
def test_evaluation_takes_every_text_once(mode: str, batch_size: int) -> None:
    texts = parts(mode, train=False)
    mixed = mixture(texts, train=False, batch_size=batch_size)
    assert mixed.num_examples == sum(part.num_examples for part in texts)
    batches = [mixed.batch(step, np.arange(batch_size)) for step in range(mixed.num_eval_batches())]
    whole = {key: np.concatenate([b[key] for b in batches]) for key in batches[0]}
    real = whole["segment_ids"][:, 0] > 0
    assert real[: mixed.num_examples].all() and real.sum() == mixed.num_examples
    for key, value in whole.items():
        assert not value[~real].any(), key
    alone = [part.take(np.zeros(part.total, np.int64), np.arange(part.total)) for part in texts]
    for key, value in whole.items():
        np.testing.assert_array_equal(value[real], np.concatenate([a[key] for a in alone]))


def test_limited_evaluation_is_spread_over_all_texts() -> None:
    texts = parts("windows", train=False, train__eval_rows=2)  # the parts' own limit is not read
    mixed = mixture(texts, train=False, eval_rows=30)
    assert (mixed.num_examples, mixed.num_eval_batches()) == (30, 4)
    tokens = np.concatenate([mixed.batch(step, np.arange(8))["tokens"] for step in range(4)])[:30]
    found = np.bincount(tokens.max(axis=1) // 100_000, minlength=3)
    expected = 30 * np.array([part.total for part in texts]) / sum(part.total for part in texts)
    assert np.abs(found - expected).max() < 1.5


def test_step_a_billion_costs_what_step_zero_does() -> None:
    mixed, rows = mixture(parts("windows")), np.arange(8)
    mixed.batch(0, rows)

    def seconds(step: int) -> float:
        start = time.perf_counter()
        mixed.batch(step, rows)
        return time.perf_counter() - start

    near = min(seconds(step) for step in range(10))
    far = min(seconds(step) for step in range(10**9, 10**9 + 10))
    assert far < 5 * near + 0.02


def test_fill_share() -> None:
    texts = parts("sentences")
    expected = sum(w * part.fill_share for w, part in zip((5, 2, 1), texts, strict=True)) / 8
    assert mixture(texts).fill_share == pytest.approx(expected)
    sizes = [part.total for part in texts]
    expected = sum(n * part.fill_share for n, part in zip(sizes, texts, strict=True)) / sum(sizes)
    assert mixture(texts, train=False).fill_share == pytest.approx(expected)
    assert math.isnan(mixture(parts("pairs")).fill_share)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1, 0, 1), "each must be above 0"),
        ((1, 1e-9, 1), "would never be read"),
        ((1, 1), "3 texts and 2 weights"),
    ],
)
def test_weights_that_cannot_be(weights: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=rf"data\.mixture has.*{message}"):
        Mixture(parts("windows"), weights, seed=0, batch_size=8, train=True, pad_id=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorFlow, at import
def test_a_mixture_goes_through_the_loader() -> None:
    mixed, rows = mixture(parts("packed")), np.array([1, 6])
    for step, batch in enumerate(pipeline.dataset(mixed, 3, 9, rows, workers=2, prefetch=2), 3):
        assert equal(batch, mixed.batch(step, rows))
