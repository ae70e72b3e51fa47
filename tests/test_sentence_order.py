"""Sentence-order pairs: what they are made of, and that their form does not give the label away."""

import numpy as np
import pytest
import scipy.stats

from bert_jax.data.ordering import generators
from bert_jax.data.sentence_order import OrderPairs

SURE = 1e-5


def text(documents: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns sentence and document borders of a text whose sentences have independent lengths."""
    rng = np.random.default_rng(seed)
    borders = np.concatenate([[0], np.cumsum(rng.integers(1, 60, documents))])
    lengths = 1 + rng.negative_binomial(3, 0.2, borders[-1])
    return np.concatenate([[0], np.cumsum(lengths)]), borders


def draw(examples: np.ndarray, epoch: int = 0) -> list[np.random.Generator]:
    return generators(1, "pairs", np.full(len(examples), epoch), examples)


@pytest.fixture(scope="module")
def drawn() -> tuple:
    """One epoch of a large text: no border twice, so that pairs are nearly independent."""
    sentences, documents = text(8000)
    pairs = OrderPairs(sentences, documents, 64, short_share=0.1)
    examples = np.arange(pairs.num_examples)
    return sentences, documents, pairs, pairs.spans(examples, draw(examples))


def test_half_is_swapped(drawn: tuple) -> None:
    spans = drawn[-1]
    assert spans.labels.dtype == np.int32
    assert scipy.stats.binomtest(int(spans.labels.sum()), len(spans.labels), 0.5).pvalue > SURE


def test_both_segments_are_of_one_document_and_follow_each_other(drawn: tuple) -> None:
    sentences, documents, _, spans = drawn
    swapped = spans.labels == 1
    start = np.where(swapped, [spans.b_start, spans.a_start], [spans.a_start, spans.b_start])
    length = np.where(swapped, [spans.b_length, spans.a_length], [spans.a_length, spans.b_length])
    gap = start[1] - start[0] - length[0]
    assert (gap >= 0).all()
    borders = sentences[documents]
    home = np.searchsorted(borders, start[0], side="right")
    np.testing.assert_array_equal(home, np.searchsorted(borders, start[1] + length[1] - 1, side="right"))
    # They meet, but for what is cut off; and where they are cut, a border lies between them.
    total = spans.a_length + spans.b_length
    assert (gap == 0).mean() > 0.85
    between = np.searchsorted(sentences, start[0] + length[0], side="left")
    assert (sentences[between] <= start[1]).all()
    assert min(spans.a_length.min(), spans.b_length.min()) >= 1
    assert total.max() == 61
    assert total.mean() > 0.8 * 61  # a tenth is short on purpose


def test_borders_are_drawn_alike(drawn: tuple) -> None:
    sentences, _, pairs, spans = drawn
    few = OrderPairs(sentences[:13], np.array([0, 7, 12]), 16, short_share=0.0)
    examples = np.tile(np.arange(few.num_examples), 8000)
    found = few.spans(examples, generators(1, "p", np.repeat(np.arange(8000), few.num_examples), examples))
    # The border lies between the segments, in this short row mostly between single sentences.
    first = np.where(found.labels == 1, found.b_start + found.b_length, found.a_start + found.a_length)
    border = np.searchsorted(sentences, first, side="left")
    counts = np.bincount(border, minlength=13)
    assert not counts[[0, 7, 12]].any()
    expected = np.full(10, len(examples) / 10)
    assert scipy.stats.chisquare(counts[[1, 2, 3, 4, 5, 6, 8, 9, 10, 11]], expected).pvalue > SURE
    # An epoch goes over the whole text.
    place = spans.a_start / sentences[-1] * pairs.num_examples
    assert np.abs(place - np.arange(pairs.num_examples)).max() < 0.02 * pairs.num_examples


def test_form_does_not_tell_the_label(drawn: tuple) -> None:
    """Lengths, and whether each end of a segment is that of a sentence: alike in both classes, jointly."""
    sentences, _, _, spans = drawn
    swapped = spans.labels == 1
    starts = np.zeros(sentences[-1] + 1, bool)
    starts[sentences] = True
    for value in (spans.a_length, spans.b_length, spans.a_length + spans.b_length):
        assert scipy.stats.ks_2samp(value[swapped], value[~swapped]).pvalue > 1e-3
    ends = [
        starts[spans.a_start], starts[spans.a_start + spans.a_length],
        starts[spans.b_start], starts[spans.b_start + spans.b_length],
    ]  # fmt: skip
    assert 0.5 < np.mean(ends) < 0.99  # both kinds of ends are there to be told apart
    difference = spans.a_length - spans.b_length
    ranks = np.searchsorted(np.quantile(difference, np.linspace(0, 1, 9)[1:-1]), difference)
    form = ranks * 16 + ends[0] * 8 + ends[1] * 4 + ends[2] * 2 + ends[3]
    table = np.zeros((2, 128))
    np.add.at(table, (spans.labels, form), 1)
    table = table[:, table.sum(axis=0) >= 20]
    assert table.shape[1] > 40
    assert scipy.stats.chi2_contingency(table).pvalue > SURE
    # Nor does the sentence at either end of a segment: no end is always the one that was cut short of more.
    whole = ends[0] & ends[1] & ends[2] & ends[3]
    for start, length in ((spans.a_start, spans.a_length), (spans.b_start, spans.b_length)):
        first = np.searchsorted(sentences, start[whole], side="left")
        last = np.searchsorted(sentences, start[whole] + length[whole], side="left") - 1
        sizes = np.diff(sentences)
        for value in (sizes[first], sizes[last]):
            found = scipy.stats.ks_2samp(value[swapped[whole]], value[~swapped[whole]])
            assert found.pvalue > 1e-3
        assert scipy.stats.ks_2samp(sizes[first], sizes[last]).pvalue > 1e-3


def test_the_check_of_form_sees_segments_of_unequal_rules(drawn: tuple) -> None:
    """The control: to fill the row from the border on gives the class away."""
    sentences, documents, _, _ = drawn
    rng = np.random.default_rng(0)
    middle = documents[:-1][np.diff(documents) > 20] + 10
    begin = np.searchsorted(sentences, sentences[middle] - 30, side="right") - 1
    end = np.searchsorted(sentences, sentences[middle] + 30, side="left")
    swapped = rng.random(len(middle)) < 0.5
    sizes = np.diff(sentences)
    value = np.where(swapped, sizes[middle], sizes[begin])  # of the first sentence that is read
    assert (end > middle).all()
    assert scipy.stats.ks_2samp(value[swapped], value[~swapped]).pvalue < 1e-3


def test_pairs_are_pure(drawn: tuple) -> None:
    _, _, pairs, spans = drawn
    part = np.array([40, 7, 7, 123])
    some = pairs.spans(part, draw(part))
    for name in ("a_start", "a_length", "b_start", "b_length", "labels"):
        np.testing.assert_array_equal(getattr(some, name), getattr(spans, name)[part])
    other = pairs.spans(part, draw(part, epoch=1))
    assert (other.a_start != some.a_start).any()


def test_short_pairs_are_shorter() -> None:
    sentences, documents = np.arange(0, 2001), np.array([0, 1000, 2000])
    pairs = OrderPairs(sentences, documents, 23, short_share=1.0)
    examples = np.arange(pairs.num_examples)
    totals = []
    for epoch in range(60):
        spans = pairs.spans(examples, draw(examples, epoch))
        totals.append((spans.a_length + spans.b_length)[(spans.a_start > 25) & (spans.a_start < 975)])
    counts = np.bincount(np.concatenate(totals), minlength=21)
    assert not counts[:2].any()
    assert scipy.stats.chisquare(counts[2:21]).pvalue > SURE


def test_one_document_is_enough_and_long_sentences_are_cut() -> None:
    sentences = np.array([0, 100, 200])
    pairs = OrderPairs(sentences, np.array([0, 2]), 23, short_share=0.0)
    assert pairs.num_examples == 1
    examples = np.zeros(4000, np.int64)
    spans = pairs.spans(examples, draw(np.arange(4000)))
    assert (spans.a_length == 10).all() and (spans.b_length == 10).all()
    np.testing.assert_array_equal(spans.a_start >= 100, spans.labels == 1)
    assert ((spans.a_start >= 100) != (spans.b_start >= 100)).all()
    for start in (spans.a_start, spans.b_start):  # of the 90 tokens that go, each from either end
        assert abs((start % 100).mean() - 45) < 0.5


@pytest.mark.parametrize(
    ("documents", "seq_len", "message"),
    [([0, 1, 2, 3, 4], 32, r"two sentences.*objective\.sop\.weight"), ([0, 2, 4], 4, r"data\.seq_len = 4")],
)
def test_text_without_pairs(documents: list[int], seq_len: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OrderPairs(np.array([0, 5, 10, 15, 20]), np.array(documents), seq_len, short_share=0.1)
