"""Packed rows: what shares a row, how full they are, and their shuffling."""

import numpy as np
import pytest

from bert_jax.data.packing import Packing, compose


def test_compose_literal() -> None:
    # Row of 10: a window of 6 takes 8 and leaves 2; 4 + 2 fill a row (6 + 4); 1 + 1 take 3 each.
    histogram = np.zeros(9, np.int64)
    histogram[[6, 4, 2, 1]] = [1, 2, 2, 4]
    kinds, counts = compose(histogram, 10, 4)
    found = {tuple(k[k > 0].tolist()): c for k, c in zip(kinds, counts.tolist(), strict=True)}
    assert found == {(6,): 1, (4, 2): 2, (1, 1, 1): 1, (1,): 1}


@pytest.mark.parametrize("max_packed", [1, 3, 16])
@pytest.mark.parametrize("seq_len", [16, 128])
def test_every_window_once_and_no_row_too_full(seq_len: int, max_packed: int) -> None:
    rng = np.random.default_rng(seq_len + max_packed)
    lengths = np.minimum(rng.geometric(0.04, 3000), seq_len - 2)
    packing = Packing(lengths, seq_len, max_packed, seed=1)
    for epoch in (0, 1, 7):
        rows = np.arange(packing.num_rows)
        numbers, counts = packing.windows(np.full(len(rows), epoch), rows)
        np.testing.assert_array_equal(np.sort(numbers), np.arange(3000))
        assert 1 <= counts.min() <= counts.max() <= max_packed
        used = np.add.reduceat(lengths[numbers] + 2, np.cumsum(counts) - counts)
        assert used.max() <= seq_len
        assert packing.fill_share == pytest.approx(used.sum() / (packing.num_rows * seq_len))
    if max_packed == 1:
        assert packing.num_rows == 3000


def test_epochs_differ_in_windows_but_not_in_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 2000)
    packing = Packing(lengths, 64, 8, seed=5)
    rows = np.arange(packing.num_rows)
    first, counts = packing.windows(np.zeros(len(rows), np.int64), rows)
    second, same = packing.windows(np.ones(len(rows), np.int64), rows)
    np.testing.assert_array_equal(counts, same)
    np.testing.assert_array_equal(lengths[first], lengths[second])
    assert (first != second).mean() > 0.9
    assert packing.num_rows == Packing(lengths, 64, 8, seed=6).num_rows
    assert (Packing(lengths, 64, 8, seed=6).windows(np.zeros(len(rows), np.int64), rows)[0] != first).any()


def test_any_rows_of_any_epochs_in_any_order() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    packing = Packing(lengths, 64, 8, seed=5)
    epochs, rows = np.array([9, 2, 9, 1_000_000]), np.array([3, 3, 0, 5])
    numbers, counts = packing.windows(epochs, rows)
    parts = np.split(numbers, np.cumsum(counts)[:-1])
    for epoch, row, part in zip(epochs, rows, parts, strict=True):
        alone, _ = Packing(lengths, 64, 8, seed=5).windows(np.array([epoch]), np.array([row]))
        np.testing.assert_array_equal(part, alone)
    numbers, counts = packing.windows(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(numbers) == len(counts) == 0


def test_rows_are_full() -> None:
    # Sentences of novels: about 30 tokens, with a long tail.
    lengths = np.random.default_rng(0).negative_binomial(2, 0.06, 30_000) % 126 + 1
    assert Packing(lengths, 128, 16, seed=0).fill_share > 0.98
