"""Batches: purity, coverage, literal rows, evaluation, and the way through tf.data."""

import dataclasses
import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import masking, pipeline

SURE = 1e-5


@dataclasses.dataclass
class Split:
    """Token numbers start at 10, so that in most tests a token tells its place in the text."""

    sentences: np.ndarray
    documents: np.ndarray
    tokens: np.ndarray

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.tokens[start:stop]


class Tokenizer:
    pad_id, unk_id, cls_id, sep_id, mask_id = 0, 1, 2, 3, 4
    special_ids = np.arange(5, dtype=np.int32)


class Masked:
    name = "mlm"

    def features(
        self, batch: dict[str, np.ndarray], generators: Sequence[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        tokens = batch["tokens"]
        may = masking.eligible(tokens, batch["segment_ids"], Tokenizer.special_ids)
        chosen = masking.choose(may, generators, rate=0.15, capacity=8, choice="bernoulli")
        positions, labels, weights = masking.gather(tokens, chosen, 8)
        out = masking.corrupt(
            tokens, chosen, generators,
            mask_id=4, mask_share=0.8, random_share=0.1, random_ids=np.arange(5, 99),
        )  # fmt: skip
        return {"tokens": out, "mlm_positions": positions, "mlm_labels": labels, "mlm_weights": weights}


def text(*documents: list[int]) -> Split:
    """Returns documents of sentences of the given lengths; token i of the text is 10 + i."""
    lengths = [n for document in documents for n in document]
    sentences = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    borders = np.concatenate([[0], np.cumsum([len(d) for d in documents])]).astype(np.int64)
    return Split(sentences, borders, np.arange(10, 10 + sum(lengths), dtype=np.int32))


def long_text(documents: int = 60, seed: int = 0) -> Split:
    rng = np.random.default_rng(seed)
    return text(*[(1 + rng.poisson(9, rng.integers(2, 30))).tolist() for _ in range(documents)])


def make(seq_len: int = 32, **values: object) -> ConfigDict:
    c = configs.default()
    c.data.seq_len = seq_len
    for key, value in values.items():
        group, _, name = key.partition("__")
        if group in ("nsp", "sop"):
            c.objective[group][name] = value
        else:
            c[group][name] = value
    return c


def examples(
    split: Split, config: ConfigDict, batch_size: int, train: bool = True, masked: bool = True
) -> pipeline.Examples:
    objectives = [Masked()] if masked else []
    return pipeline.Examples(
        split, Tokenizer(), config, objectives=objectives, batch_size=batch_size, train=train
    )


MODES = {
    "windows": {},
    "sentences": {"data__unit": "sentence"},
    "packed": {"data__unit": "sentence", "data__packing": True},
    "pairs": {"nsp__weight": 1.0},
    "order": {"sop__weight": 1.0},
}


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    assert a.keys() == b.keys()
    return all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 17, 100, 4097])
def test_order_visits_every_index_once_an_epoch(n: int) -> None:
    epoch, index = pipeline.order(np.arange(3 * n) + 7 * n, n, seed=3)
    np.testing.assert_array_equal(epoch, np.repeat([7, 8, 9], n))
    np.testing.assert_array_equal(np.sort(index.reshape(3, n), axis=1), np.tile(np.arange(n), (3, 1)))
    if n > 10:
        assert not np.array_equal(index[:n], index[n : 2 * n])
        assert not np.array_equal(index, pipeline.order(np.arange(3 * n) + 7 * n, n, seed=4)[1])


