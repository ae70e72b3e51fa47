"""GLUE: reading files and TFDS, metrics beside their baselines, submissions, and all tasks at once."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tasks_data
from tasks_data import config, words

from bert_jax import config_tasks, tasks, train
from bert_jax.config import ConfigError
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.tasks import suite
from bert_jax.tasks.glue_benchmarks import BENCHMARKS

COLA = "x\t1\t\ta b\nx\t0\t*\tb a\n"
# Two training examples, an evaluation and a test of each task, in the form of its files.
FILES = {
    "sst2": {
        "train.tsv": "sentence\tlabel\na b\t1\nb\t0\n",
        "dev.tsv": "sentence\tlabel\nb a \t0\n",
        "test.tsv": "index\tsentence\n0\tc\n1\td\n",
    },
    "mrpc": {
        "train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb\n0\t7\t8\tc\td\n",
        "dev.tsv": '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta "\tb\n',
        "test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\ta\tb\n1\t1\t2\tc\td\n",
    },
    "qqp": {
        "train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t1\t2\ta\tb\t0\n5\t6\tbroken\n"
        "2\t3\t4\tc\t\t1\n",
        "dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t1\t2\ta\tb\t1\n",
        "test.tsv": "id\tquestion1\tquestion2\n7\ta\tb\n9\tc\td\n",
    },
    "stsb": {
        "train.tsv": "index\tgenre\tsentence1\tsentence2\tscore\n0\tg\ta\tb\t5.0\n1\tg\tb\tc\t2\n",
        "dev.tsv": "index\tgenre\tsentence1\tsentence2\tscore\n0\tg\ta\tb\t1.25\n",
        "test.tsv": "index\tgenre\tsentence1\tsentence2\n0\tg\ta\tb\n1\tg\ta\tc\n",
    },
    "mnli": {
        "train.tsv": "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tneutral\tneutral\n"
        "1\ta\tc\tentailment\tentailment\n2\ta\td\tcontradiction\tcontradiction\n",
        "dev_matched.tsv": "index\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label\n"
        "0\ta\tb\tneutral\tentailment\tentailment\n",
        "dev_mismatched.tsv": "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tb\tc\tneutral\tneutral\n",
        "test_matched.tsv": "index\tsentence1\tsentence2\n0\ta\tb\n1\ta\tc\n",
        "test_mismatched.tsv": "index\tsentence1\tsentence2\n0\ta\tb\n",
    },
    "qnli": {
        "train.tsv": "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n1\ta\tb\tnot_entailment\n",
        "dev.tsv": "index\tquestion\tsentence\tlabel\n0\ta\tb\tnot_entailment\n",
    },
    "rte": {
        "train.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\ta\tb\tnot_entailment\n",
        "dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n",
        "test.tsv": "index\tsentence1\tsentence2\n0\ta\tb\n1\ta\tc\n",
    },
    "wnli": {
        "train.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n1\ta\tb\t0\n",
        "dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n",
    },
    "cola": {"train.tsv": COLA, "dev.tsv": COLA, "test.tsv": "index\tsentence\n0\ta\n1\tb\n"},
}


def folder(path: pathlib.Path, **files: str | bytes) -> pathlib.Path:
    """Writes files, named as train for train.tsv."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        name = name if "." in name else f"{name}.tsv"
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def glue(path: pathlib.Path, name: str, tokenizer: Any, **keys: Any) -> Any:
    """A task on its FILES."""
    return tasks.make(config(name, folder(path / BENCHMARKS[name].folder, **FILES[name]), **keys), tokenizer)


def test_every_name_has_its_family() -> None:
    assert sorted([*tasks.FAMILIES, *suite.SUITES]) == sorted(config_tasks.NAMES)
    assert {*BENCHMARKS, "cola_original"} == {*config_tasks.GLUE}
    assert tuple(suite.SUITES) == config_tasks.SUITES


