"""Windows of long contexts, literally; labels; characters of tokens in odd and in real text."""

import json
import pathlib
import random
from typing import Any

import numpy as np
import pytest
import tasks_data

from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.tasks import answer_scores
from bert_jax.tasks.answers import _labels
from bert_jax.tasks.passages import Reader

LETTERS = "a b c d a b c d a b c d"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    return tasks_data.tokenizer(tmp_path_factory.mktemp("vocabulary"), [*tasks_data.VOCABULARY, "##e", "##s"])


def test_windows_rows_and_labels_of_a_hand_made_document(tokenizer: Any) -> None:
    reader = Reader(tokenizer, seq_len=12, stride=3, max_question=2)
    question, document = reader.question("a b c d"), reader.document(LETTERS)
    assert question == [5, 6]  # cut
    windows = reader.windows(question, document)
    found = [(w.place, w.first, w.stop, (w.first + np.flatnonzero(w.own)).tolist()) for w in windows]
    assert found == [
        (4, 0, 7, [0, 1, 2, 3, 4]),
        (4, 3, 10, [5, 6, 7]),  # token 5 has two before it here, and one behind it in the first window
        (4, 6, 12, [8, 9, 10, 11]),
    ]
    rows = [reader.row(question, document, window) for window in windows]
    assert [ids for ids, _ in rows] == [
        [2, 5, 6, 3, 5, 6, 7, 8, 5, 6, 7, 3],
        [2, 5, 6, 3, 8, 5, 6, 7, 8, 5, 6, 3],
        [2, 5, 6, 3, 7, 8, 5, 6, 7, 8, 3],
    ]
    assert rows[2][1] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    place = document.tokens(10, 15)  # "b c d" of tokens 5 to 7
    assert place == (5, 7)
    assert [_labels(place, window) for window in windows] == [(0, 0), (6, 8), (0, 0)]
    assert [_labels((6, 6), window) for window in windows] == [(10, 10), (7, 7), (4, 4)]
    assert [_labels(None, window) for window in windows] == [(0, 0)] * 3


def test_a_token_with_like_context_is_of_the_earlier_window(tokenizer: Any) -> None:
    reader = Reader(tokenizer, seq_len=12, stride=2, max_question=2)
    windows = reader.windows([5, 6], reader.document("a b c d a b c d a"))
    # Token 4 has two tokens on its poorer side in both.
    assert [(w.first, w.stop, w.own.tolist()) for w in windows] == [
        (0, 7, [True] * 5 + [False] * 2),
        (2, 9, [False] * 3 + [True] * 4),
    ]


@pytest.mark.parametrize("separators", [1, 2])
def test_every_token_is_judged_once(tmp_path: pathlib.Path, separators: int) -> None:
    draw = random.Random(0)
    tokenizer = tasks_data.tokenizer(tmp_path)
    tokenizer.pair_separators = separators  # two, as RoBERTa has it
    for _ in range(100):
        seq_len = draw.randint(8, 20)
        reader = Reader(tokenizer, seq_len, draw.randint(1, 9), 3)
        length = draw.randint(0, 60)
        question = [5] * draw.randint(0, 3)
        document = reader.document(" ".join("a" * length))
        windows = reader.windows(question, document)
        judged = [t for w in windows for t in (w.first + np.flatnonzero(w.own)).tolist()]
        assert judged == list(range(length))
        assert (windows[0].first, windows[-1].stop) == (0, length)
        for window in windows:
            ids, type_ids = reader.row(question, document, window)
            assert len(ids) == len(type_ids) <= seq_len
            read = ids[window.place : window.place + window.stop - window.first]
            assert read == document.ids[window.first : window.stop].tolist()


