"""Next-sentence pairs: where they come from, and that their form does not give the label away."""

import numpy as np
import pytest
import scipy.stats

from bert_jax.data.ordering import generators
from bert_jax.data.pairs import Pairs, chunks, truncate

SURE = 1e-5


def text(documents: int, seed: int = 0, mean: int = 12, sentences: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Returns sentence and document borders of a random text."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 2 * sentences, documents)
    borders = np.concatenate([[0], np.cumsum(counts)])
    lengths = 1 + rng.negative_binomial(3, 3 / (mean + 2), borders[-1])
    return np.concatenate([[0], np.cumsum(lengths)]), borders


def draw(examples: np.ndarray, epoch: int = 0) -> list[np.random.Generator]:
    return generators(1, "pairs", np.full(len(examples), epoch), examples)


def test_chunks_literal() -> None:
    # Sentence lengths by document: 3 3 3 3 3 | 9 | 1 1 | 4 9 2 2 1
    lengths = [3, 3, 3, 3, 3, 9, 1, 1, 4, 9, 2, 2, 1]
    sentences = np.concatenate([[0], np.cumsum(lengths)])
    first, last = chunks(sentences, np.array([0, 5, 6, 8, 13]), 5)
    # 3 3 | 3 3 3 (a single one is left over); 9 is alone; 1 1 is short; 4 9 (two at least) | 2 2 1.
    np.testing.assert_array_equal(first, [0, 2, 6, 8, 10])
    np.testing.assert_array_equal(last, [2, 5, 8, 10, 13])


def test_chunks_hold_every_sentence_once() -> None:
    sentences, documents = text(300)
    first, last = chunks(sentences, documents, 61)
    covered = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    single = documents[:-1][np.diff(documents) == 1]
    np.testing.assert_array_equal(covered, np.setdiff1d(np.arange(len(sentences) - 1), single))
    assert (last - first >= 2).all()


def test_truncation_is_that_of_the_loop() -> None:
    rng = np.random.default_rng(0)
    a, b, target = rng.integers(1, 40, 500), rng.integers(1, 40, 500), rng.integers(2, 60, 500)
    found_a, found_b = truncate(a, b, target)
    for i in range(500):
        x, y = int(a[i]), int(b[i])
        while x + y > target[i]:
            if x > y:
                x -= 1
            else:
                y -= 1
        assert (found_a[i], found_b[i]) == (x, y)
        assert min(x, y) >= 1


@pytest.fixture(scope="module")
def drawn() -> tuple:
    sentences, documents = text(400)
    pairs = Pairs(sentences, documents, 64, short_share=0.1)
    examples = np.tile(np.arange(pairs.num_examples), 12)
    epochs = np.repeat(np.arange(12), pairs.num_examples)
    return sentences, documents, pairs, examples, pairs.spans(examples, generators(1, "p", epochs, examples))


def test_half_is_random(drawn: tuple) -> None:
    spans = drawn[-1]
    assert spans.labels.dtype == np.int32
    assert scipy.stats.binomtest(int(spans.labels.sum()), len(spans.labels), 0.5).pvalue > SURE


def test_true_b_follows_and_random_b_is_of_another_document(drawn: tuple) -> None:
    sentences, documents, _, _, spans = drawn
    follows = spans.labels == 0

    def document(token: np.ndarray) -> np.ndarray:
        return np.searchsorted(sentences[documents], token, side="right") - 1

    home = document(spans.a_start)
    b_first, b_last = document(spans.b_start), document(spans.b_start + spans.b_length - 1)
    assert (home[follows] == b_first[follows]).all()
    assert (home[~follows] != b_first[~follows]).all()
    np.testing.assert_array_equal(b_first, b_last)
    # Nothing but the end of A's last and the start of B's first sentences is cut out between them.
    gap = spans.b_start - (spans.a_start + spans.a_length)
    assert (gap[follows] >= 0).all()
    untouched = follows & (spans.a_length + spans.b_length < 61)
    assert (gap[follows] == 0).mean() > 0.2
    assert untouched.any()


def test_lengths(drawn: tuple) -> None:
    spans = drawn[-1]
    total = spans.a_length + spans.b_length
    assert min(spans.a_length.min(), spans.b_length.min()) >= 1
    assert total.max() == 61
    full = (total == 61).mean()
    assert 0.6 < full < 0.92  # a tenth is short on purpose, and the ends of documents are


def test_form_does_not_tell_the_label(drawn: tuple) -> None:
    sentences, _, _, _, spans = drawn
    random = spans.labels == 1
    for value in (spans.a_length, spans.b_length, spans.a_length + spans.b_length):
        assert scipy.stats.ks_2samp(value[random], value[~random]).pvalue > 1e-3
    border = np.zeros(sentences[-1] + 1, bool)
    border[sentences] = True
    a_end, b_end = spans.a_start + spans.a_length, spans.b_start + spans.b_length
    for token in (spans.a_start, a_end, spans.b_start, b_end):
        cut = ~border[token]
        assert abs(cut[random].mean() - cut[~random].mean()) < 0.03


def test_random_b_takes_all_other_documents() -> None:
    sentences, documents = np.arange(0, 4 * 40 + 1, 2), np.array([0, 20, 40, 60, 80])
    pairs = Pairs(sentences, documents, 13, short_share=0.0)
    examples = np.repeat(np.arange(pairs.num_examples), 400)
    spans = pairs.spans(examples, draw(np.arange(len(examples)) * pairs.num_examples))
    spans_b = pairs.spans(np.zeros(6000, np.int64), draw(np.arange(6000)))
    random = spans_b.labels == 1
    counts = np.bincount(spans_b.b_start[random] // 40, minlength=4)
    assert counts[0] == 0
    assert scipy.stats.chisquare(counts[1:]).pvalue > SURE
    assert ((spans.a_start // 40 != spans.b_start // 40) == (spans.labels == 1)).all()


def test_short_pairs_are_uniform() -> None:
    sentences, documents = np.arange(0, 2001, 1), np.array([0, 1000, 2000])
    pairs = Pairs(sentences, documents, 23, short_share=1.0)
    examples = np.zeros(5000, np.int64)
    spans = pairs.spans(examples, draw(np.arange(5000)))
    counts = np.bincount(spans.a_length + spans.b_length, minlength=21)
    assert not counts[:2].any()
    assert scipy.stats.chisquare(counts[2:21]).pvalue > SURE


def test_tokens_are_dropped_from_both_ends_by_a_fair_coin() -> None:
    sentences = np.arange(0, 401, 100)
    pairs = Pairs(sentences, np.array([0, 2, 4]), 23, short_share=0.0)
    spans = pairs.spans(np.zeros(4000, np.int64), draw(np.arange(4000)))
    for start, length in ((spans.a_start, 10), (spans.b_start, 10)):
        front = start % 100  # of the 90 tokens that are dropped
        assert abs(front.mean() - 45) < 0.5
        assert abs(front.var() / (90 / 4) - 1) < 0.12
        assert (start % 100 + length <= 100).all()
    assert (spans.a_length == 10).all() and (spans.b_length == 10).all()


def test_short_other_documents_give_what_they_have() -> None:
    # The other document has 4 tokens; B of the long one is longer.
    sentences = np.array([0, 20, 40, 42, 44])
    pairs = Pairs(sentences, np.array([0, 2, 4]), 43, short_share=0.0)
    spans = pairs.spans(np.zeros(50, np.int64), draw(np.arange(50)))
    random = spans.labels == 1
    assert (spans.b_start[random] == 40).all()
    assert (spans.b_length[random] == 4).all()
    assert (spans.b_length[~random] == 20).all()


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([0, 4], "data.document_marker"),
        ([0, 0, 4, 4], "data.document_marker"),
        ([0, 1, 2, 3, 4], "two sentences"),
    ],
)
def test_text_without_pairs(documents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pairs(np.array([0, 5, 10, 15, 20]), np.array(documents), 32, short_share=0.1)


def test_too_short_rows() -> None:
    with pytest.raises(ValueError, match=r"data.seq_len = 4"):
        Pairs(np.array([0, 5, 10, 15, 20]), np.array([0, 2, 4]), 4, short_share=0.1)
