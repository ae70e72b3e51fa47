"""Own data: tables by named columns, what is refused with its place, the hold-out, and metrics."""

import gzip
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tasks_data
from tasks_data import words

from bert_jax import build, evaluation, sharding, tasks
from bert_jax import step as step_lib
from bert_jax.config import ConfigError
from bert_jax.models.model import Model
from bert_jax.tasks.own import hold_out
from bert_jax.tasks.sequence import Split

TEXT = {"task__text": "say", "task__label": "kind"}
PAIR = {**TEXT, "task__text_pair": "more"}
CHOICE = {"task__label": "right", "task__choices": ("x", "y")}


def make(tokenizer: Any, name: str, path: pathlib.Path, **keys: Any) -> Any:
    return tasks.make(tasks_data.config(name, path, **keys), tokenizer)


def write(folder: pathlib.Path, **files: str | bytes) -> pathlib.Path:
    """Writes files, train_csv for train.csv."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        file = folder / name.replace("_", ".")
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_the_same_rows_of_every_kind_of_file(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    csv = 'kind,id,say\nred,1,"a, b"\nblue,2,"a ""b""\nc"\n\nred,3,d\n'
    tsv = 'say\tkind\na b\tred\na "b c\tblue\nd\tred\n'
    rows = [{"say": "a b", "kind": "red"}, {"say": "a b c", "kind": "blue"}, {"say": "d", "kind": "red"}]
    jsonl = "".join(json.dumps({"more": 1, **row}) + "\n" for row in rows)
    found = {}
    for name, text in (("train.csv", csv), ("train.tsv", tsv), ("train.jsonl", jsonl)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(text, newline="")
        (folder / f"dev{pathlib.Path(name).suffix}.gz").write_bytes(gzip.compress(text.encode()))
        task = make(tokenizer, "classification", folder, **TEXT)
        assert task.labels == ("blue", "red")
        assert task.evals["eval"].labels.tolist() == [1, 0, 1]
        assert task.train.num_examples == 3
        found[name] = [words(task.evals["eval"], i) for i in range(3)]
        # The same file by its name, and an evaluation elsewhere.
        alone = make(tokenizer, "classification", folder / name, **TEXT, data__eval_path=str(folder / name))
        assert [words(alone.evals["eval"], i) for i in range(3)] == found[name]
    assert found["train.jsonl"] == ["[CLS] a b [SEP]", "[CLS] a b c [SEP]", "[CLS] d [SEP]"]
    # A CSV's quotes are not text, a TSV's are.
    assert found["train.csv"][1] == "[CLS] a [UNK] b [UNK] c [SEP]"
    assert found["train.tsv"][1] == "[CLS] a [UNK] b c [SEP]"


def test_labels_of_json_are_read_as_they_are_written(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    lines = "".join(json.dumps({"say": "a", "kind": kind}) + "\n" for kind in (10, 9, 10))
    task = make(tokenizer, "classification", write(tmp_path, train_jsonl=lines, dev_jsonl=lines), **TEXT)
    assert task.labels == ("9", "10")  # numbers by their value
    lines = "".join(json.dumps({"say": "a", "kind": kind}) + "\n" for kind in (True, False))
    task = make(tokenizer, "classification", write(tmp_path, train_jsonl=lines, dev_jsonl=lines), **TEXT)
    assert task.labels == ("false", "true")
    named = {**TEXT, "task__labels": ("true", "false")}
    task = make(tokenizer, "classification", tmp_path, **named)
    assert (task.labels, task.evals["eval"].labels.tolist()) == (("true", "false"), [0, 1])


def test_pairs(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    lines = "kind,say,more\nyes,a b,c\nno,d,a\n"
    task = make(tokenizer, "pairs", write(tmp_path, train_csv=lines, valid_csv=lines), **PAIR)
    assert words(task.evals["eval"]) == "[CLS] a b [SEP] c [SEP]"
    assert task.facts == {
        "kind": "classification",
        "seq_len": 12,
        "pairs": True,
        "columns": {"text": "say", "text_pair": "more", "choices": []},
    }
    assert (task.heads, task.labels, task.metric) == ({"labels": 2}, ("no", "yes"), "accuracy")


def test_a_regression(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    folder = write(tmp_path, train_csv="say,kind\na,1.5\nb,-2\n", dev_csv="say,kind\na,3e-1\nb,4\nc,5\n")
    task = make(tokenizer, "regression", folder, **TEXT)
    assert (task.heads, task.labels, task.metric, task.mean) == ({"labels": 1}, ("score",), "pearson", -0.25)
    batch = task.evals["eval"].batch(0, np.arange(4))
    np.testing.assert_allclose(batch["labels"], [0.3, 4, 5, 0])
    found = task.metrics("eval", {"logits": np.array([[0.3], [5.0], [4.0]])})
    assert found["mse"] == pytest.approx(2 / 3)
    assert found["spearman"] == 0.5
    assert found["mean_score_mse"] == pytest.approx(np.mean((np.array([0.3, 4, 5]) + 0.25) ** 2))
    loss = task.objective.sums(batch, {"logits": np.array([[0.3], [5.0], [4.0], [9.0]], np.float32)})
    assert {name: float(value) for name, value in loss.items()} == {"loss": pytest.approx(2.0)}
    assert float(task.objective.count(batch)) == 3
    task.write_predictions(tmp_path, "eval", {"logits": np.array([[0.25], [5.0], [4.0]])})
    first = json.loads((tmp_path / "eval.jsonl").read_text().splitlines()[0])
    assert first == {"index": "0", "score": 0.25, "gold": 0.3}


def test_choices(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    rows = [{"say": "a", "x": "b", "y": "c", "right": 1}, {"say": "b", "x": "c", "y": "d", "right": "x"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    folder = write(tmp_path, train_jsonl=lines, dev_jsonl=lines)
    task = make(tokenizer, "choice", folder, **CHOICE, task__text="say")
    assert words(task.evals["eval"]) == "[CLS] a [SEP] b [SEP] [CLS] a [SEP] c [SEP]"
    batch = task.evals["eval"].batch(0, np.arange(2))
    assert batch["tokens"].shape == (2, 2, 12)
    assert batch["labels"].tolist() == [1, 0]
    assert (task.heads, task.labels, task.names) == ({"labels": 1}, ("score",), ("x", "y"))
    assert (task.facts["kind"], task.facts["choices"]) == ("choice", ["x", "y"])
    found = task.metrics("eval", {"logits": np.array([[0.0, 1.0], [0.0, 1.0]])})
    assert found == {
        "accuracy": 0.5,
        "predicted_share_x": 0.0,
        "predicted_share_y": 1.0,
        "majority_class_accuracy": 0.5,
    }
    # Nothing before the choices; and other names for them.
    alone = make(tokenizer, "choice", folder, **CHOICE)
    assert words(alone.evals["eval"]) == "[CLS] b [SEP] [CLS] c [SEP]"
    lines = "x,y,right\na,b,1\nc,d,2\n"
    folder = write(tmp_path / "numbered", train_csv=lines, dev_csv=lines)
    numbered = make(tokenizer, "choice", folder, **CHOICE, task__labels=("1", "2"))
    assert numbered.evals["eval"].labels.tolist() == [0, 1]


def test_a_choice_is_learnt(tmp_path: pathlib.Path) -> None:
    """The text with an a is right. Parts of a batch keep an example's choices together."""
    rows = [(f"{x} {y}", f"a {y}", 1) if n % 2 else (f"{x} a", f"{y} {x}", 0)
            for n, (x, y) in enumerate((x, y) for x in "bcd" for y in "bcd")]  # fmt: skip
    lines = "x,y,right\n" + "".join(f"{x},{y},{right}\n" for x, y, right in rows)
    folder = write(tmp_path, train_csv=lines, dev_csv=lines)
    tasks_data.tokenizer(tmp_path)
    c = tasks_data.config(
        "choice", folder, **CHOICE, data__tokenizer=str(tmp_path / "vocab.txt"), train__batch_size=8,
        train__eval_batch_size=4, train__accumulation=2, train__steps=40, model__hidden_size=16,
        model__layers=1, model__heads=2, model__feed_forward_size=32, model__max_positions=12,
        model__init_std=0.2, model__dropout=0.0, model__attention_dropout=0.0, task__dropout=0.0,
        optimizer__learning_rate=1e-2,
    )  # fmt: skip
    run = build.build(c, None)
    train, evaluate = run.task.train, evaluation.Evaluator(run, run.phases[0])
    first = train.batch(0, np.arange(8))
    state = run.initial_state(first)
    spec = run.setup.model.spec
    params = jax.device_get(state.params)
    flat = {key: jnp.asarray(x.reshape(16, -1)) for key, x in first.items() if x.ndim == 3}
    logits = np.array(jax.jit(Model(spec).apply)({"params": params}, flat)["logits"]).reshape(8, 2)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(8), first["labels"]]

    step = step_lib.make_train_step(run.setup)
    found = []
    for number in range(40):
        batch = sharding.to_devices(train.batch(number, np.arange(8)), 8, run.setup.mesh)
        state, sums = step(state, batch)
        found.append(step_lib.means(step_lib.add(None, sums)))
    assert found[0]["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert found[0]["row_length"] == 12
    reached = evaluate(state.params)
    assert reached["accuracy"] == reached["task_accuracy"] == 1.0
    assert reached["majority_class_accuracy"] == 5 / 9
    assert reached["loss"] < 0.1 < losses.mean()


@pytest.mark.parametrize(
    ("name", "keys", "files", "message"),
    [
        ("classification", TEXT, {"train_csv": "text,kind\na,b\n"},
         "train.csv: there is no column 'say', but 'text', 'kind'"),
        ("classification", TEXT, {"train_jsonl": '{"say": "a", "kind": "b"}\n{"say": "a"}\n'},
         "train.jsonl, line 2: there is no column 'kind', but 'say'"),
        ("classification", TEXT, {"train_csv": "say,kind\na,b\n,c\n"}, "train.csv, line 3: the say is empty"),
        ("classification", TEXT, {"train_csv": "say,kind\na,\nb,c\n"}, "line 2: the kind '' names no class"),
        ("classification", TEXT, {"train_csv": "say,kind\na,b\nc,b\n"},
         "every training example has the label 'b': a classification needs two"),
        ("classification", TEXT, {"train_csv": "say,kind\na,b\nc,d\n", "dev_csv": "say,kind\na,b\na,e\n"},
         "dev.csv, line 3: the kind is 'e': it must be one of 'b', 'd'"),
        ("classification", {**TEXT, "task__labels": ("b", "d", "e")},
         {"train_csv": "say,kind\na,b\nc,d\n", "dev_csv": "say,kind\na,b\n"},
         "no training example is e: some must be"),
        ("classification", TEXT, {"train_csv": b"say,kind\na,b\nc\xe9,d\n"}, "train.csv, line 3: not UTF-8"),
        ("classification", TEXT, {"train_csv": 'say,kind\n"a\nb",c\nd,e,f\n'},
         "train.csv, line 4: 3 columns: the header has 2; quote a field"),
        ("classification", TEXT, {"train_csv": 'say,kind\na,b\n"c"d,e\n'}, "train.csv, line 3: no CSV row"),
        ("classification", TEXT, {"train_csv": 'say,kind\na,b\n"c,d\n'}, "train.csv, line 3: no CSV row"),
        ("classification", TEXT, {"train_tsv": "say\tkind\na\n"}, "train.tsv, line 2: 1 columns"),
        ("classification", TEXT, {"train_jsonl": "{'say'}\n"}, "train.jsonl, line 1: not JSON"),
        ("classification", TEXT, {"train_jsonl": "[1]\n"}, "line 1: '.1.': each line must be a JSON object"),
        ("classification", TEXT, {"train_jsonl": '{"say": 3, "kind": "a"}\n{"say": "a", "kind": "b"}\n'},
         "line 1: say 3: it must be a text"),
        ("classification", TEXT, {"train_csv": "say,kind\n"}, "train.csv has no example"),
        ("classification", TEXT, {"train_csv": ""}, "train.csv has no example"),
        ("classification", TEXT, {"dev_csv": "say,kind\na,b\n"}, "has no train.csv, .tsv, .jsonl: name the"),
        ("classification", TEXT, {"train_csv": "say,kind\na,b\n", "train_tsv": "say\tkind\na\tb\n"},
         "has train.csv and train.tsv: name one of them by task.train_file"),
        ("classification", {**TEXT, "task__eval_file": "x.csv"}, {"train_csv": "say,kind\na,b\nc,d\n"},
         "task.eval_file = .*x.csv': there is no such file"),
        ("classification", {**TEXT, "task__train_file": "x.txt"}, {"x_txt": "say,kind\na,b\nc,d\n"},
         "its name must end in .csv, .tsv, .jsonl"),
        ("pairs", PAIR, {"train_csv": "say,more,kind\na,b,c\na, ,d\n"}, "line 3: the more is empty"),
        ("regression", TEXT, {"train_csv": "say,kind\na,1\nb,two\n"}, "line 3: kind 'two': it must be a num"),
        ("regression", TEXT, {"train_jsonl": '{"say": "a", "kind": null}\n'}, "line 1: kind None: it must"),
        ("regression", TEXT, {"train_csv": "say,kind\na,inf\n"}, "line 2: kind 'inf': it must be a number"),
        ("choice", CHOICE, {"train_csv": "x,y,right\na,b,2\n"},
         "line 2: the right is '2': it must be one of '0', '1', 'x', 'y'"),
    ],
)  # fmt: skip
def test_what_is_refused(
    tmp_path: pathlib.Path, tokenizer: Any, name: str, keys: dict[str, Any], files: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make(tokenizer, name, write(tmp_path, **files), **keys)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("classification", {"task__text": "a"}, "needs task.label"),
        ("classification", {"task__label": "a"}, "needs task.text"),
        ("pairs", TEXT, "needs task.text_pair"),
        ("classification", PAIR, 'task.text_pair = "more" is for task.name = "pairs"'),
        ("choice", TEXT, "a choice needs at least two columns"),
        ("classification", {**TEXT, "task__choices": ("a", "b")}, "other tasks none"),
        ("regression", {**TEXT, "task__labels": ("a",)}, "a regression has numbers, not classes"),
        ("classification", {**TEXT, "task__labels": ("a", "a")}, "each must be named once"),
        ("choice", {**CHOICE, "task__labels": ("a",)}, "there must be one for each of task.choices"),
        ("classification", {**TEXT, "data__eval_path": "a", "task__eval_file": "b"}, "are both set"),
        ("rte", {"task__text": "a"}, "task.text is for own data"),
        ("rte", {"data__eval_path": "a"}, "another file of it is task.eval_file"),
        ("glue", {"task__train_file": "a"}, "are of one task"),
    ],
)
def test_keys_that_do_not_fit(name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tasks_data.config(name, "somewhere", **keys)


def test_metrics_literally(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    lines = "say,kind\na,p\na,q\na,r\n"
    task = make(tokenizer, "classification", write(tmp_path, train_csv=lines, dev_csv=lines), **TEXT)
    task.evals["eval"].labels = np.array([0, 0, 0, 1, 1, 1])
    guesses = np.array([0, 0, 1, 1, 1, 1])
    found = task.metrics("eval", {"logits": np.eye(3)[guesses]})
    # F1 of p: 2*2/(2+3); of q: 2*3/(4+3); r occurs on neither side.
    assert found["macro_f1"] == pytest.approx((4 / 5 + 6 / 7) / 2)
    assert found["accuracy"] == pytest.approx(5 / 6)
    assert "mcc" not in found
    task.evals["eval"].labels = np.array([0, 0, 0, 1, 2, 1])
    assert task.metrics("eval", {"logits": np.eye(3)[guesses]})["macro_f1"] == pytest.approx(
        (4 / 5 + 2 * 2 / (4 + 2) + 0) / 3
    )
    two = make(tokenizer, "classification", write(tmp_path / "two", train_csv="say,kind\na,p\nb,q\n",
                                                  dev_csv="say,kind\na,p\nb,q\n"), **TEXT)  # fmt: skip
    two.evals["eval"].labels = np.array([0, 0, 0, 1, 1, 1])
    found = two.metrics("eval", {"logits": np.eye(2)[guesses]})
    assert found["mcc"] == pytest.approx((2 * 3 - 1 * 0) / np.sqrt(4 * 3 * 3 * 2))


def test_the_hold_out_is_disjoint_stratified_and_stays(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    texts = [f"t{i % 90}" for i in range(100)]  # ten texts are there twice
    labels = np.array([i % 90 % 10 == 0 for i in range(100)], np.int32)
    whole = Split(texts, None, labels)
    made = hold_out(whole, 0.2)
    train, held = ({*made[name].texts} for name in ("train", "eval"))
    assert not train & held
    assert train | held == {*texts}
    assert len(made["train"].labels) + len(made["eval"].labels) == 100
    counts = np.bincount(labels)
    for kind in range(2):
        share = np.sum(made["eval"].labels == kind) / counts[kind]
        assert share == pytest.approx(0.2, abs=1.5 / counts[kind])
    # Whatever their order; and the predictions say which rows they are.
    order = np.random.default_rng(0).permutation(100)
    again = hold_out(Split([texts[i] for i in order], None, labels[order]), 0.2)
    assert {*again["eval"].texts} == held
    assert [texts[int(i)] for i in made["eval"].index] == list(made["eval"].texts)
    with pytest.raises(ValueError, match=r"data\.eval_fraction = 0 of 100 examples holds none out"):
        hold_out(whole, 0.0)
    # A class of two texts has one on each side; of one text it stays in training.
    few = hold_out(Split(["a", "b", "c", "d", "e"], None, np.array([0, 0, 1, 1, 2])), 0.01)
    assert sorted(few["eval"].labels.tolist()) == [0, 1]
    assert sorted(few["train"].labels.tolist()) == [0, 1, 2]


def test_many_classes_do_not_take_more_than_was_asked_for(caplog: Any) -> None:
    labels = np.arange(400) // 2  # two examples of each of 200 classes
    texts = [f"t{i}" for i in range(400)]
    with caplog.at_level("WARNING"):
        made = hold_out(Split(texts, None, labels), 0.05)
    assert len(made["eval"].labels) == 20
    assert "200 classes in 400 examples are too many for each to have some held out" in caplog.text


def test_labels_of_which_none_is_there_twice_are_no_classes(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    rows = "".join(f"a,{n / 7:.3f}\n" for n in range(10))
    c = tasks_data.config("classification", write(tmp_path, train_csv=f"say,kind\n{rows}"), **TEXT)
    with pytest.raises(ValueError, match=r'each of the 10 .* such as .0.000.: .*task.name = "regression"'):
        tasks.make(c, tokenizer)


def test_spaces_around_a_label_are_no_part_of_it(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    data = {"train_csv": "say,kind\na,p \nb, q\nc,p\nd,q\n", "dev_csv": "say,kind\na,p\nb,q \n"}
    task = tasks.make(tasks_data.config("classification", write(tmp_path, **data), **TEXT), tokenizer)
    assert task.labels == ("p", "q")
    assert task.evals["eval"].labels.tolist() == [0, 1]


def test_a_hold_out_is_said_and_is_the_same_under_any_seed(
    tmp_path: pathlib.Path, tokenizer: Any, caplog: Any
) -> None:
    lines = "say,kind\n" + "".join(f"{'abcd'[i % 4]} {'abcd'[i // 4 % 4]},{i % 2}\n" for i in range(16))
    found = []
    with caplog.at_level("INFO"):
        for seed in (0, 1):
            c = tasks_data.config("classification", write(tmp_path, train_csv=lines), **TEXT)
            c.data.eval_fraction, c.seed = 0.25, seed
            task = tasks.make(c, tokenizer)
            found.append([words(task.evals["eval"], i) for i in range(task.evals["eval"].num_examples)])
            assert task.train.num_examples == 12
    assert found[0] == found[1]
    assert task.evals["eval"].labels.tolist().count(1) == 2
    assert "of 16 examples 4 are held out for it (data.eval_fraction = 0.25)" in caplog.text


def test_choices_are_held_out_as_a_whole() -> None:
    texts = [f"{n}{i}" for n in range(10) for i in "xyz"]
    made = hold_out(Split(texts, texts, np.arange(10) % 3), 0.3, choices=3)
    for split in made.values():
        assert [text[:-1] for text in split.texts[::3]] == list(split.index)
        assert split.texts == split.pairs
        assert len(split.texts) == 3 * len(split.labels)


def test_tfds(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    rows = [{"say": "ab"[i % 2], "kind": i % 2, "n": np.float32(i)} for i in range(8)]
    features = {"say": str, "kind": ["low", "high"], "n": np.float32}
    # A test split, whose labels often are secret, never stands in for an evaluation.
    tasks_data.tfds(tmp_path, "letters", features, {"train": rows, "test": rows[:2]})
    tfds = {"data__tfds_dir": str(tmp_path)}
    with pytest.raises(ValueError, match=r"'nowhere' .*'train', 'test'|no split 'nowhere', but 'train'"):
        make(tokenizer, "classification", "letters", **TEXT, **tfds, data__eval_path="nowhere")
    task = make(tokenizer, "classification", "letters", **TEXT, **tfds, data__eval_path="test")
    assert (task.labels, task.evals["eval"].num_examples) == (("high", "low"), 2)
    assert task.train.num_examples == 8
    number = make(
        tokenizer, "regression", "letters", **{**TEXT, "task__label": "n"}, **tfds, data__eval_path="test"
    )
    assert sorted(number.evals["eval"].labels.tolist()) == [0.0, 1.0]
    with pytest.raises(ValueError, match="the dataset has no feature 'tell', but "):
        make(tokenizer, "classification", "letters", **{**TEXT, "task__text": "tell"}, **tfds)