@pytest.mark.parametrize(
    ("text", "answer", "said"),
    [
        ("a b\u00a0c d", "b\u00a0c", "b\u00a0c"),  # a space that does not break
        ("a  b   c", "b   c", "b   c"),
        ("a \u200bb\u200b c", "b", "b"),  # characters of no width
        ("a be\u0301 c", "be\u0301", "be\u0301"),  # an accent of its own, which the tokenizer strips
        ("a b\u00e9 c", "b\u00e9", "b\u00e9"),
        ("b\u0301\u0323", "b\u0301\u0323", "b\u0301\u0323"),
        ("\u0301a b", "b", "b"),
        ("a \U0001f600 b c", "b c", "b c"),  # a character of two UTF-16 units
        ("a \u4e2db\u6587 c", "b", "b"),
        ("a \ud800 b", "b", "b"),  # half of a surrogate pair
        ("A B", "b".upper(), "B"),
        ("a b\t\n c", " b\t", "b"),  # white space round it does not belong to it
        ("a bs c", "b", "b"),
        ("a xbs c", "b", "xbs"),  # within a word that the vocabulary does not know
        ("a b, c", "b,", "b,"),
    ],
)
def test_an_answer_is_a_part_of_the_text(tokenizer: Any, text: str, answer: str, said: str) -> None:
    document = Reader(tokenizer, 32, 8, 8).document(text)
    start = text.index(answer)
    place = document.tokens(start, start + len(answer))
    assert place is not None
    assert document.text[slice(*document.characters(*place))] == said
    assert (document.starts[1:] >= document.ends[:-1]).all()


def test_bytes_of_a_character_are_all_of_it() -> None:
    tokenizer = tokenizer_lib.train_bytebpe(["a caf\u00e9 is a place"] * 9, 270)
    text = "a \U0001f600\u00e9  caf\u00e9\u00a0is"
    document = Reader(tokenizer, 64, 8, 8).document(text)
    for answer in ("\U0001f600", "\U0001f600\u00e9", "\u00e9  caf\u00e9", "caf\u00e9\u00a0is", "is", "a"):
        start = text.index(answer)
        place = document.tokens(start, start + len(answer))
        assert place is not None and text[slice(*document.characters(*place))] == answer
    white = [text[s:e] for s, e, shown in zip(document.starts, document.ends, document.shown, strict=True)
             if not shown]  # fmt: skip
    assert white and all(each.isspace() for each in white)  # such tokens neither begin nor end an answer


def test_a_text_without_tokens_is_no_answer(tokenizer: Any) -> None:
    document = Reader(tokenizer, 32, 8, 8).document("a \u200b\u200b b")
    assert document.tokens(2, 4) is None
    assert len(Reader(tokenizer, 32, 8, 8).document("\u200b").ids) == 0


@pytest.mark.parametrize(
    ("vocabulary", "inexact"),
    [
        ("bert-base-uncased-vocab.txt", 15),
        ("bert-base-cased-vocab.txt", 18),
        ("hf_fixtures/spiece.model", 19),
    ],
)
def test_tokens_of_real_answers_are_their_texts(
    test_data: pathlib.Path, vocabulary: str, inexact: int
) -> None:
    reader = Reader(tokenizer_lib.load(test_data / "tokenizers" / vocabulary), 384, 128, 64)
    whole = json.loads((test_data / "squad" / "dev-v2.0-cs224n.noxquad.json").read_text())
    paragraphs = [p for article in whole["data"] for p in article["paragraphs"]]
    count, longer, best = 0, [], []
    for paragraph in paragraphs:
        text = paragraph["context"]
        document = reader.document(text)
        for qa in paragraph["qas"]:
            said = []
            for answer in qa["answers"]:
                start = answer["answer_start"]
                place = document.tokens(start, start + len(answer["text"]))
                assert place is not None
                said.append(text[slice(*document.characters(*place))])
                count += 1
                if said[-1] != answer["text"].strip():
                    longer.append((answer["text"], said[-1]))
            if said:
                best.append(answer_scores.of_question(said[0], [a["text"] for a in qa["answers"]], True))
    assert count == 8888
    # Those that begin or end within a token, as Japan in Japanese: the token is theirs as a whole.
    assert len(longer) == inexact and all(answer in said for answer, said in longer)
    assert best == [(1.0, 1.0)] * 2575  # what is learnt is right by the official rules
