"""Scores of answers by the rules of SQuAD's scripts, the threshold, and the best answers of logits."""

import numpy as np
import pytest

from bert_jax.tasks import answer_scores, best_spans
from bert_jax.tasks.best_spans import Spans
from bert_jax.tasks.passages import Document, Window


@pytest.mark.parametrize(
    ("said", "right", "exact", "f1"),
    [
        ("The  Cat!", "cat", 1, 1),
        ("the black cat sat", "a cat", 0, 1 / 2),  # 1 of 3 words, and 1 of 1
        ("x x y", "x y y", 0, 2 / 3),  # words count as often as both have them
        ("U.S.", "us", 1, 1),
        ("well-known", "well known", 0, 0),  # a hyphen joins
        ("theatre", "tre", 0, 0),  # an article is a word
        ("a\u00a0cat", "cat", 1, 1),
        ("it\u2019s", "its", 0, 0),  # only ASCII punctuation goes
        ("caf\u00e9", "cafe\u0301", 0, 0),
        ("the", "a", 1, 0),  # nothing is left: alike, and without a word in common
        ("", "cat", 0, 0),
    ],
)
def test_two_texts(said: str, right: str, exact: float, f1: float) -> None:
    assert answer_scores.exact(said, right) == exact
    assert answer_scores.f1(said, right) == pytest.approx(f1)
    assert answer_scores.f1(right, said) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("said", "golds", "nulls", "wanted"),
    [
        ("black cat", ["cat", "the black cat", "dog"], False, (1, 1)),
        ("black cat", ["cat", "dog sat"], False, (0, 2 / 3)),
        ("the", ["a"], False, (1, 0)),
        ("the", ["a"], True, (1, 1)),  # of 2.0 such an answer is none
        ("", ["a", "cat"], True, (0, 0)),  # and does not count where there is another
        ("", [], True, (1, 1)),
        ("cat", [], True, (0, 0)),
        (".", [], True, (1, 1)),
        ("black cat", ["cat", "a"], True, (0, 2 / 3)),
    ],
)
def test_several_answers_and_none(
    said: str, golds: list[str], nulls: bool, wanted: tuple[float, float]
) -> None:
    assert answer_scores.of_question(said, golds, nulls) == pytest.approx(wanted)


def test_the_best_threshold_by_hand() -> None:
    answerable = np.array([True, False, True, False])
    scores, odds = np.array([1.0, 0.0, 0.5, 0.0]), np.array([-2.0, -1.0, 0.5, 1.0])
    # All none: 2 of 4. Up to -2: +1. Up to -1: -1, since an answer is given that is not there. Up to .5: +.5.
    assert answer_scores.best_threshold(scores, odds, answerable, np.ones(4, bool)) == (3 / 4, -2.0, -1.0)
    # Where there is nothing to say, nothing is lost by saying it.
    answered = np.array([True, False, True, True])
    assert answer_scores.best_threshold(scores, odds, answerable, answered) == (3.5 / 4, 0.5, 1.0)


def test_the_best_threshold_reaches_what_it_says() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 12))
        answerable, odds = rng.random(n) < rng.random(), rng.integers(-3, 4, n) / 2  # with equal ones
        scores = np.where(answerable, rng.integers(0, 3, n) / 2, 0.0)

        def reached(threshold: float, odds=odds, scores=scores, answerable=answerable) -> float:
            return float(np.mean(np.where(odds > threshold, ~answerable, scores)))

        best, threshold, above = answer_scores.best_threshold(scores, odds, answerable, np.ones(n, bool))
        assert reached(threshold) == reached((threshold + above) / 2) == pytest.approx(best)
        assert best == pytest.approx(max(reached(t) for t in [-9, *odds]))


def document(length: int, hidden: tuple[int, ...] = ()) -> Document:
    """A document of one-letter words, which an answer may not begin or end with where they are hidden."""
    at = np.arange(length, dtype=np.int32) * 2
    shown = ~np.isin(np.arange(length), hidden)
    text = " ".join(chr(97 + n % 26) for n in range(length))
    return Document(text, at, at, at + 1, shown)


