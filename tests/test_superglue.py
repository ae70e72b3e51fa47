"""SuperGLUE: files and TFDS, spans, scores of what is judged together, submissions, runs."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks_data import config, words

from bert_jax import tasks
from bert_jax.config import ConfigError
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model
from bert_jax.tasks import TaskDataError, features, spanned, superglue_scores, winograd
from bert_jax.tasks.superglue_benchmarks import BENCHMARKS, DIAGNOSTICS
from bert_jax.tasks.superglue_data import Item

# An example of each class, an evaluation and a test of each task, in the form of its files.
_PAIR = {"premise": "a b", "hypothesis": "c"}
_WSC = {"span1_index": 0, "span1_text": "A b", "span2_index": 3, "span2_text": "d"}
_WIC = {"sentence1": "a b", "sentence2": "c d b", "start1": 2, "end1": 3, "start2": 4, "end2": 5}
_PASSAGE = {"text": "a b\n@highlight\nc d", "entities": [{"start": 0, "end": 2}, {"start": 17, "end": 17}]}
_RECORD = {"passage": _PASSAGE, "idx": 4}
_MULTIRC = {
    "idx": 7,
    "passage": {
        "text": "a b",
        "questions": [
            {"idx": 1, "question": "c", "answers": [{"text": "a", "idx": 5}, {"text": "b", "idx": 6}]},
            {"idx": 2, "question": "d", "answers": [{"text": "a", "idx": 7}]},
        ],
    },
}


def multirc(*labels: int) -> dict[str, Any]:
    """The passage with these labels of its three answers."""
    made = json.loads(json.dumps(_MULTIRC))
    answers = [answer for question in made["passage"]["questions"] for answer in question["answers"]]
    for answer, label in zip(answers, labels, strict=False):
        answer["label"] = label
    return made


def record(*answers: str, **more: Any) -> dict[str, Any]:
    """The passage with a query that has these answers."""
    golds = {"answers": [{"start": 0, "end": 0, "text": text} for text in answers]} if answers else {}
    return {**_RECORD, "qas": [{"idx": 9, "query": "c @placeholder", **golds}], **more}


ROWS: dict[str, list[dict[str, Any]]] = {
    "boolq": [{"passage": "a b", "question": "c", "label": label} for label in (False, True)],
    "cb": [{**_PAIR, "label": label} for label in ("entailment", "contradiction", "neutral")],
    "copa": [
        {"premise": "a", "choice1": "b", "choice2": "c", "question": "effect", "label": 0},
        {"premise": "b", "choice1": "a", "choice2": "d", "question": "cause", "label": 1},
    ],
    "multirc": [multirc(0, 1, 1)],
    "record": [record("d"), record("a b", "d")],
    "superglue_rte": [{**_PAIR, "label": label} for label in ("entailment", "not_entailment")],
    "wic": [{**_WIC, "label": label} for label in (False, True)],
    "wsc": [{"text": "a b c d", "target": _WSC, "label": label} for label in (False, True)],
}
TESTS = {name: [{k: v for k, v in rows[0].items() if k != "label"}] for name, rows in ROWS.items()}
TESTS |= {"multirc": [multirc()], "record": [record()]}


def write(file: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    numbered = ({"idx": 100 + n, **row} for n, row in enumerate(rows))
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in numbered))


def folder(path: pathlib.Path, name: str, **files: list[dict[str, Any]]) -> pathlib.Path:
    """Writes a task's files, ROWS where none are given, and returns its folder."""
    path = path / BENCHMARKS[name].folder
    for key, rows in {"train": ROWS[name], "val": ROWS[name], "test": TESTS[name], **files}.items():
        write(path / f"{key}.jsonl", rows)
    return path


def make(
    path: pathlib.Path, name: str, tokenizer: Any, keys: dict[str, Any] | None = None, **files: Any
) -> Any:
    """A task on its ROWS, or on other rows of a file."""
    return tasks.make(config(name, folder(path, name, **files), **(keys or {})), tokenizer)


