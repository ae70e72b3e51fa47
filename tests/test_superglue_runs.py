"""Runs on SuperGLUE: training, answers equal to the evaluation's, TFDS, all tasks at once."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tasks_data
import tiny_models
from ml_collections import ConfigDict
from tasks_data import words
from test_superglue import ROWS, folder, multirc

from bert_jax import prediction, tasks, train
from bert_jax.config import ConfigError
from bert_jax.interop import load
from bert_jax.tasks import suite, superglue_data
from bert_jax.tasks.superglue_benchmarks import BENCHMARKS


def run_config(tmp_path: pathlib.Path, name: str, path: pathlib.Path, **keys: Any) -> ConfigDict:
    """A run of two steps of a tiny model with large weights."""
    tasks_data.tokenizer(tmp_path)
    values = {
        "train__steps": 2, "train__batch_size": 2, "train__log_every": 1, "data__workers": 1,
        "model__hidden_size": 8, "model__layers": 1, "model__heads": 2, "model__feed_forward_size": 16,
        "model__max_positions": 12, "model__init_std": 0.5, **keys,
    }  # fmt: skip
    return tasks_data.config(
        name, path, data__tokenizer=str(tmp_path / "vocab.txt"), data__lowercase=True,
        train__compilation_cache=str(tmp_path.parent / "compiled"), **values,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["copa", "multirc", "record", "wic", "wsc"])
def test_runs_and_their_answers(tmp_path: pathlib.Path, name: str) -> None:
    more = {"multirc": [multirc(0, 1, 1), {**multirc(1, 1, 0), "idx": 8}]}.get(name, ROWS[name])
    path, run = folder(tmp_path, name, val=more), tmp_path / "run"
    result = train.train(run_config(tmp_path, name, path), run)
    assert result["value"] == result[BENCHMARKS[name].metric]
    title = BENCHMARKS[name].folder
    assert sorted(file.name for file in (run / "predictions").iterdir()) == sorted(
        ["eval.jsonl", f"{title}.eval.jsonl", "test.jsonl", f"{title}.jsonl"]
    )
    # The file that was evaluated, asked again: the labels and probabilities of the evaluation.
    asked = list(superglue_data.inputs(name, path / "val.jsonl"))
    answers = list(prediction.predict(load.read(run), asked, batch_size=3))
    told = [json.loads(line) for line in (run / "predictions/eval.jsonl").read_text().splitlines()]
    assert len(answers) == len(told) == len(asked) > 1
    for answer, line in zip(answers, told, strict=True):
        assert answer["label"] == line["label"]
        assert answer["probabilities"] == pytest.approx(line["probabilities"], abs=1e-5)
    if name == "multirc":  # its questions are judged whole, however its answers lie in batches
        found = train.evaluate(run_config(tmp_path, name, path, train__eval_batch_size=4), run)
        keys = ("f1a", "em", "f1a_em", "accuracy")
        assert [found[key] for key in keys] == [result[key] for key in keys]
        assert found["loss"] == pytest.approx(result["loss"], rel=1e-5)
    if name == "wic":
        _check_answers_to_spans(tmp_path, path, run)


def _check_answers_to_spans(tmp_path: pathlib.Path, path: pathlib.Path, run: pathlib.Path) -> None:
    """The command reads a file of the task; marks say the same, and what has none is told."""
    arguments = [f"--model={run}", "--output=-", f"--input={path / 'test.jsonl'}"]
    done = tiny_models.run(tmp_path, "predict", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert {key: said[key] for key in ("text", "text_pair", "span1", "span2")} == {
        "text": "a b", "text_pair": "c d b", "span1": [2, 3], "span2": [4, 5],
    }  # fmt: skip
    texts = [
        ("a [E1] b[/E1]", "c d [E2]b[/E2]"),
        ("a b", "c d b"),
        ("", ""),
        ("[E1]a[/E1]", "[E2]\u200b[/E2]"),
    ]
    marked, plain, empty, nothing = prediction.predict(load.read(run), texts)
    assert marked["probabilities"] == pytest.approx(said.pop("probabilities"), abs=1e-5)
    assert {key: x for key, x in marked.items() if key != "probabilities"} == said
    assert (plain["label"], empty["label"], empty["note"]) == (None, None, "empty line")
    assert plain["note"].startswith("no spans: there must be one [E1] word [/E1] in it")
    assert "has no token" in nothing["note"]


FEATURES: dict[str, Any] = {
    "boolq": {"passage": str, "question": str, "label": ["False", "True"], "idx": np.int32},
    "multirc": {
        "paragraph": str, "question": str, "answer": str, "label": ["False", "True"],
        "idx": {"paragraph": np.int32, "question": np.int32, "answer": np.int32},
    },
    "record": {
        "passage": str, "query": str, "entities": (str,), "answers": (str,),
        "idx": {"passage": np.int32, "query": np.int32},
    },
    "wsc": {
        "text": str, "span1_text": str, "span2_text": str, "span1_index": np.int32, "span2_index": np.int32,
        "label": ["False", "True"], "idx": np.int32,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_tfds_gives_what_the_files_give(tmp_path: pathlib.Path, tokenizer: Any, name: str) -> None:
    rows, tests = (
        [example for row in some for example in _flat(name, row)] for some in (ROWS[name], ROWS[name][:1])
    )
    for n, row in enumerate(rows):
        row.setdefault("idx", n)
    for n, row in enumerate(tests):
        row.setdefault("idx", n)
        row.pop("label", None) if name == "record" else row.update(label=-1)
    splits = {"train": rows, "validation": rows, "test": tests}
    tasks_data.tfds(tmp_path, f"of_{name}", FEATURES[name], splits)
    found = tasks.make(tasks_data.config(name, f"of_{name}", data__tfds_dir=str(tmp_path)), tokenizer)
    from_files = tasks.make(tasks_data.config(name, folder(tmp_path, name)), tokenizer)
    assert found.train.num_examples == from_files.train.num_examples
    assert found.tests["test"].num_examples == len(found.items("test"))
    both = [
        (words(task.evals["eval"], 1), task.evals["eval"].labels.tolist()) for task in (found, from_files)
    ]
    assert both[0] == both[1]
    if name in ("multirc", "record"):
        assert found.index("eval") == from_files.index("eval")


def _flat(name: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    """A line of a file as TFDS has it."""
    if name == "multirc":
        passage = row["passage"]
        return [
            {"paragraph": passage["text"], "question": q["question"], "answer": a["text"],
             "label": a["label"], "idx": {"paragraph": row["idx"], "question": q["idx"], "answer": a["idx"]}}
            for q in passage["questions"] for a in q["answers"]
        ]  # fmt: skip
    if name == "record":
        text = row["passage"]["text"]
        return [
            {"passage": text, "query": q["query"], "entities": ["a b", "d"],
             "answers": [a["text"] for a in q["answers"]], "idx": {"passage": row["idx"], "query": q["idx"]}}
            for q in row["qas"]
        ]  # fmt: skip
    values = {**row, **row.get("target", {})}
    return [{key: int(x) if key == "label" else x for key, x in values.items() if key != "target"}]


def test_tfds_of_another_dataset(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    row = {"premise": "a", "hypothesis": "b", "label": 0, "idx": 0}
    features = {"premise": str, "hypothesis": str, "label": ["entailment", "not_entailment"], "idx": np.int32}
    tasks_data.tfds(tmp_path, "reasoning", features, {"train": [row], "validation": [{**row, "label": -1}]})
    with pytest.raises(ValueError, match=r"its classes are entailment, .*: those of SuperGLUE's CB are"):
        tasks.make(tasks_data.config("cb", "reasoning", data__tfds_dir=str(tmp_path)), tokenizer)
    with pytest.raises(ValueError, match=r"validation, idx 0: label -1: this split has no labels"):
        tasks.make(tasks_data.config("superglue_rte", "reasoning", data__tfds_dir=str(tmp_path)), tokenizer)


def test_all_of_superglue(tmp_path: pathlib.Path, caplog: Any) -> None:
    reached = {
        "cb": {"metric": "f1_accuracy", "value": 0.5, "f1": 0.4, "accuracy": 0.6},
        "multirc": {"metric": "f1a_em", "value": 0.3, "f1a": 0.5, "em": 0.1},
        "superglue_rte": {"metric": "accuracy", "value": 0.7, "accuracy": 0.7},
    }
    asked = []

    def one(member: Any, workdir: Any) -> dict[str, Any]:
        asked.append((member.task.name, pathlib.Path(member.data.path).name, workdir.name))
        return {**reached[member.task.name], "steps": 3, "seconds": 1.5}

    data = tmp_path / "superglue"
    for name in reached:
        folder(data, name)
    (folder(data, "wic") / "train.jsonl").unlink()
    c = tasks_data.config("superglue", data)
    with caplog.at_level("INFO"):
        result = suite.run(c, tmp_path / "run", one)
    assert asked == [
        ("cb", "CB", "cb"), ("multirc", "MultiRC", "multirc"), ("superglue_rte", "RTE", "superglue_rte"),
    ]  # fmt: skip
    assert (result["task"], result["value"]) == ("superglue", pytest.approx(0.5))
    assert result["left_out"] == ["BoolQ", "COPA", "ReCoRD", "WiC", "WSC"]
    assert "average     50.0  of 3 of SuperGLUE's 8 tasks" in caplog.text
    assert suite.table(suite.SUITES["superglue"], {"multirc": 0.3, "superglue_rte": 0.7}, reached) == [
        "task       score  metrics",
        "MultiRC     30.0  f1a 50.0, em 10.0",
        "RTE         70.0  accuracy 70.0",
        "average     50.0  of 2 of SuperGLUE's 8 tasks",
    ]
    with pytest.raises(ConfigError, match=r'as task\.name = "boolq" in .*run/boolq'):
        train.evaluate(c, tmp_path / "run")
    c.data.path = str(tmp_path)
    with pytest.raises(ConfigError, match=r"none of BoolQ, .* is there with train\.jsonl and val\.jsonl"):
        train.train(c, tmp_path / "other")
    paths = []

    def named(member: Any, workdir: Any) -> dict[str, Any]:
        paths.append(member.data.path)
        return {"metric": "m", "value": 1.0, "steps": 1, "seconds": 1.0}

    suite.run(tasks_data.config("superglue", "super_glue"), tmp_path / "tfds", named)
    assert paths == [
        f"super_glue/{x}" for x in ("boolq", "cb", "copa", "multirc", "record", "rte", "wic", "wsc.fixed")
    ]


def test_a_real_run_of_two_tasks(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "superglue"
    for name in ("boolq", "wsc"):
        folder(data, name)
    c = run_config(tmp_path, "superglue", data, train__steps=1)
    result = train.train(c, tmp_path / "run")
    each = {name: json.loads((tmp_path / f"run/{name}/result.json").read_text()) for name in ("boolq", "wsc")}
    assert result["value"] == pytest.approx(np.mean([one["value"] for one in each.values()]))
    assert train.train(c, tmp_path / "run")["tasks"] == result["tasks"]  # complete: nothing is trained again