def test_the_best_of_a_window_are_the_best_of_all() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        length, place, most, count = (int(rng.integers(1, high)) for high in (9, 5, 6, 12))
        first, hidden = int(rng.integers(0, 4)), tuple(rng.integers(0, 12, 3).tolist())
        whole = document(first + length + 2, hidden)
        window = Window(place, first, first + length, rng.random(length) < 0.7)
        logits = rng.normal(size=(place + length + 3, 2)).astype(np.float32)
        found = best_spans.of_window(logits, whole, window, most, count)
        wanted = sorted(
            (
                -(float(logits[place + i, 0]) + float(logits[place + j, 1])),
                (first + i, first + j),
            )
            for i in range(length)
            for j in range(i, min(i + most, length))
            if window.own[i] and whole.shown[first + i] and whole.shown[first + j]
        )
        assert found.tokens[found.tokens[:, 0] >= 0].tolist() == [list(at) for _, at in wanted[:count]]
        assert (found.tokens[len(wanted) :] == -1).all()
        assert found.null.tolist() == logits[0].tolist()
        if wanted:
            assert found.total == pytest.approx(np.logaddexp.reduce([-score for score, _ in wanted]))
        else:
            assert found.total == -np.inf


def spans(tokens: list[list[int]], logits: list[list[float]], null: list[float], total: float) -> Spans:
    return Spans(
        np.array(tokens, np.int32), np.array(logits, np.float32), np.array(null, np.float32),
        np.float64(total),
    )  # fmt: skip


def test_windows_are_merged() -> None:
    text = document(30)  # a b c .. z a b c d
    one = spans([[0, 1], [1, 1], [-1, -1]], [[3, 1], [1, 1], [0, 0]], [2, 2.5], np.logaddexp(4, 2))
    two = spans([[26, 27], [2, 2], [3, 3]], [[3, 0.5], [1, 2], [0, 0]], [1, 0.5], np.log(1e2))
    said = best_spans.merged(text, [one, two], 3, nulls=True)
    # "a b" stands twice, and counts as its better one; the smaller of the two null scores is the text's.
    assert [(a.text, a.start, a.end, a.score) for a in said.answers] == [
        ("a b", 0, 3, 4.0),
        ("c", 4, 5, 3.0),
        ("b", 2, 3, 2.0),
    ]
    assert (said.null.score, said.odds) == (1.5, -2.5)
    whole = np.exp(4) + np.exp(2) + 1e2 + np.exp(1.5)
    assert said.answers[0].log_prob == pytest.approx(4 - np.log(whole))
    assert np.exp(said.null.log_prob) == pytest.approx(np.exp(1.5) / whole)
    assert [said.text(threshold) for threshold in (None, -2.5, -2.6)] == ["a b", "a b", ""]
    without = best_spans.merged(text, [one, two], 2, nulls=False)
    assert [a.text for a in without.answers] == ["a b", "c"]
    assert without.answers[0].log_prob == pytest.approx(4 - np.log(whole - np.exp(1.5)))


@pytest.mark.parametrize("nulls", [True, False])
def test_a_context_of_nothing_has_no_answer(nulls: bool) -> None:
    empty = document(3, (0, 1, 2))
    window = Window(2, 0, 3, np.ones(3, bool))
    made = best_spans.of_window(np.ones((6, 2), np.float32), empty, window, 5, 4)
    said = best_spans.merged(empty, [made], 4, nulls)
    assert (said.answers, said.text(None), said.text(0.0)) == ((), "", "")
    assert said.odds > 1e8 and np.isfinite(said.odds) and said.null.log_prob == pytest.approx(0)
    nothing = best_spans.of_window(
        np.ones((6, 2), np.float32), document(0), Window(2, 0, 0, np.ones(0, bool)), 5, 4
    )
    assert best_spans.merged(document(0), [nothing], 4, nulls).text(0.0) == ""
