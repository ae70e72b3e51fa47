"""Answers in words: normalisation, exact match and F1, in cases worked out by hand."""

import pytest

from bert_jax.tasks import answer_text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The U.S. Army", "us army"),
        ("  a\tcat, an  owl!\n", "cat owl"),
        ("theatre", "theatre"),
        ("“The” Café", "“ ” café"),  # quotes that are not ASCII stay
        ("the", ""),
        ("-5", "5"),
    ],
)
def test_normalisation(text: str, plain: str) -> None:
    assert answer_text.normalized(text) == plain


@pytest.mark.parametrize(
    ("said", "gold", "exact", "f1"),
    [
        ("The cat", "cat.", 1.0, 1.0),
        ("black cat", "the cat", 0.0, 2 / 3),  # 1 of 2 said, 1 of 1 right
        ("cat cat dog", "cat cat cat", 0.0, 2 / 3),  # 2 of 3 on either side
        ("dog", "cat", 0.0, 0.0),
        ("the", "a", 1.0, 1.0),
        ("", "cat", 0.0, 0.0),
    ],
)
def test_scores(said: str, gold: str, exact: float, f1: float) -> None:
    assert answer_text.exact_match(said, gold) == exact
    assert answer_text.f1(said, gold) == pytest.approx(f1)


def test_the_best_of_several_right_answers() -> None:
    golds = ["Ada", "Countess of Lovelace"]
    assert answer_text.best(answer_text.exact_match, "ada", golds) == 1.0
    assert answer_text.best(answer_text.f1, "lovelace", golds) == pytest.approx(2 / 4)