def test_order_takes_all_orders_alike() -> None:
    _, index = pipeline.order(np.arange(4 * 12_000), 4, seed=0)
    counts = np.unique(index.reshape(-1, 4), axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > SURE
    _, index = pipeline.order(np.arange(20 * 5000), 20, seed=0)
    table = np.zeros((20, 20))
    np.add.at(table, (np.tile(np.arange(20), 5000), index), 1)
    assert scipy.stats.chi2.sf(((table - 250) ** 2 / 250).sum(), 19 * 19) > SURE


def test_order_is_stable() -> None:
    """Literal: another order would be a break in runs that are continued with a newer version."""
    small = pipeline.order(np.arange(12), 10, seed=1)[1]
    np.testing.assert_array_equal(small, [6, 9, 4, 1, 2, 7, 8, 3, 0, 5, 6, 8])
    big = pipeline.order(np.array([0, 10**15]), 10**9, seed=1)[1]
    np.testing.assert_array_equal(big, [399314336, 91520615])


def test_generators_depend_on_each_part() -> None:
    def first(seed: int, stream: str, epoch: int, index: int) -> float:
        return pipeline.generators(seed, stream, np.array([epoch]), np.array([index]))[0].random()

    base = first(1, "a", 2, 3)
    assert base == first(1, "a", 2, 3)
    others = [first(2, "a", 2, 3), first(1, "b", 2, 3), first(1, "a", 3, 3), first(1, "a", 2, 4)]
    assert len({base, *others, first(1, "a", 3, 2)}) == 6
    philox = np.random.Philox(key=[1, 0xE8B7BE43], counter=[0, 0, 2, 3])  # crc32("a")
    assert base == np.random.Generator(philox).random()


def test_windows_literal() -> None:
    starts, lengths = pipeline.windows(np.array([0, 7, 7, 10, 11]), 3)
    np.testing.assert_array_equal(starts, [0, 3, 6, 7, 10])
    np.testing.assert_array_equal(lengths, [3, 3, 1, 3, 1])


def test_document_rows_literal() -> None:
    ex = examples(text([3, 4], [2]), make(7), 4, train=False, masked=False)
    assert (ex.num_examples, ex.num_eval_batches()) == (3, 1)
    batch = ex.batch(0, np.arange(4))
    np.testing.assert_array_equal(
        batch["tokens"],
        [[2, 10, 11, 12, 13, 14, 3], [2, 15, 16, 3, 0, 0, 0], [2, 17, 18, 3, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]],
    )
    real = [[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0], [0] * 7]
    np.testing.assert_array_equal(batch["segment_ids"], real)
    np.testing.assert_array_equal(batch["positions"], np.arange(7) * np.array(real))
    np.testing.assert_array_equal(batch["type_ids"], np.zeros((4, 7)))
    assert all(value.dtype == np.int32 for value in batch.values())
    assert ex.fill_share == pytest.approx((7 + 4 + 4) / 21)


def test_sentence_rows_literal() -> None:
    ex = examples(text([1, 6], [2]), make(7, data__unit="sentence"), 4, train=False, masked=False)
    np.testing.assert_array_equal(
        ex.batch(0, np.arange(4))["tokens"],
        [[2, 10, 3, 0, 0, 0, 0], [2, 11, 12, 13, 14, 15, 3], [2, 16, 3, 0, 0, 0, 0], [2, 17, 18, 3, 0, 0, 0]],
    )


def test_packed_rows_literal() -> None:
    split = text([6, 2], [4])
    ex = examples(split, make(10, data__unit="sentence", data__packing=True), 2, train=False, masked=False)
    batch = ex.batch(0, np.arange(2))
    rows = {int(batch["tokens"][i, 1]): {key: value[i] for key, value in batch.items()} for i in (0, 1)}
    np.testing.assert_array_equal(rows[10]["tokens"], [2, 10, 11, 12, 13, 14, 15, 3, 0, 0])
    row = rows[18]
    np.testing.assert_array_equal(row["tokens"], [2, 18, 19, 20, 21, 3, 2, 16, 17, 3])
    np.testing.assert_array_equal(row["segment_ids"], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2])
    np.testing.assert_array_equal(row["positions"], [0, 1, 2, 3, 4, 5, 0, 1, 2, 3])
    np.testing.assert_array_equal(row["type_ids"], np.zeros(10))
    assert ex.fill_share == pytest.approx(18 / 20)


def test_pair_rows_literal() -> None:
    split = text([2, 3], [2, 3])
    config = make(10, nsp__weight=1.0, nsp__short_share=0.0)
    ex = examples(split, config, 40, masked=False)
    batch = ex.batch(0, np.arange(40))
    expected = {
        (0, 10): [2, 10, 11, 3, 12, 13, 14, 3, 0, 0],
        (0, 15): [2, 15, 16, 3, 17, 18, 19, 3, 0, 0],
        (1, 10): [2, 10, 11, 3, 17, 18, 19, 3, 0, 0],
        (1, 15): [2, 15, 16, 3, 12, 13, 14, 3, 0, 0],
    }
    seen = set()
    for row, label in zip(batch["tokens"], batch["pair_labels"].tolist(), strict=True):
        seen.add((label, int(row[1])))
        np.testing.assert_array_equal(row, expected[label, int(row[1])])
    assert seen == set(expected)
    np.testing.assert_array_equal(batch["segment_ids"], [[1] * 8 + [0] * 2] * 40)
    np.testing.assert_array_equal(batch["positions"], [[0, 1, 2, 3, 4, 5, 6, 7, 0, 0]] * 40)
    np.testing.assert_array_equal(batch["type_ids"], [[0, 0, 0, 0, 1, 1, 1, 1, 0, 0]] * 40)
    assert math.isnan(ex.fill_share)


