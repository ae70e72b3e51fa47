"""CoLA: reading, features and metrics."""

import pathlib
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import tasks
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.tasks.features import Features

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
GOOD = "x\t1\t\ta b\nx\t0\t*\tb a\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text("\n".join(VOCABULARY))
    return tokenizer_lib.load(file, lowercase=True)


def config(path: pathlib.Path | str = "", **keys: Any) -> ConfigDict:
    c = config_lib.default()
    c.task.name, c.data.path, c.train.batch_size, c.data.seq_len = "cola", str(path), 4, 12
    for key, value in keys.items():
        group, _, name = key.partition("__")
        c[group][name] = value
    return c


def folder(path: pathlib.Path, train: str | bytes = GOOD, dev: str | bytes = GOOD) -> pathlib.Path:
    for name, text in (("train.tsv", train), ("dev.tsv", dev)):
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def features(tokenizer: Any, lengths: list[int], train: bool, size: int = 4, **keys: Any) -> Features:
    """Texts of so many words, labelled by turns."""
    texts = [" ".join("abcd"[j % 4] for j in range(n)) for n in lengths]
    labels = [i % 2 for i in range(len(texts))]
    return Features(texts, labels, tokenizer, config(**keys), batch_size=size, train=train)


def test_the_real_files(test_data: pathlib.Path) -> None:
    tokenizer = tokenizer_lib.load(test_data / "tokenizers/bert-base-uncased-vocab.txt", lowercase=True)
    task = tasks.make(config(test_data / "glue/CoLA", data__seq_len=64), tokenizer)
    assert (task.train.num_examples, task.evals["eval"].num_examples) == (8551, 1043)
    assert np.bincount(task.train.labels).tolist() == [2528, 6023]
    assert np.bincount(task.evals["eval"].labels).tolist() == [322, 721]
    assert (task.train.truncated, task.evals["eval"].truncated) == (0, 0)
    assert (task.labels, task.metric, task.best_mode) == (("unacceptable", "acceptable"), "mcc", "max")
    batch = task.evals["eval"].batch(0, np.arange(1))
    first = "[CLS] the sailors rode the breeze clear of the rocks . [SEP]"
    assert [tokenizer.token(i) for i in batch["tokens"][0] if i != tokenizer.pad_id] == first.split()
    assert batch["labels"].tolist() == [1]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("x\t1\t\ta\nx\t1\ta\n", "train.tsv, line 2: 3 columns: CoLA has 4 and no header"),
        ("sentence\tlabel\n", "train.tsv, line 1: 2 columns"),
        ("x\t1\t\ta\n\n", "train.tsv, line 2: 1 columns"),
        ("x\t1\t\ta\nx\tyes\t\tb\n", r"line 2: label 'yes': it must be 0 \(unacceptable\) or 1"),
        ("x\t1\t\ta\nx\t0\t\t \n", "train.tsv, line 2: the sentence is empty"),
        (b"x\t1\t\ta\nx\t0\t\t\xe9\n", "train.tsv, line 2: not UTF-8"),
        ("x\t1\t\ta\n", "no training example is unacceptable"),
        ("", "train.tsv has no example"),
    ],
)
def test_wrong_files(tmp_path: pathlib.Path, tokenizer: Any, train: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tasks.make(config(folder(tmp_path, train)), tokenizer)


def test_no_files(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    (folder(tmp_path) / "dev.tsv").unlink()
    with pytest.raises(ValueError, match=r"dev\.tsv is not there"):
        tasks.make(config(tmp_path), tokenizer)
    with pytest.raises(ValueError, match=r"neither a folder .* nor a TFDS name"):
        tasks.make(config(tmp_path / "nowhere"), tokenizer)


def test_quotes_and_line_ends_are_text_and_line_ends(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = tasks.make(config(folder(tmp_path, 'x\t1\t\t"a b\r\nx\t0\t\tb"\r\n')), tokenizer)
    tokens = task.train.batch(0, np.arange(2))["tokens"]
    assert sorted(row[row > 0].tolist() for row in tokens) == [[2, 1, 5, 6, 3], [2, 6, 1, 3]]


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


def test_an_evaluation_counts_each_example_once(tokenizer: Any) -> None:
    made = features(tokenizer, [1] * 10, train=False)
    batches = [made.batch(step, np.arange(4)) for step in range(made.num_eval_batches())]
    labels = np.concatenate([b["labels"][b["weights"] > 0] for b in batches])
    np.testing.assert_array_equal(labels, made.labels)
    assert (made.num_eval_batches(), made.num_eval_batches(4), made.num_eval_batches(5)) == (3, 1, 2)
    fewer = features(tokenizer, list(range(1, 11)), train=False, train__eval_rows=3)
    assert fewer.num_examples == 3
    assert fewer.labels.tolist() == [0, 1, 0]  # examples 0, 3 and 6
    assert fewer.batch(0, np.arange(4))["segment_ids"].sum(1).tolist() == [3, 6, 9, 0]


def test_metrics_literally(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    train = GOOD + "x\t1\t\tb b\n"
    task = tasks.make(config(folder(tmp_path, train)), tokenizer)
    task.evals["eval"].labels = np.array([1, 1, 1, 1, 0, 0])
    guesses = np.array([1, 1, 1, 0, 0, 1])  # 3 hits and 1 miss of class 1; 1 and 1 of class 0
    found = task.metrics("eval", {"logits": np.eye(2)[guesses]})
    assert found == pytest.approx(
        {
            "mcc": (3 * 1 - 1 * 1) / np.sqrt(4 * 4 * 2 * 2),
            "accuracy": 4 / 6,
            "predicted_share_unacceptable": 2 / 6,
            "predicted_share_acceptable": 4 / 6,
            "majority_class_accuracy": 4 / 6,
        }
    )


def test_one_class_only_is_said(tmp_path: pathlib.Path, tokenizer: Any, caplog: Any) -> None:
    task = tasks.make(config(folder(tmp_path)), tokenizer)
    for labels in ([0, 1, 1], [1, 1, 1]):
        task.evals["eval"].labels = np.array(labels)
        found = task.metrics("eval", {"logits": np.array([[0.0, 1.0]] * 3)})
        assert found["mcc"] == 0
        assert found["predicted_share_acceptable"] == 1
    assert "all 3 examples are predicted as acceptable" in caplog.text


def test_tfds(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    import tensorflow_datasets as tfds

    class Acceptability(tfds.core.GeneratorBasedBuilder):
        """Sentences in the form of TFDS's glue/cola."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> tfds.core.DatasetInfo:
            features = tfds.features.FeaturesDict(
                {
                    "sentence": tfds.features.Text(),
                    "label": tfds.features.ClassLabel(names=["unacceptable", "acceptable"]),
                    "idx": np.int32,
                }
            )
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, manager: object) -> dict[str, Any]:
            return {"train": self._rows(9), "validation": self._rows(4)}

        def _generate_examples(self) -> None:
            raise NotImplementedError

        def _rows(self, count: int) -> Any:
            for i in range(count):
                yield i, {"sentence": "a " * (i + 1), "label": int(i == 1), "idx": i}

    Acceptability(data_dir=tmp_path).download_and_prepare()
    task = tasks.make(config("acceptability", data__tfds_dir=str(tmp_path)), tokenizer)
    assert (task.train.num_examples, task.evals["eval"].labels.tolist()) == (9, [0, 1, 0, 0])
    assert task.evals["eval"].batch(0, np.arange(4))["segment_ids"].sum(1).tolist() == [3, 4, 5, 6]
    with pytest.raises(ValueError, match="TFDS cannot give this dataset"):
        tasks.make(config("no_such_dataset", data__tfds_dir=str(tmp_path)), tokenizer)