def test_what_a_model_reads(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    found = {name: make(tmp_path, name, tokenizer) for name in ROWS}
    assert {name: words(task.evals["eval"]) for name, task in found.items()} == {
        "boolq": "[CLS] a b [SEP] c [SEP]",
        "cb": "[CLS] a b [SEP] c [SEP]",
        # "What happened as a result?" is five unknown words, an "a" and a mark.
        "copa": "[CLS] a [UNK] [UNK] [UNK] a [UNK] [UNK] [SEP] b [SEP] "
        "[CLS] a [UNK] [UNK] [UNK] a [UNK] [UNK] [SEP] c [SEP]",
        "multirc": "[CLS] a b [SEP] c a [SEP]",
        "record": "[CLS] a b c d [SEP] c a b [SEP]",  # without the mark of the passage's summary
        "superglue_rte": "[CLS] a b [SEP] c [SEP]",
        "wic": "[CLS] a b [SEP] c d b [SEP]",
        "wsc": "[CLS] a b c d [SEP]",
    }
    assert {name: task.evals["eval"].labels.tolist() for name, task in found.items()} == {
        "boolq": [0, 1], "cb": [0, 1, 2], "copa": [0, 1], "multirc": [0, 1, 1], "record": [0, 1, 1, 1],
        "superglue_rte": [0, 1], "wic": [0, 1], "wsc": [0, 1],
    }  # fmt: skip
    assert {name: task.metric for name, task in found.items()} == {
        "boolq": "accuracy", "cb": "f1_accuracy", "copa": "accuracy", "multirc": "f1a_em", "record": "f1_em",
        "superglue_rte": "accuracy", "wic": "accuracy", "wsc": "accuracy",
    }  # fmt: skip
    kinds = {name: task.facts["kind"] for name, task in found.items()}
    assert {name: kind for name, kind in kinds.items() if kind != "classification"} == {
        "copa": "choice", "wic": "spans", "wsc": "spans",
    }  # fmt: skip
    assert found["wic"].heads == found["wsc"].heads == {"labels": 2, "marked": 3}
    assert found["multirc"].index("eval") == ["7/1/5", "7/1/6", "7/2/7"]
    assert found["record"].index("eval")[:2] == ["9/a b", "9/d"]
    for name, ends in (("wic", [[0, 2, 6], [1, 3, 7]]), ("wsc", [[0, 1, 4], [1, 3, 5]])):
        batch = found[name].evals["eval"].batch(0, np.arange(1))
        assert [batch[f"marked_{key}"][0].tolist() for key in ("positions", "ends")] == ends


@pytest.mark.parametrize(
    ("name", "files", "sizes", "said"),
    [
        ("boolq", ("train", "dev32"), (32, 32), "can a real image be obtained on a screen"),
        ("cb", ("train", "val"), (32, 56), "[SEP] vale ##nce was helping [SEP]"),
        ("copa", ("train", "val"), (32, 100), "happened as a result ? [SEP] the toilet filled with water ."),
        ("multirc", ("train", "dev32"), (154, 167), "[SEP] what island did britain finally ce ##de to spain"),
        ("superglue_rte", ("train", "dev32"), (32, 32), "a ufo might have been seen in turkey ."),
        ("wic", ("train", "dev32"), (32, 32), "to rough ##cast a wall or building ."),
        ("wsc", ("dev32", "train"), (32, 32), "because she figured it was easier"),
    ],
)
def test_the_real_files(
    test_data: pathlib.Path, name: str, files: tuple[str, str], sizes: tuple[int, int], said: str
) -> None:
    tokenizer = tokenizer_lib.load(test_data / "tokenizers/bert-base-uncased-vocab.txt", lowercase=True)
    keys = {"task__train_file": f"{files[0]}.jsonl", "task__eval_file": f"{files[1]}.jsonl"}
    path = test_data / "superglue" / BENCHMARKS[name].folder
    task = tasks.make(config(name, path, data__seq_len=128, train__batch_size=64, **keys), tokenizer)
    assert (task.train.num_examples, task.evals["eval"].num_examples) == sizes
    batch = task.evals["eval"].batch(0, np.arange(32))
    rows = batch["tokens"].reshape(-1, batch["tokens"].shape[-1])
    spelt = [[tokenizer.token(i) for i in row if i != tokenizer.pad_id] for row in rows]
    assert said in " ".join(spelt[0])
    if name == "wsc":
        starts, ends = batch["marked_positions"], batch["marked_ends"]
        marked = [
            [" ".join(row[a:z]) for a, z in zip(*where, strict=True)]
            for row, *where in zip(spelt, starts, ends, strict=True)
        ]
        assert marked[:2] == [["[CLS]", "tina", "it"], ["[CLS]", "the demonstrators", "they"]]


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("boolq", {"passage": "a", "label": True}, "train.jsonl, line 2: there is no column 'question'"),
        ("boolq", {"passage": "a", "question": "b"}, "line 2: there is no label"),
        ("boolq", {"passage": "a", "question": " ", "label": True}, "line 2: the question is empty"),
        ("boolq", {"passage": 3, "question": "a", "label": True}, "line 2: passage 3: it must be a text"),
        ("boolq", {"passage": "a", "question": "b", "label": "perhaps"},
         "line 2: label 'perhaps': it must be false or true"),
        ("cb", {**_PAIR, "label": "yes"}, "label 'yes': it must be entailment or contradiction or neutral"),
        ("copa", {**ROWS["copa"][0], "question": "why"}, "line 2: question 'why': it must be cause or"),
        ("copa", {**ROWS["copa"][0], "label": 2}, "line 2: label 2: it must be 0 or 1"),
        ("multirc", {"passage": {"text": "a"}}, "line 2: there is no 'questions'"),
        ("multirc", {"passage": "a"}, "line 2: passage a: it must be an object"),
        ("multirc", {"passage": {"text": "a", "questions": [{"question": "b", "answers": ["c"]}]}},
         "line 2, question 1, answer 1: there is no 'text' in c"),
        ("boolq", {**ROWS["boolq"][0], "idx": "x"}, "line 2: idx x: it must be a whole number"),
        ("multirc", multirc(0, 1), "line 2, question 2, answer 1: there is no label"),
        ("record", record(), "line 2, query 1: there is no answer"),
        ("record", record("d", qas=[{"query": "c", "answers": []}]), "query 1: there is no @placeholder"),
        ("record", record("d", passage={"text": "a", "entities": []}), "the passage has no entity"),
        ("record", record("d", passage={"text": "a", "entities": [{"start": 0, "end": 1}]}),
         r"line 2, entity 1: \[0, 1\] is not in the passage, which has 1"),
        ("wic", {**_WIC, "end2": 6, "label": True}, r"line 2: \[4, 6\] of start2 and end2 is no span"),
        ("wic", {**_WIC, "start1": "2", "label": True}, "line 2: start1 2: it must be a whole number"),
        ("wsc", {"text": "a b", "target": _WSC, "label": True}, "line 2: the span 'd' is not in the text"),
        ("wsc", {"text": "a b", "target": {}, "label": True}, "line 2: there is no 'span1_text'"),
    ],
)  # fmt: skip
def test_wrong_files(
    tmp_path: pathlib.Path, tokenizer: Any, name: str, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskDataError, match=message):
        make(tmp_path, name, tokenizer, train=[ROWS[name][0], row])