@pytest.mark.parametrize("mode", MODES)
def test_batches_are_pure(mode: str) -> None:
    split, config = long_text(), make(**MODES[mode])
    ex = examples(split, config, 16)
    everything = np.arange(16)
    # Steps in another order, from a fresh object, and with rows of several epochs in one batch.
    far = 10 * ex.num_examples // 16
    steps = [0, 1, far, 5]
    batches = {step: ex.batch(step, everything) for step in steps}
    fresh = examples(split, config, 16)
    for step in reversed(steps):
        assert equal(fresh.batch(step, everything), batches[step])
    rows = np.array([11, 2, 7, 2])
    for step in steps:
        part = fresh.batch(step, rows)
        assert equal(part, {key: value[rows] for key, value in batches[step].items()})
    halves = [fresh.batch(far, np.arange(8)), fresh.batch(far, np.arange(8, 16))]
    joined = {key: np.concatenate([half[key] for half in halves]) for key in halves[0]}
    assert equal(joined, batches[far])
    other = make(**MODES[mode])
    other.seed = 1
    assert not equal(examples(split, other, 16).batch(0, everything), batches[0])


@pytest.mark.parametrize("mode", MODES)
def test_any_batch_size_makes_the_same_examples(mode: str) -> None:
    split, config = long_text(20), make(**MODES[mode])
    small, large = examples(split, config, 4), examples(split, config, 12)
    parts = [small.batch(step, np.arange(4)) for step in (3, 4, 5)]
    assert equal({k: np.concatenate([p[k] for p in parts]) for k in parts[0]}, large.batch(1, np.arange(12)))


def units(batch: dict[str, np.ndarray]) -> list[tuple[int, ...]]:
    """Returns the text of every unit of a batch without masks."""
    found = []
    for row, segment in zip(batch["tokens"], batch["segment_ids"], strict=True):
        for unit in range(1, segment.max() + 1):
            inside = row[segment == unit]
            assert (inside[0], inside[-1]) == (2, 3)
            found.append(tuple(inside[1:-1].tolist()))
    return found