@pytest.mark.parametrize(
    ("name", "files", "sizes", "first"),
    [
        ("cola", {}, (8551, 1043), "the sailors rode the breeze clear of the rocks ."),
        ("mrpc", {}, (3667, 408), "he said the foods ##er ##vic ##e pie business doesn ' t fit the company"),
        ("qnli", {"task__train_file": "dev.tsv"}, (5463, 5463), "what came into force after the new const"),
        ("rte", {}, (2490, 277), "dana reeve , the widow of the actor christopher reeve , has died of lung"),
        ("sst2", {"task__train_file": "train.first20000.tsv"}, (20000, 872), "it ' s a charming and often"),
        ("stsb", {}, (5749, 1500), "a man with a hard hat is dancing . [SEP] a man wearing a hard hat is"),
        ("wnli", {}, (635, 71), "the drain is cl ##og ##ged with hair . it has to be cleaned . [SEP] the"),
    ],
)
def test_the_real_files(
    test_data: pathlib.Path, name: str, files: dict[str, str], sizes: tuple[int, int], first: str
) -> None:
    tokenizer = tokenizer_lib.load(test_data / "tokenizers/bert-base-uncased-vocab.txt", lowercase=True)
    c = config(name, test_data / "glue" / BENCHMARKS[name].folder, data__seq_len=64, **files)
    task = tasks.make(c, tokenizer)
    assert (task.train.num_examples, task.evals["eval"].num_examples) == sizes
    tokens = task.evals["eval"].batch(0, np.arange(1))["tokens"][0]
    assert " ".join(tokenizer.token(i) for i in tokens[1:] if i != tokenizer.pad_id).startswith(first)
    labels = task.evals["eval"].labels
    counts = {
        "cola": [322, 721], "mrpc": [129, 279], "qnli": [2702, 2761], "rte": [146, 131], "sst2": [428, 444],
        "wnli": [40, 31],
    }  # fmt: skip
    if name == "stsb":
        assert labels[:4].tolist() == [5.0, 4.75, 5.0, pytest.approx(2.4)]
        assert 0 <= labels.min() < labels.max() == 5
    else:
        assert np.bincount(labels).tolist() == counts[name]


def test_cola_as_its_authors_give_it(test_data: pathlib.Path) -> None:
    tokenizer = tokenizer_lib.load(test_data / "tokenizers/bert-base-uncased-vocab.txt", lowercase=True)
    for path in ("glue/CoLA", "glue/CoLA/original"):
        task = tasks.make(config("cola_original", test_data / path, data__seq_len=64), tokenizer)
        assert task.train.num_examples == 8551
        assert {name: split.num_examples for name, split in task.evals.items()} == {
            "eval": 527,
            "out_of_domain": 516,
        }