def test_no_files(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    with pytest.raises(TaskDataError, match=r"val\.jsonl is not there: .* others named by task\.eval_file"):
        path = folder(tmp_path, "cb")
        (path / "val.jsonl").unlink()
        tasks.make(config("cb", path), tokenizer)
    with pytest.raises(TaskDataError, match=r'nor a TFDS name \(such as "super_glue/wsc.fixed"\)'):
        tasks.make(config("wsc", tmp_path / "nowhere"), tokenizer)
    with pytest.raises(TaskDataError, match=r"train\.jsonl has no example"):
        make(tmp_path, "cb", tokenizer, train=[])
    with pytest.raises(TaskDataError, match=r"no training example is true"):
        make(tmp_path, "boolq", tokenizer, train=ROWS["boolq"][:1])
    with pytest.raises(ConfigError, match=r'model\.pooling = "attention" makes one vector'):
        config("wic", tmp_path, model__pooling="attention")


@pytest.mark.parametrize(
    ("text", "phrase", "index", "span", "there"),
    [
        ("Bob saw Bob.", "Bob", 2, "8:11", True),
        ('Bob saw him," and', "him", 2, "8:11", True),
        ("When The  city men left", "the city\nmen.", 1, "5:18", True),  # case, white space, a full stop
        ("He said he", "he", 1, "0:2", False),  # as far as the other, and before it
        ("the other, the", "The", 9, "11:14", False),
        ("there he", "he", 0, "6:8", False),  # a word, and no part of one
        ("theyscold him", "they", 0, "0:4", True),
        ("Ann, who left, and Bob", "Ann and Bob", 0, "0:22", True),
        ("Stalin met Ann with Bob", "Ann and Bob", 2, "11:14", False),  # the first word alone
        ("Ünsal sah ihn", "ünsal", 0, "0:5", True),
    ],
)
def test_where_a_phrase_stands(text: str, phrase: str, index: int, span: str, there: bool) -> None:
    (start, end), found = winograd.locate(text, phrase, index, "here")
    assert (f"{start}:{end}", found) == (span, there)


def test_spans_elsewhere_are_counted(tmp_path: pathlib.Path, tokenizer: Any, caplog: Any) -> None:
    moved = {"text": "a b c d", "target": {**_WSC, "span2_index": 1}, "label": True}
    task = make(tmp_path, "wsc", tokenizer, train=[ROWS["wsc"][0], moved])
    assert "train.jsonl: 1 of 4 spans are not where their index says" in caplog.text
    assert "val.jsonl: " not in caplog.text
    assert task.train.batch(0, np.arange(2))["marked_positions"].tolist() == [[0, 1, 4]] * 2


def test_long_texts_keep_their_spans(tokenizer: Any) -> None:
    text = " ".join("ab"[n % 2] for n in range(40))
    for spans in (((0, 1), (78, 79)), ((70, 79), (0, 3)), ((10, 79), (20, 31))):
        ids, types, whole, where = next(spanned.rows(tokenizer, [text], None, [spans], 10))
        assert (len(ids), len(types), whole) == (10, 10, 42)
        assert all(1 <= start < end <= 9 for start, end in where)
        assert [ids[start] for start, _ in where] == [5 + (start // 2) % 2 for start, _ in spans]
    rows = spanned.rows(tokenizer, [text], [text], [((40, 41), (78, 79))], 11)
    ids, types, whole, (first, second) = next(rows)
    assert (len(ids), whole, types) == (11, 83, [0] * 6 + [1] * 5)
    assert (ids[first[0]], ids[second[0]]) == (5, 6)
    assert 1 <= first[0] < first[1] <= 5 < second[0] < second[1] <= 10
    with pytest.raises(TaskDataError, match=r"data\.seq_len = 4 has no room"):
        next(spanned.rows(tokenizer, [text], [text], [((0, 1), (0, 1))], 4))
    with pytest.raises(TaskDataError, match=r"the span '\\u200b' of 'a\\u200b b' has no token"):
        next(spanned.rows(tokenizer, ["a\u200b b"], None, [((1, 2), (3, 4))], 9))


def test_marks_say_spans_and_spans_marks() -> None:
    for texts, spans in (
        (("ab c, d",), ((3, 4), (6, 7))),
        (("ab c, d",), ((6, 7), (0, 2))),
        (("ab c", "c d"), ((3, 4), (0, 1))),
    ):
        marked = spanned.inline(texts, spans)
        assert marked != texts
        assert spanned.of_inline(marked, "here") == (texts, spans)
    assert spanned.inline(("ab c", "c d"), ((3, 4), (0, 1))) == ("ab [E1]c[/E1]", "[E2]c[/E2] d")
    with pytest.raises(TaskDataError, match="overlap"):
        spanned.inline(("ab c",), ((0, 4), (3, 4)))
    with pytest.raises(TaskDataError, match=r"there must be one \[E2\] word"):
        spanned.of_inline(("[E1]a[/E1]", "[E1]b[/E1]"), "here")


def test_the_classifier_reads_means_of_spans(tokenizer: Any) -> None:
    model = config("wic", "x", model__hidden_size=8, model__layers=1, model__heads=2, model__max_positions=12,
                   model__feed_forward_size=16).model  # fmt: skip
    spec = spec_lib.from_config(model, vocab_size=9, mask_id=4, has_mlm=False, labels=2, marked=3)
    batch = {"tokens": jnp.array([[2, 5, 6, 7, 3]]), "marked_positions": jnp.array([[0, 1, 3]])}
    ends = jnp.array([[1, 3, 4]])
    params = Model(spec).init(jax.random.key(0), batch)["params"]
    hidden = Model(spec).apply({"params": params}, batch, method="hidden")[0]
    states = jnp.concatenate([hidden[0], (hidden[1] + hidden[2]) / 2, hidden[3]])
    kernel = params["classifier"]["kernel"].unbox()
    found = Model(spec).apply({"params": params}, {**batch, "marked_ends": ends})["logits"]
    np.testing.assert_allclose(found[0], states @ kernel, atol=1e-6)
    single = Model(spec).apply({"params": params}, {**batch, "marked_ends": batch["marked_positions"] + 1})
    plain = Model(spec).apply({"params": params}, batch)
    np.testing.assert_allclose(single["logits"], plain["logits"], atol=1e-6)
    assert np.abs(found - plain["logits"]).max() > 1e-4


def test_multirc_literally() -> None:
    questions = [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2)]
    labels, said = np.array([1, 0, 1, 0, 0]), np.array([1, 0, 1, 1, 1])
    found = superglue_scores.of_questions(questions, labels, said)
    # 2 of 4 said are right, 2 of 2 right ones are said; the first question alone is right throughout.
    assert found == pytest.approx({"f1a": 2 / 3, "em": 1 / 3, "f1a_em": (2 / 3 + 1 / 3) / 2})


def test_record_literally() -> None:
    def item(query: int, entity: str, *golds: str) -> Item:
        return Item(("p", "q"), int(entity in golds), query, group=query, answer=entity, golds=golds)

    items = [
        item(0, "The US", "U.S."), item(0, "Ada", "U.S."),
        item(1, "Ada", "Ada Lovelace", "Byron"), item(1, "Byron", "Ada Lovelace", "Byron"),
        item(1, "Bob", "Ada Lovelace", "Byron"),
    ]  # fmt: skip
    # The first is right but for an article and points; the second has one of two words.
    found = superglue_scores.of_queries(items, np.array([0.2, 0.1, 3.0, 2.0, 1.0]))
    f1 = (1 + 2 / 3) / 2
    chance_f1, chance_em = ((1 + 0) / 2 + (2 / 3 + 1 + 0) / 3) / 2, (1 / 2 + 1 / 3) / 2
    assert found == pytest.approx({
        "f1_em": (f1 + 1 / 2) / 2, "f1": f1, "em": 1 / 2, "random_f1": chance_f1, "random_em": chance_em,
        "random_f1_em": (chance_f1 + chance_em) / 2,
    })  # fmt: skip
    # The order of the rows does not matter, and of equal entities it is the first.
    order = [3, 0, 2, 4, 1]
    mixed = superglue_scores.of_queries([items[n] for n in order], np.array([2.0, 0.2, 3.0, 1.0, 0.1]))
    assert mixed == pytest.approx(found)
    assert superglue_scores.chosen([0, 1, 0, 1], np.array([1.0, 0.0, 1.0, 2.0])) == [0, 3]


def test_cb_literally(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tmp_path, "cb", tokenizer, train=[*ROWS["cb"], ROWS["cb"][1]])
    task.evals["eval"].labels = np.array([0, 0, 1, 1, 1, 2])
    guesses = np.array([0, 1, 1, 1, 0, 1])
    # F1 of the classes: 1 of 2 and 2; 2 of 4 and 3; none.
    f1 = (1 / 2 + 4 / 7 + 0) / 3
    found = task.metrics("eval", {"logits": np.eye(3)[guesses]})
    assert (found["f1"], found["accuracy"]) == (pytest.approx(f1), 0.5)
    assert found["f1_accuracy"] == pytest.approx((f1 + 0.5) / 2)
    assert found["majority_class_f1"] == pytest.approx((2 * 3 / 9) / 3)
    assert found["majority_class_f1_accuracy"] == pytest.approx((2 / 9 + 0.5) / 2)


def test_whole_groups_are_read() -> None:
    groups = np.repeat(np.arange(50), np.arange(50) % 7 + 1)
    for most in (1, 6, 40, 150, len(groups) - 1):
        chosen = features.whole_groups(groups, most)
        sizes = np.bincount(groups[chosen], minlength=50)
        assert all(size in (0, whole) for size, whole in zip(sizes, np.bincount(groups), strict=True))
        assert 0 < len(chosen) <= max(most, 7)
        assert len(chosen) > 0.8 * most - 7
    assert len(features.whole_groups(groups, 0)) == len(features.whole_groups(groups, 999)) == len(groups)


@pytest.mark.parametrize("name", ["multirc", "record"])
def test_groups_are_judged_whole(tmp_path: pathlib.Path, tokenizer: Any, name: str) -> None:
    rows = [multirc(0, 1, 1), {**multirc(1, 1, 0), "idx": 8}] if name == "multirc" else []
    for n in range(4) if name == "record" else ():
        query = {"query": "@placeholder", "idx": n, "answers": [{"text": ("d", "a b")[n % 2]}]}
        rows.append(record(qas=[query]))
    task = make(tmp_path, name, tokenizer, val=rows)
    logits = np.random.default_rng(0).normal(size=(task.evals["eval"].num_examples, 2))
    whole = task.metrics("eval", {"logits": logits})
    # Of all rows: 6 answers to 4 questions, 8 entities of 4 queries.
    assert (len(logits), len({item.group for item in task.items("eval")})) == ((6, 8)[name == "record"], 4)
    part = make(tmp_path, name, tokenizer, {"train__eval_rows": 4}, val=rows)
    numbers = part.evals["eval"].numbers
    groups = [item.group for item in part.items("eval")]
    every = [item.group for item in task.items("eval")]
    assert 0 < len(groups) <= 4
    assert all(groups.count(group) == every.count(group) for group in groups)
    found = part.metrics("eval", {"logits": logits[numbers]})
    assert found.keys() == whole.keys()
    assert part.tests["test"].num_examples == task.tests["test"].num_examples  # tests are read whole


@pytest.mark.parametrize(
    ("name", "logits", "lines"),
    [
        ("boolq", [[0, 1]], [{"idx": 100, "label": True}]),
        ("cb", [[0, 0, 1]], [{"idx": 100, "label": "neutral"}]),
        ("copa", [[0, 1]], [{"idx": 100, "label": 1}]),
        ("multirc", [[0, 1], [1, 0], [0, 1]],
         [{"idx": 7, "passage": {"questions": [
             {"idx": 1, "answers": [{"idx": 5, "label": 1}, {"idx": 6, "label": 0}]},
             {"idx": 2, "answers": [{"idx": 7, "label": 1}]}]}}]),
        ("record", [[0, 1], [5, 7]], [{"idx": 9, "label": "d"}]),
        ("superglue_rte", [[1, 0]], [{"idx": 100, "label": "entailment"}]),
        ("wic", [[1, 0]], [{"idx": 100, "label": False}]),
        ("wsc", [[0, 1]], [{"idx": 100, "label": True}]),
    ],
)  # fmt: skip
def test_submissions(tmp_path: pathlib.Path, tokenizer: Any, name: str, logits: Any, lines: Any) -> None:
    task = make(tmp_path, name, tokenizer, val=ROWS[name])
    task.write_predictions(tmp_path, "test", {"logits": np.array(logits, np.float32)})
    written = (tmp_path / f"{BENCHMARKS[name].folder}.jsonl").read_text()
    assert [json.loads(line) for line in written.splitlines()] == lines
    count = task.evals["eval"].num_examples
    said = np.tile(np.array(logits[:1], np.float32), (count, 1))
    task.write_predictions(tmp_path, "eval", {"logits": said})
    of_eval = (tmp_path / f"{BENCHMARKS[name].folder}.eval.jsonl").read_text().splitlines()
    assert json.loads(of_eval[0]).keys() == lines[0].keys()
    own = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    assert len(own) == count and all("gold" in line for line in own)


def test_diagnostics(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    broad = [
        {"sentence1": "a", "sentence2": "b", "label": label} for label in ("entailment", "not_entailment")
    ]
    gender = [
        {**_PAIR, "label": "entailment", "pair_id": n // 2, "hypothesis": "cd"[n % 2]} for n in range(4)
    ]
    write(tmp_path / "AX-b/AX-b.jsonl", broad)
    write(tmp_path / "AX-g/AX-g.jsonl", gender)
    task = make(tmp_path, "superglue_rte", tokenizer)
    assert (list(task.evals), list(task.tests)) == (["eval", "axb", "axg"], ["test"])
    assert task.metrics("axb", {"logits": np.eye(2)[[0, 1]]})["mcc"] == 1.0
    found = task.metrics("axg", {"logits": np.eye(2)[[0, 0, 0, 1]]})
    assert (found["gender_parity"], found["accuracy"]) == (0.5, 0.75)
    task.write_predictions(tmp_path, "axg", {"logits": np.eye(2)[[0, 0, 0, 1]]})
    first = json.loads((tmp_path / "AX-g.jsonl").read_text().splitlines()[0])
    assert first == {"idx": 100, "label": "entailment"}
    write(tmp_path / "AX-b/AX-b.jsonl", [{"sentence1": "a", "sentence2": ""}])  # without labels
    assert list(make(tmp_path, "superglue_rte", tokenizer).tests) == ["test", "axb"]
    assert [DIAGNOSTICS[name].folder for name in ("axb", "axg")] == ["AX-b", "AX-g"]