@pytest.mark.parametrize("mode", ["windows", "sentences", "packed"])
def test_every_epoch_holds_every_token_once(mode: str) -> None:
    split = long_text()
    ex = examples(split, make(**MODES[mode]), 7, masked=False)
    n = ex.num_examples
    batches = -(-3 * n // 7)
    rows = [ex.batch(step, np.arange(7)) for step in range(batches)]
    whole = {key: np.concatenate([b[key] for b in rows]) for key in rows[0]}
    orders = []
    for epoch in range(3):
        here = units({key: value[epoch * n : (epoch + 1) * n] for key, value in whole.items()})
        orders.append(here)
        assert sorted(t for unit in here for t in unit) == split.tokens.tolist()
        borders = split.sentences if mode != "windows" else split.sentences[split.documents]
        for unit in here:  # one run of text that crosses no border
            assert unit == tuple(range(unit[0], unit[0] + len(unit)))
            first, last = np.searchsorted(borders, [unit[0] - 10, unit[-1] - 10], "right")
            assert first == last
    assert orders[0] != orders[1] != orders[2]
    positions = whole["positions"][whole["segment_ids"] > 0]
    assert ((positions == 0) == (whole["tokens"][whole["segment_ids"] > 0] == 2)).all()


def test_masks_change_with_the_epoch_and_stay_in_evaluation() -> None:
    split, config = text([20] * 3), make()
    train = examples(split, config, 2)
    first = {tuple(train.batch(step, np.arange(2))["mlm_positions"].ravel()) for step in range(9)}
    assert len(first) == 9
    evaluation = examples(split, config, 2, train=False)
    assert equal(evaluation.batch(0, np.arange(2)), evaluation.batch(0, np.arange(2)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch_size", [3, 8, 1000])
def test_evaluation_takes_everything_once(mode: str, batch_size: int) -> None:
    split = long_text(9)
    ex = examples(split, make(**MODES[mode]), batch_size, train=False)
    batches = [ex.batch(step, np.arange(batch_size)) for step in range(ex.num_eval_batches())]
    whole = {key: np.concatenate([b[key] for b in batches]) for key in batches[0]}
    real = whole["segment_ids"][:, 0] > 0
    assert real.sum() == ex.num_examples
    assert real[: ex.num_examples].all()
    for key, value in whole.items():
        assert not value[~real].any(), key
        assert len(value) == len(batches) * batch_size
    # The same examples and masks whatever the batch size.
    one = examples(split, make(**MODES[mode]), ex.num_examples, train=False)
    assert equal({k: v[real] for k, v in whole.items()}, one.batch(0, np.arange(ex.num_examples)))
    if mode not in ("pairs", "order"):
        plain = examples(split, make(**MODES[mode]), ex.num_examples, train=False, masked=False)
        found = [t for unit in units(plain.batch(0, np.arange(ex.num_examples))) for t in unit]
        assert sorted(found) == split.tokens.tolist()
        if mode != "packed":
            assert found == split.tokens.tolist()


def test_order_rows_literal() -> None:
    ex = examples(text([2, 3]), make(10, sop__weight=1.0, sop__short_share=0.0), 40, masked=False)
    batch = ex.batch(0, np.arange(40))
    expected = [[2, 10, 11, 3, 12, 13, 14, 3, 0, 0], [2, 12, 13, 14, 3, 10, 11, 3, 0, 0]]
    for row, types, label in zip(batch["tokens"], batch["type_ids"], batch["pair_labels"], strict=True):
        np.testing.assert_array_equal(row, expected[label])
        np.testing.assert_array_equal(
            types, [[0] * 4 + [1] * 4 + [0] * 2, [0] * 5 + [1] * 3 + [0] * 2][label]
        )
    assert set(batch["pair_labels"].tolist()) == {0, 1}
    assert math.isnan(ex.fill_share)


@pytest.mark.parametrize("mode", MODES)
def test_phases_and_parts_have_orders_and_masks_of_their_own(mode: str) -> None:
    split, config, rows = long_text(), make(**MODES[mode]), np.arange(24)

    def made(train: bool = True, **options: int) -> dict[str, np.ndarray]:
        ex = pipeline.Examples(
            split, Tokenizer(), config, objectives=[Masked()], batch_size=24, train=train, **options
        )
        assert ex.num_examples == first.num_examples
        return ex.batch(0, rows)

    first = examples(split, config, 24)
    base = first.batch(0, rows)
    assert equal(made(), base) and equal(made(phase=0, part=0, seq_len=32), base)
    later = [made(phase=1), made(phase=2), made(part=1), made(part=1, phase=1)]
    for number, batch in enumerate(later):
        for other in [base, *later[:number]]:
            assert not np.array_equal(batch["tokens"], other["tokens"])
            assert not np.array_equal(batch["mlm_positions"], other["mlm_positions"])
    # An evaluation is the same in every phase.
    assert equal(made(train=False, phase=1), made(train=False))
    if mode in ("windows", "sentences"):
        assert not equal(made(train=False, part=1), made(train=False))
    longer = pipeline.Examples(
        split, Tokenizer(), config, objectives=[], batch_size=24, train=True, seq_len=48, phase=1
    )
    assert longer.batch(3, rows)["tokens"].shape == (24, 48)


def test_limited_evaluation_is_spread_over_the_text() -> None:
    split, config = text([30] * 100), make(train__eval_rows=10)
    ex = examples(split, config, 4, train=False, masked=False)
    assert (ex.num_examples, ex.num_eval_batches()) == (10, 3)
    tokens = np.concatenate([ex.batch(step, np.arange(4))["tokens"] for step in range(3)])
    np.testing.assert_array_equal(tokens[:, 1], [*(10 + 300 * np.arange(10)), 0, 0])


def test_step_ten_million_costs_what_step_ten_does() -> None:
    split = long_text(400)
    rows = np.arange(32)
    for mode in MODES.values():
        ex = examples(split, make(**mode), 32)
        ex.batch(0, rows)

        def seconds(step: int, ex: pipeline.Examples = ex) -> float:
            start = time.perf_counter()
            ex.batch(step, rows)
            return time.perf_counter() - start

        near = min(seconds(step) for step in range(10, 16))
        far = min(seconds(step) for step in range(10_000_000, 10_000_006))
        assert far < 10 * near + 0.05


def test_empty_text() -> None:
    split = Split(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int32))
    with pytest.raises(ValueError, match=r"evaluation split has no text.*data.eval_fraction"):
        examples(split, make(), 2, train=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorFlow, at import
def test_dataset_is_the_batches_in_order() -> None:
    ex = examples(long_text(), make(), 8)
    rows = np.array([1, 6])
    found = list(pipeline.dataset(ex, 5, 25, rows, workers=2, prefetch=2))
    assert len(found) == 20
    for step, batch in enumerate(found, 5):
        expected = ex.batch(step, rows)
        assert equal(batch, expected)
        assert all(batch[key].dtype == value.dtype for key, value in expected.items())
    assert list(pipeline.dataset(ex, 5, 5, rows)) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dataset_raises_what_the_batch_raised() -> None:
    class Broken:
        def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
            if step >= 3:
                raise FileNotFoundError(f"shard of step {step} is gone")
            return {"tokens": np.full((2, 4), step, np.int32)}

    found = []
    with pytest.raises(FileNotFoundError, match=r"^shard of step 3 is gone$"):
        for batch in pipeline.dataset(Broken(), 0, 9, np.arange(2), workers=2):
            found.append(int(batch["tokens"][0, 0]))
    assert found == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match="step 5"):
        next(pipeline.dataset(Broken(), 5, 9, np.arange(2)))