@pytest.mark.parametrize(
    ("train_file", "message"),
    [
        (
            "x\t1\t\ta\nx\t1\ta\n",
            "train.tsv, line 2: 3 columns: there are, without a header, 4",
        ),
        ("sentence\tlabel\n", "train.tsv, line 1: 2 columns"),
        ("x\t1\t\ta\n\n", "train.tsv, line 2: 1 columns"),
        (
            "x\t1\t\ta\nx\tyes\t\tb\n",
            r"line 2: label 'yes': it must be 0 \(unacceptable\) or 1",
        ),
        ("x\t1\t\ta\nx\t0\t\t \n", "train.tsv, line 2: the sentence is empty"),
        (b"x\t1\t\ta\nx\t0\t\t\xe9\n", "train.tsv, line 2: not UTF-8"),
        ("x\t1\t\ta\n", "no training example is unacceptable"),
        ("", "train.tsv has no example"),
    ],
)
def test_wrong_files(tmp_path: pathlib.Path, tokenizer: Any, train_file: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tasks.make(config("cola", folder(tmp_path, train=train_file, dev=COLA)), tokenizer)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sst2", "text\tlabel\na\t1\n", r"train.tsv: there is no column 'sentence', but 'text', 'label'"),
        ("sst2", "label\tlabel\na\t1\n", "two columns are called 'label'"),
        ("sst2", "sentence\tlabel\na\tb\t1\n", "line 2: 3 columns: the first line names 2: sentence, label"),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tyes\n",
         "line 2: label 'yes': it must be entailment or not_entailment"),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\t\tentailment\n", "line 2: the sentence2 is empty"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tmuch\n", "line 2: score 'much': it must be a number"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tnan\n", "line 2: score 'nan': it must be a number"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\t5.1\n", "score 5.1: it must lie between 0 and 5"),
    ],
)  # fmt: skip
def test_wrong_tables(tmp_path: pathlib.Path, tokenizer: Any, name: str, change: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tasks.make(config(name, folder(tmp_path, **{**FILES[name], "train.tsv": change})), tokenizer)


def test_no_files(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    folder(tmp_path, train=COLA)
    with pytest.raises(ValueError, match=r"dev\.tsv is not there"):  # and never the training file instead
        tasks.make(config("cola", tmp_path), tokenizer)
    with pytest.raises(ValueError, match=r"neither a folder .* nor a TFDS name"):
        tasks.make(config("cola", tmp_path / "nowhere"), tokenizer)


def test_quotes_and_line_ends_are_text_and_line_ends(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    text = 'x\t1\t\t"a b\r\nx\t0\t\tb"\r\n'
    task = tasks.make(config("cola", folder(tmp_path, train=text, dev=COLA)), tokenizer)
    tokens = task.train.batch(0, np.arange(2))["tokens"]
    assert sorted(row[row > 0].tolist() for row in tokens) == [[2, 1, 5, 6, 3], [2, 6, 1, 3]]


def test_columns_are_found_by_their_names(tmp_path: pathlib.Path, tokenizer: Any, caplog: Any) -> None:
    found = {name: glue(tmp_path, name, tokenizer) for name in FILES}
    read = {name: (words(t.evals["eval"]), t.evals["eval"].labels.tolist()) for name, t in found.items()}
    assert read == {
        "cola": ("[CLS] a b [SEP]", [1, 0]),
        "sst2": ("[CLS] b a [SEP]", [0]),
        "mrpc": ("[CLS] a [UNK] [SEP] b [SEP]", [1]),
        "qqp": ("[CLS] a [SEP] b [SEP]", [1]),
        "stsb": ("[CLS] a [SEP] b [SEP]", [1.25]),
        "mnli": ("[CLS] a [SEP] b [SEP]", [0]),
        "qnli": ("[CLS] a [SEP] b [SEP]", [1]),
        "rte": ("[CLS] a [SEP] b [SEP]", [0]),
        "wnli": ("[CLS] a [SEP] b [SEP]", [1]),
    }
    assert {name: t.metric for name, t in found.items()} == {
        "cola": "mcc", "sst2": "accuracy", "mrpc": "f1_accuracy", "qqp": "f1_accuracy",
        "stsb": "pearson_spearman", "mnli": "accuracy", "qnli": "accuracy", "rte": "accuracy",
        "wnli": "accuracy",
    }  # fmt: skip
    mnli = found["mnli"]
    assert mnli.labels == ("entailment", "neutral", "contradiction")
    assert mnli.evals["mismatched"].labels.tolist() == [1]
    assert (mnli.heads, found["stsb"].heads) == ({"labels": 3}, {"labels": 1})
    assert list(mnli.tests) == ["test_matched", "test_mismatched"]
    # QQP's broken line is left out and counted, its empty question is not.
    assert found["qqp"].train.num_examples == 2
    assert "train.tsv: 1 of 4 lines are left out" in caplog.text


def test_the_diagnostic_set(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"diagnostic-full\.tsv is not there, nor in AX or diagnostic"):
        tasks.make(config("ax", folder(tmp_path / "MNLI", **FILES["mnli"])), tokenizer)
    full = "Logic\tPremise\tHypothesis\tLabel\nx\ta\tb\tneutral\nx\tc\td\tentailment\n"
    folder(
        tmp_path / "AX", **{"diagnostic-full": full, "diagnostic": "index\tsentence1\tsentence2\n4\ta\td\n"}
    )
    task = tasks.make(config("ax", tmp_path / "MNLI"), tokenizer)
    assert list(task.evals) == ["eval", "matched", "mismatched"]
    assert (task.metric, task.evals["eval"].labels.tolist()) == ("mcc", [1, 0])
    beside = tasks.make(config("mnli", tmp_path / "MNLI"), tokenizer)
    assert list(beside.evals) == ["eval", "mismatched", "ax"]
    assert beside.evals["ax"].labels.tolist() == [1, 0]
    beside.write_predictions(tmp_path, "ax_test", {"logits": np.array([[0.0, 0.0, 1.0]])})
    assert (tmp_path / "AX.tsv").read_text() == "index\tprediction\n4\tcontradiction\n"


def test_classes_literally(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    text = COLA + "x\t1\t\tb b\n"
    task = tasks.make(config("cola", folder(tmp_path, train=text, dev=COLA)), tokenizer)
    task.evals["eval"].labels = np.array([1, 1, 1, 1, 0, 0])
    guesses = np.array([1, 1, 1, 0, 0, 1])  # 3 hits and 1 miss of class 1; 1 and 1 of class 0
    assert task.metrics("eval", {"logits": np.eye(2)[guesses]}) == pytest.approx(
        {
            "mcc": (3 * 1 - 1 * 1) / np.sqrt(4 * 4 * 2 * 2),
            "accuracy": 4 / 6,
            "predicted_share_unacceptable": 2 / 6,
            "predicted_share_acceptable": 4 / 6,
            "majority_class_accuracy": 4 / 6,
        }
    )
    mrpc = glue(tmp_path, "mrpc", tokenizer)
    mrpc.evals["eval"].labels, mrpc.majority = task.evals["eval"].labels, 1
    found = mrpc.metrics("eval", {"logits": np.eye(2)[guesses]})
    assert found["f1"] == pytest.approx(3 / 4)  # 3 of 4 predicted, 3 of 4 there are
    assert found["f1_accuracy"] == pytest.approx((3 / 4 + 4 / 6) / 2)
    assert found["majority_class_f1"] == pytest.approx(2 * 4 / (4 + 6))
    assert found["majority_class_f1_accuracy"] == pytest.approx((0.8 + 4 / 6) / 2)


def test_scores_literally(tmp_path: pathlib.Path, tokenizer: Any, caplog: Any) -> None:
    task = glue(tmp_path, "stsb", tokenizer)  # the mean of training is 3.5
    gold, guesses = np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.5, 1.0, 4.0, 3.0])
    task.evals["eval"].labels = gold
    found = task.metrics("eval", {"logits": guesses[:, None]})
    x, y = gold - gold.mean(), guesses - guesses.mean()
    pearson = (x @ y) / np.sqrt((x @ x) * (y @ y))
    assert found == pytest.approx(
        {
            "pearson_spearman": (pearson + 0.8) / 2,  # ranks 1 2 3 4 and 1 2 4 3: 1 - 6 * 2 / (4 * 15)
            "pearson": pearson,
            "spearman": 0.8,
            "mse": (0.25 + 0 + 4 + 4) / 4,
            "mean_score_mse": np.mean((gold - 3.5) ** 2),
        }
    )
    constant = task.metrics("eval", {"logits": np.full((4, 1), 3.5)})
    assert (constant["pearson_spearman"], constant["mse"]) == (0.0, constant["mean_score_mse"])
    assert "all 4 predictions are alike" in caplog.text


def test_one_class_only_is_said(tmp_path: pathlib.Path, tokenizer: Any, caplog: Any) -> None:
    task = tasks.make(config("cola", folder(tmp_path, train=COLA, dev=COLA)), tokenizer)
    for labels in ([0, 1, 1], [1, 1, 1]):
        task.evals["eval"].labels = np.array(labels)
        found = task.metrics("eval", {"logits": np.array([[0.0, 1.0]] * 3)})
        assert found["mcc"] == 0
        assert found["predicted_share_acceptable"] == 1
    assert "all 3 examples are predicted as acceptable" in caplog.text


@pytest.mark.parametrize(
    ("name", "test", "logits", "lines"),
    [
        ("cola", "CoLA", [[0, 1], [1, 0]], "0\t1\n1\t0\n"),
        ("sst2", "SST-2", [[0, 1], [1, 0]], "0\t1\n1\t0\n"),
        ("mrpc", "MRPC", [[0, 1], [1, 0]], "0\t1\n1\t0\n"),
        ("qqp", "QQP", [[0, 1], [1, 0]], "7\t1\n9\t0\n"),
        ("stsb", "STS-B", [[5.5], [-0.25]], "0\t5.000\n1\t0.000\n"),
        ("rte", "RTE", [[0, 1], [1, 0]], "0\tnot_entailment\n1\tentailment\n"),
        ("mnli", "MNLI-m", [[0, 0, 1], [0, 1, 0]], "0\tcontradiction\n1\tneutral\n"),
    ],
)
def test_submissions(
    tmp_path: pathlib.Path, tokenizer: Any, name: str, test: str, logits: list[Any], lines: str
) -> None:
    # All of a test is predicted, whatever evaluations read.
    task = glue(tmp_path, name, tokenizer, train__eval_rows=1)
    first = next(iter(task.tests))
    task.write_predictions(tmp_path, first, {"logits": np.array(logits, np.float32)})
    assert (tmp_path / f"{test}.tsv").read_text() == "index\tprediction\n" + lines
    said = [json.loads(line) for line in (tmp_path / f"{first}.jsonl").read_text().splitlines()]
    assert [line["index"] for line in said] == [line.split("\t")[0] for line in lines.splitlines()]
    assert not any("gold" in line for line in said)


def test_predictions_of_an_evaluation(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = glue(tmp_path, "rte", tokenizer)
    task.write_predictions(tmp_path, "eval", {"logits": np.array([[0.0, np.log(3)]])})
    assert json.loads((tmp_path / "eval.jsonl").read_text()) == {
        "index": "0",
        "label": "not_entailment",
        "probabilities": {"entailment": pytest.approx(0.25), "not_entailment": pytest.approx(0.75)},
        "gold": "entailment",
    }
    assert not list(tmp_path.glob("*.tsv"))


def test_tfds(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    rows = [{"sentence": "a " * (i + 1), "label": int(i == 1), "idx": i} for i in range(9)]
    unknown = [{"sentence": "d", "label": -1, "idx": 3}]
    features = {"sentence": str, "label": ["unacceptable", "acceptable"], "idx": np.int32}
    tasks_data.tfds(tmp_path, "sentences", features, {"train": rows, "validation": rows[:4], "test": unknown})
    tasks_data.tfds(tmp_path, "untested", features, {"train": rows})
    with pytest.raises(ValueError, match="the dataset has no split 'validation', but 'train'"):
        tasks.make(config("cola", "untested", data__tfds_dir=str(tmp_path)), tokenizer)
    task = tasks.make(config("cola", "sentences", data__tfds_dir=str(tmp_path)), tokenizer)
    assert (task.train.num_examples, task.evals["eval"].labels.tolist()) == (9, [0, 1, 0, 0])
    assert task.evals["eval"].batch(0, np.arange(4))["segment_ids"].sum(1).tolist() == [3, 4, 5, 6]
    assert task.index("test") == ["3"]
    with pytest.raises(ValueError, match="its classes are unacceptable, acceptable: those of GLUE's SST-2"):
        tasks.make(config("sst2", "sentences", data__tfds_dir=str(tmp_path)), tokenizer)
    with pytest.raises(ValueError, match="TFDS cannot give this dataset"):
        tasks.make(config("cola", "no_such_dataset", data__tfds_dir=str(tmp_path)), tokenizer)


def test_tfds_of_pairs(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    names = ["entailment", "neutral", "contradiction"]
    features = {"premise": str, "hypothesis": str, "label": names, "idx": np.int32}
    rows = [{"premise": "a", "hypothesis": "bcd"[i], "label": i, "idx": i} for i in range(3)]
    splits = {"train": rows, "validation_matched": rows[:2], "validation_mismatched": rows[2:]}
    tasks_data.tfds(tmp_path, "inference", features, splits)
    task = tasks.make(config("mnli", "inference", data__tfds_dir=str(tmp_path)), tokenizer)
    assert [words(task.evals["eval"], i) for i in range(2)] == [
        "[CLS] a [SEP] b [SEP]",
        "[CLS] a [SEP] c [SEP]",
    ]
    assert task.evals["mismatched"].labels.tolist() == [2]
    with pytest.raises(ValueError, match=r"its classes are entailment, .*: those of GLUE's RTE are"):
        tasks.make(config("rte", "inference", data__tfds_dir=str(tmp_path)), tokenizer)


def small_run(tmp_path: pathlib.Path, name: str, path: pathlib.Path, **keys: Any) -> Any:
    """A run of a few steps of a tiny model."""
    tasks_data.tokenizer(tmp_path)
    return config(
        name, path, data__tokenizer=str(tmp_path / "vocab.txt"), data__lowercase=True, train__steps=2,
        train__batch_size=2, train__log_every=1, train__compilation_cache=str(tmp_path.parent / "compiled"),
        model__hidden_size=8, model__layers=1, model__heads=2, model__feed_forward_size=16,
        model__max_positions=12, data__workers=1, **keys,
    )  # fmt: skip


def test_runs_evaluate_all_and_leave_their_predictions(tmp_path: pathlib.Path) -> None:
    path = folder(tmp_path / "MNLI", **FILES["mnli"])
    result = train.train(small_run(tmp_path, "mnli", path, sweep__seeds=2), tmp_path / "run")
    each = [json.loads((tmp_path / f"run/members/{i}/result.json").read_text()) for i in range(2)]
    assert each[0]["loss"] != each[1]["loss"]
    assert result["value"] == pytest.approx(np.mean([one["accuracy"] for one in each]))
    assert result["std"] == pytest.approx(np.std([one["accuracy"] for one in each], ddof=1))
    for name in ("accuracy", "loss", "mismatched_accuracy", "mismatched_loss"):
        assert result[name] == pytest.approx(np.mean([one[name] for one in each]))

    one, member = each[0], tmp_path / "run" / "members" / "0"
    assert one["metric"] == "accuracy"
    assert one["value"] == one["accuracy"] == one["task_accuracy"]
    assert "mismatched_majority_class_accuracy" in one
    assert sorted(file.name for file in (member / "predictions").iterdir()) == [
        "MNLI-m.tsv", "MNLI-mm.tsv", "eval.jsonl", "mismatched.jsonl", "test_matched.jsonl",
        "test_mismatched.jsonl",
    ]  # fmt: skip
    model = json.loads((member / "model.json").read_text())
    assert (model["label_names"], model["labels"]) == (["entailment", "neutral", "contradiction"], 3)
    assert json.loads((member / "task.json").read_text()) == {
        "kind": "classification",
        "seq_len": 12,
        "pairs": True,
        "columns": {"text": "sentence1", "text_pair": "sentence2"},
    }


def test_all_of_glue(tmp_path: pathlib.Path, caplog: Any, monkeypatch: Any) -> None:
    reached = {
        "mnli": {"metric": "accuracy", "value": 0.5, "accuracy": 0.5, "mismatched_accuracy": 0.7},
        "stsb": {"metric": "pearson_spearman", "value": 0.8},
        "rte": {"metric": "accuracy", "value": 0.4, "accuracy": 0.4},
    }
    asked = []

    def one(member: Any, workdir: Any) -> dict[str, Any]:
        asked.append((member.task.name, pathlib.Path(member.data.path).name, workdir.name))
        return {**reached[member.task.name], "steps": 3, "seconds": 1.5}

    data, workdir = tmp_path / "glue", tmp_path / "run"
    for name in reached:
        folder(data / BENCHMARKS[name].folder, **FILES[name])
    folder(data / "QNLI", dev=FILES["qnli"]["dev.tsv"])  # without training data
    c = config("glue", data)
    result = suite.run(c, workdir, one)
    assert asked == [("stsb", "STS-B", "stsb"), ("mnli", "MNLI", "mnli"), ("rte", "RTE", "rte")]
    assert {name: task["score"] for name, task in result["tasks"].items()} == {
        "stsb": 0.8,
        "mnli": pytest.approx(0.6),
        "rte": 0.4,
    }
    assert result["value"] == pytest.approx((0.8 + 0.6 + 0.4) / 3)
    assert (result["steps"], result["seconds"]) == (9, 4.5)
    assert result["left_out"] == ["CoLA", "SST-2", "MRPC", "QQP", "QNLI", "WNLI"]
    assert "left out, since their training or development files are not there: CoLA, SST-2" in caplog.text
    assert result == json.loads((workdir / "result.json").read_text())

    # The loop hands this task over, and a workdir is of one config.
    monkeypatch.setattr(suite, "run", lambda config, workdir, train: (config, workdir))
    assert train.train(c, workdir) == (c, workdir)
    monkeypatch.undo()
    c.seed = 1
    with pytest.raises(ConfigError, match=r"holds a run with another config \(seed: 0 -> 1\)"):
        train.train(c, workdir)
    c.data.path = str(tmp_path)
    with pytest.raises(ConfigError, match=r"none of CoLA, SST-2, .* is there with train\.tsv and dev\.tsv"):
        train.train(c, tmp_path / "other")
    with pytest.raises(ConfigError, match="is many runs: evaluate one of them"):
        train.evaluate(c, workdir)


def test_all_of_glue_from_tfds(tmp_path: pathlib.Path) -> None:
    paths = []

    def one(member: Any, workdir: Any) -> dict[str, Any]:
        paths.append(member.data.path)
        return {"metric": "m", "value": 1.0, "mismatched_accuracy": 0.5, "steps": 1, "seconds": 1.0}

    assert suite.run(config("glue", "glue"), tmp_path / "run", one)["value"] == pytest.approx(8.75 / 9)
    assert paths == [f"glue/{name}" for name in suite.SUITES["glue"].members]


def test_a_table_of_glue() -> None:
    results = {
        "mrpc": {"metric": "f1_accuracy", "f1": 0.9, "accuracy": 0.8},
        "mnli": {"metric": "accuracy", "accuracy": 0.5, "mismatched_accuracy": 0.6},
    }
    assert suite.table(suite.SUITES["glue"], {"mrpc": 0.85, "mnli": 0.55}, results) == [
        "task       score  metrics",
        "MRPC        85.0  f1 90.0, accuracy 80.0",
        "MNLI        55.0  accuracy 50.0, mismatched accuracy 60.0",
        "average     70.0  of 2 of GLUE's 9 tasks",
    ]
