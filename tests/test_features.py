"""Batches of labelled rows: literal rows, cutting, order, and every example once."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
import tasks_data

from bert_jax import build, sharding
from bert_jax import step as step_lib
from bert_jax.objectives.classification import Classification
from bert_jax.tasks import features as features_lib
from bert_jax.tasks.features import Examples, Features


def config(**keys: Any) -> Any:
    return tasks_data.config("cola", "somewhere", **keys)


def features(tokenizer: Any, lengths: list[int], train: bool, size: int = 4, **keys: Any) -> Features:
    """Texts of so many words, labelled by turns."""
    texts = [" ".join("abcd"[j % 4] for j in range(n)) for n in lengths]
    labels = [i % 2 for i in range(len(texts))]
    return Features(texts, labels, tokenizer, config(**keys), batch_size=size, train=train)


def test_a_row_literally(tokenizer: Any) -> None:
    batch = features(tokenizer, [2, 4], train=False, data__buckets=(7,)).batch(0, np.arange(4))
    assert batch["tokens"].tolist() == [[2, 5, 6, 3, 0, 0, 0], [2, 5, 6, 7, 8, 3, 0], [0] * 7, [0] * 7]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 1, 0, 0, 0], [1] * 6 + [0], [0] * 7, [0] * 7]
    assert batch["positions"].tolist() == [[0, 1, 2, 3, 0, 0, 0], [0, 1, 2, 3, 4, 5, 0], [0] * 7, [0] * 7]
    assert not batch["type_ids"].any()
    assert batch["labels"].tolist() == [0, 1, 0, 0]
    assert batch["weights"].tolist() == [1, 1, 0, 0]
    assert {name: x.dtype.name for name, x in batch.items()} == {
        **dict.fromkeys(("tokens", "segment_ids", "positions", "type_ids", "labels"), "int32"),
        "weights": "float32",
    }


def test_a_pair_literally(tokenizer: Any) -> None:
    made = Features(
        ["a b", "a"], [0.5, 2], tokenizer, config(data__buckets=(8,)),
        pairs=["c", "b c d"], batch_size=3, train=False,
    )  # fmt: skip
    batch = made.batch(0, np.arange(3))
    assert batch["tokens"].tolist() == [[2, 5, 6, 3, 7, 3, 0, 0], [2, 5, 3, 6, 7, 8, 3, 0], [0] * 8]
    assert batch["type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 0], [0] * 8]
    assert batch["segment_ids"].sum(1).tolist() == [6, 7, 0]
    assert batch["labels"].tolist() == [0.5, 2.0, 0.0]
    assert batch["labels"].dtype == np.float32


def test_choices_are_rows_of_one_example(tokenizer: Any) -> None:
    # Two examples of three choices; the batch has room for three.
    made = Features(
        ["a", "a", "a", "b", "b", "b"], [2, 0], tokenizer, config(data__buckets=(8,)),
        pairs=["b", "c", "d d d", "a", "c", "d"], batch_size=3, train=False, choices=3,
    )  # fmt: skip
    assert (made.num_examples, made.num_eval_batches()) == (2, 1)
    batch = made.batch(0, np.arange(3))
    assert {key: x.shape for key, x in batch.items()} == {
        **dict.fromkeys(("tokens", "segment_ids", "positions", "type_ids"), (3, 3, 8)),
        "labels": (3,),
        "weights": (3,),
    }
    assert batch["tokens"][0].tolist() == [
        [2, 5, 3, 6, 3, 0, 0, 0], [2, 5, 3, 7, 3, 0, 0, 0], [2, 5, 3, 8, 8, 8, 3, 0],
    ]  # fmt: skip
    assert batch["labels"].tolist() == [2, 0, 0]
    assert not batch["segment_ids"][2].any()
    alone = made.batch(0, np.array([1]))
    np.testing.assert_array_equal(alone["tokens"][0], batch["tokens"][1])


def test_values_of_each_token_and_of_each_example(tokenizer: Any) -> None:
    made = Examples(
        [[2, 5, 3], [2, 6, 7, 3]], None, tokenizer, config(data__buckets=(6,)), batch_size=3, train=False,
        arrays={"spans": np.array([[1, 2], [3, 4]])},
        per_token={"tags": [[0, 1, 0], [0, 2, 3, 0]], "tag_weights": [[0.0, 1.0, 0.0], [0.0, 1.0, 0.5, 0.0]]},
    )  # fmt: skip
    batch = made.batch(0, np.arange(3))
    assert batch["tags"].tolist() == [[0, 1, 0, 0, 0, 0], [0, 2, 3, 0, 0, 0], [0] * 6]
    assert batch["tag_weights"].tolist() == [[0, 1, 0, 0, 0, 0], [0, 1, 0.5, 0, 0, 0], [0] * 6]
    assert batch["spans"].tolist() == [[1, 2], [3, 4], [0, 0]]
    assert [batch[key].dtype.name for key in ("tags", "tag_weights", "spans")] == [
        "int32",
        "float32",
        "int32",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": []}, "the evaluation split has no example"),
        ({"ids": [[2] * 13]}, "a row of 13 tokens is longer than data.seq_len = 12"),
        ({"arrays": {"labels": np.zeros(3)}}, "3 labels for 2 examples"),
        ({"per_token": {"tags": [[0], [0, 0]]}}, "tags do not have one value for each token"),
        ({"choices": 3}, "2 rows are not 3 for each example"),
    ],
)
def test_rows_that_do_not_fit(tokenizer: Any, change: dict[str, Any], message: str) -> None:
    values = {"ids": [[2, 3], [2, 3]], "type_ids": None, "tokenizer": tokenizer, "config": config()}
    with pytest.raises(ValueError, match=message):
        Examples(**{**values, **change}, batch_size=2, train=False)


@pytest.mark.parametrize(
    ("first", "second", "room", "kept"),
    [
        (3, 4, 7, (3, 4)),
        (3, 9, 8, (3, 5)),
        (9, 3, 8, (5, 3)),
        (9, 8, 8, (4, 4)),
        (9, 8, 9, (5, 4)),
        (8, 9, 9, (4, 5)),
        (9, 9, 9, (4, 5)),
        (20, 0, 8, (8, 0)),
        (4, 5, 8, (4, 4)),
    ],
)
def test_the_longer_text_is_cut_first(first: int, second: int, room: int, kept: tuple[int, int]) -> None:
    assert features_lib.shares(first, second, room) == kept


def test_cutting_pairs_as_transformers_does(tokenizer: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    peer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(tasks_data.VOCABULARY)}, unk_token="[UNK]")
    )
    peer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    peer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    peer.enable_truncation(12, strategy="longest_first")
    texts = [" ".join("abcd"[i % 4] for i in range(n)) for n in range(1, 13)]
    for a in texts:
        ids, types, cut = features_lib.encode(tokenizer, [a] * len(texts), texts, 12)
        theirs = [peer.encode(a, b) for b in texts]
        assert [x.tolist() for x in ids] == [x.ids for x in theirs]
        assert [x.tolist() for x in types] == [x.type_ids for x in theirs]
        assert cut == sum(len(a.split()) + len(b.split()) > 9 for b in texts)


def test_the_row_length_is_of_the_global_batch(tokenizer: Any) -> None:
    # Examples of 3, 4, 6, 8 tokens, then 9; buckets of 6 and 8 below 12 tokens.
    made = features(tokenizer, [1, 2, 4, 6, 7], train=False, size=2, data__buckets=(8, 6))
    assert [made.batch(step, np.arange(2))["tokens"].shape for step in range(3)] == [(2, 6), (2, 8), (2, 12)]
    whole = made.batch(1, np.arange(2))
    for row in range(2):  # a process that has the short row only makes it as long
        for name, value in made.batch(1, np.array([row])).items():
            np.testing.assert_array_equal(value, whole[name][row : row + 1])


def test_truncation_is_counted_and_said(tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = features(tokenizer, [3, 20, 11], train=False)
    assert made.truncated == 2
    assert "2 of 3 evaluation texts are cut to data.seq_len = 12 tokens" in caplog.text
    tokens = made.batch(0, np.arange(3))["tokens"]
    assert (tokens[1] == [2, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 3]).all()


def test_a_vocabulary_of_another_language_is_said(tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    Features(["x y z"], [0], tokenizer, config(), batch_size=1, train=False)
    assert "60.0% of the evaluation tokens are unknown" in caplog.text


def test_training_visits_every_example_once_an_epoch(tokenizer: Any) -> None:
    made = features(tokenizer, [*range(1, 10), 1], train=True)  # 10 examples, 4 a batch
    lengths = [made.batch(s, np.arange(4))["segment_ids"].sum(1).tolist() for s in range(5)]
    flat = np.concatenate(lengths).tolist()
    assert sorted(flat[:10]) == sorted(flat[10:]) == [3, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert flat[:10] != flat[10:]
    weights = [made.batch(s, np.arange(4))["weights"].sum() for s in range(5)]
    assert weights == [4] * 5
    # Any rows of any step, whatever was asked for before.
    again = features(tokenizer, [*range(1, 10), 1], train=True).batch(3, np.array([2, 0]))
    np.testing.assert_array_equal(again["segment_ids"].sum(1), np.array(lengths[3])[[2, 0]])


def test_the_order_is_of_the_seed_and_stays(tokenizer: Any) -> None:
    found = []
    for seed in (0, 1):
        c = config()
        c.seed = seed
        texts = [" ".join("abcd"[j % 4] for j in range(n)) for n in range(1, 9)]
        made = Features(texts, [0] * 8, tokenizer, c, batch_size=8, train=True)
        found.append(made.batch(0, np.arange(8))["segment_ids"].sum(1).tolist())
    # A run of these seeds that was begun before must go on in the same order.
    assert found == [[4, 5, 3, 10, 9, 7, 8, 6], [10, 6, 4, 9, 8, 3, 5, 7]]


def test_another_seed_changes_the_order_alone(tokenizer: Any) -> None:
    made = features(tokenizer, [*range(1, 9)], train=True, size=8)
    again = made.seeded(1)
    orders = [m.batch(0, np.arange(8))["segment_ids"].sum(1).tolist() for m in (made, again)]
    assert orders == [[4, 5, 3, 10, 9, 7, 8, 6], [10, 6, 4, 9, 8, 3, 5, 7]]


def test_some_of_the_training_examples(tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="absl"):
        made = features(tokenizer, [*range(1, 10), 1], train=True, task__train_rows=4)
    assert made.num_examples == 4
    assert "training on 4 of 10 examples, evenly spread (task.train_rows)" in caplog.text
    batch = made.batch(0, np.arange(4))  # those numbered 0, 2, 5 and 7, in some order
    rows = sorted(zip(batch["segment_ids"].sum(1).tolist(), batch["labels"].tolist(), strict=True))
    assert rows == [(3, 0), (5, 0), (8, 1), (10, 1)]
    assert features(tokenizer, [1] * 6, train=False, task__train_rows=4).num_examples == 6
    # Choices stay together, and so do what tokens and examples bring with them.
    made = Examples(
        [[2, n, 3] for n in range(8)], [[0, n, 0] for n in range(8)], tokenizer, config(task__train_rows=2),
        batch_size=2, train=True, choices=2, arrays={"labels": np.arange(4)},
        per_token={"own": [[0, n, 0] for n in range(8)]},
    )  # fmt: skip
    batch = made.batch(0, np.arange(2))
    order = np.argsort(batch["labels"])
    assert batch["labels"][order].tolist() == [0, 2]
    for name in ("tokens", "type_ids", "own"):
        assert batch[name][order, :, 1].tolist() == [[0, 1], [4, 5]]


def test_an_evaluation_counts_each_example_once(tokenizer: Any) -> None:
    made = features(tokenizer, [1] * 10, train=False)
    batches = [made.batch(step, np.arange(4)) for step in range(made.num_eval_batches())]
    labels = np.concatenate([b["labels"][b["weights"] > 0] for b in batches])
    np.testing.assert_array_equal(labels, made.labels)
    assert made.num_eval_batches() == 3
    fewer = features(tokenizer, list(range(1, 11)), train=False, train__eval_rows=3)
    assert fewer.num_examples == 3
    assert fewer.numbers.tolist() == [0, 3, 6]
    assert fewer.labels.tolist() == [0, 1, 0]
    assert fewer.batch(0, np.arange(4))["segment_ids"].sum(1).tolist() == [3, 6, 9, 0]


def test_a_program_is_compiled_once_for_each_row_length(tmp_path: pathlib.Path) -> None:
    """Batches of all lengths from 3 to 12 tokens, three times: a program for each row length."""
    tasks_data.tokenizer(tmp_path)
    rows = "".join(f"x\t{i % 2}\t\t{' '.join('abcd'[j % 4] for j in range(i % 10 + 1))}\n" for i in range(20))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(rows)
    c = tasks_data.config(
        "cola", tmp_path, data__tokenizer=str(tmp_path / "vocab.txt"), data__buckets=(8, 5),
        train__batch_size=1, model__hidden_size=4, model__layers=1, model__heads=1,
        model__feed_forward_size=4, model__max_positions=12,
    )  # fmt: skip
    run = build.build(c, None)
    traced: dict[bool, list[int]] = {True: [], False: []}

    class Noted(Classification):
        training = True

        def sums(self, batch: Any, outputs: Any) -> Any:
            traced[self.training].append(batch["tokens"].shape[-1])
            return super().sums(batch, outputs)

    noted = Noted()
    setup = dataclasses.replace(run.setup, objectives=(noted,))
    update, evaluate = step_lib.make_train_step(setup), step_lib.make_eval_step(setup)
    examples, one = run.task.train, np.arange(1)
    state = run.initial_state(examples.batch(0, one))
    lengths = set()
    for step in range(60):
        batch = sharding.to_devices(examples.batch(step, one), 1, setup.mesh)
        lengths.add(int(batch["segment_ids"].sum()))
        noted.training = True
        state, _ = update(state, batch)
        noted.training = False
        evaluate(state.params, batch)
    assert lengths == set(range(3, 13))
    assert sorted(traced[True]) == sorted(traced[False]) == [5, 8, 12]
