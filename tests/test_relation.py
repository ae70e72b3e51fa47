"""Relations: marked texts, rows and their cut, scores, answers; attention pooling; a head's own rate."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tasks_data
from ml_collections import ConfigDict

from bert_jax import completion, optimizer, prediction, tasks
from bert_jax import config as config_lib
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load, native
from bert_jax.models import spec as spec_lib
from bert_jax.models.heads import AttentionPooling
from bert_jax.models.model import Model
from bert_jax.tasks import TaskDataError, marks
from bert_jax.tasks.relation import Relation

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "@", "#", "##x", "[E1]"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    return tasks_data.tokenizer(tmp_path_factory.mktemp("vocabulary"), VOCABULARY)


def config(path: pathlib.Path, **keys: Any) -> ConfigDict:
    return tasks_data.config("relation", path, **{"train__batch_size": 2, **keys})


ROWS = [
    {"text": "a b c", "head": [0, 1], "tail": [4, 5], "label": "of"},
    {"tokens": ["d", "bx", "c", "a"], "head": [2, 4], "tail": [0, 1], "label": "no_relation"},
    {"text": "[E2] a [/E2] b [E1]c d[/E1].", "label": "by"},
    {"text": "a b", "head": [0, 3], "tail": [2, 3], "label": "of"},
]


def make(tokenizer: Any, folder: pathlib.Path, rows: Any = ROWS, **keys: Any) -> Relation:
    for name in ("train", "dev"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tasks.make(config(folder, **keys), tokenizer)


@pytest.mark.parametrize(
    ("text", "plain", "head", "tail"),
    [
        ("[E1] x [/E1] and [E2] y z [/E2]", "x and y z", "x", "y z"),
        ("the [E2]y[/E2] of [E1]x[/E1]s.", "the y of xs.", "x", "y"),
        ("(see [E1] x [/E1], or [E2] y [/E2])", "(see x , or y )", "x", "y"),
        ("a[E1] x[/E1][E2]y [/E2]b", "a xy b", "x", "y"),
        (" [E1] x [/E1] [E2] x [/E2] ", "x x", "x", "x"),
    ],
)
def test_marks_within_a_text(text: str, plain: str, head: str, tail: str) -> None:
    found = marks.of_inline(text, "here")
    assert found.text == plain
    assert [found.text[start:end] for start, end in found.spans] == [head, tail]


@pytest.mark.parametrize(
    "text",
    [
        "x y",
        "[E1]x[/E1]",
        "[E1]x[/E1][E1]y[/E1]",
        "[E1] [/E1][E2]y[/E2]",
        "[E1]x[/E1][E2]y",
        "[E1]x[E2]y[/E2][/E1]",
    ],
)
def test_a_text_without_two_entities_is_refused(text: str) -> None:
    with pytest.raises(TaskDataError, match=r"here: there must be one \[E1\] entity"):
        marks.of_inline(text, "here")


def test_rows_of_marked_texts(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tokenizer, tmp_path)
    assert (task.labels, task.metric, task.majority) == (("by", "no_relation", "of"), "f1", 2)
    assert task.heads == {"labels": 3, "marked": 2}
    batches = [task.evals["eval"].batch(step, np.arange(2)) for step in range(2)]
    rows = [[i for i in row.tolist() if i] for batch in batches for row in batch["tokens"]]
    assert rows == [
        [2, 9, 5, 9, 6, 10, 7, 10, 3],
        [2, 10, 8, 10, 6, 11, 9, 7, 5, 9, 3],
        [2, 10, 5, 10, 6, 9, 7, 8, 9, 1, 3],
        [2, 9, 5, 10, 6, 10, 9, 3],  # one entity within the other
    ]
    places = np.concatenate([batch["marked_positions"] for batch in batches])
    assert places.tolist() == [[1, 5], [6, 1], [5, 1], [1, 3]]
    assert all(rows[n][head] == 9 and rows[n][tail] == 10 for n, (head, tail) in enumerate(places))
    assert np.concatenate([batch["labels"] for batch in batches]).tolist() == [2, 1, 0, 2]
    named = make(tokenizer, tmp_path, task__markers=("[E1]", "a", "b", "c"))  # a token, and texts
    assert named.facts["markers"] == ["[E1]", "a", "b", "c"]
    assert named.evals["eval"].batch(0, np.arange(1))["tokens"][0, :5].tolist() == [2, 12, 5, 5, 6]


def test_a_long_text_keeps_what_is_near_its_entities(tokenizer: Any) -> None:
    marker = marks.Marker(tokenizer, ("@", "@", "#", "#"), 10)
    text = " ".join("b" * 30)
    for spans in (((20, 21), (24, 25)), ((0, 1), (58, 59)), ((58, 59), (0, 1)), ((0, 59), (28, 29))):
        ids, starts, whole = marker.row(marks.Marked(text, spans))
        assert (len(ids), whole) == (10, 36)
        assert [ids[start] for start in starts] == [9, 10]
    ids, starts, whole = marker.row(marks.Marked("a b", ((0, 1), (2, 3))))
    assert (ids, starts, whole) == ([2, 9, 5, 9, 10, 6, 10, 3], (1, 4), 8)


@pytest.mark.parametrize(
    ("row", "keys", "message"),
    [
        ({"text": "a b", "head": [0, 1], "label": "x"}, {}, r"line 1: tail None: it must be \[first, end\]"),
        ({"text": "a b", "head": [0, 4], "tail": [0, 1], "label": "x"}, {}, r"characters of the text, which"),
        ({"text": "a b", "head": [1, 1], "tail": [0, 1], "label": "x"}, {}, r"head \[1, 1\]"),
        ({"tokens": ["a", "b"], "head": [0, 3], "tail": [0, 1], "label": "x"}, {}, r"in words of the text"),
        ({"tokens": ["a", ""], "head": [0, 1], "tail": [0, 1], "label": "x"}, {}, r"or a list of words"),
        ({"text": "a b", "label": "x"}, {}, r"line 1: there must be one \[E1\]"),
        ({"say": "a b", "label": "x"}, {}, r"neither a text nor tokens"),
        ({"text": "a b", "kind": "x"}, {}, r"no column 'label'"),
        ({"text": "[E1]a[/E1][E2]b[/E2]", "label": "x"}, {"task__labels": ("y", "z")}, r"must be one"),
        ({"text": "[E1]a[/E1][E2]b[/E2]", "label": "x"}, {}, r"every training example has the relation 'x'"),
        (ROWS[0], {"task__markers": ("@", "@", "#", "?")}, r"does not know '\?'"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: pathlib.Path, tokenizer: Any, row: Any, keys: Any, message: str) -> None:
    rows = [row] if message.startswith("every") else [row, {**row, "label": "other"}]
    with pytest.raises(ValueError, match=message):
        make(tokenizer, tmp_path, rows, **keys)


def test_f1_leaves_the_class_of_no_relation_out(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tokenizer, tmp_path)  # gold: of, no_relation, by, of
    said = np.eye(3)[[2, 2, 1, 0]]
    found = task.metrics("eval", {"logits": said})
    assert (found["precision"], found["recall"], found["accuracy"]) == (1 / 3, 1 / 3, 0.25)
    assert found["f1"] == pytest.approx(1 / 3)
    assert found["macro_f1"] == pytest.approx((0 + 1 / 2) / 2)
    assert (found["majority_class_accuracy"], found["majority_class_f1"]) == (0.5, pytest.approx(2 * 2 / 7))
    task.write_predictions(tmp_path, "eval", {"logits": said})
    written = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    assert written[1] == {
        "text": "d bx c a",
        "head": [5, 8],
        "tail": [0, 1],
        "label": "of",
        "gold": "no_relation",
    }
    (tmp_path / "eval.jsonl").unlink()
    every = make(tokenizer, tmp_path, task__no_relation="")
    assert every.metrics("eval", {"logits": said})["f1"] == 0.25


def source(tokenizer: Any, task: Any, **model: Any) -> load.Source:
    values = config_lib.default().model
    values.update(
        {"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 20, **model}
    )
    heads = {"has_mlm": False, **task.heads}
    spec = spec_lib.from_config(values, vocab_size=tokenizer.vocab_size, mask_id=4, **heads)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), native._abstract(spec))
    return load.Source(spec, params, tokenizer, task.labels, [], dict(task.facts))


@pytest.mark.parametrize("head", ["entities", "pooled"])
def test_answers_are_those_of_the_evaluation(tmp_path: pathlib.Path, tokenizer: Any, head: str) -> None:
    task = make(tokenizer, tmp_path, task__head=head)
    made = source(tokenizer, task)
    assert ("pooler" in made.params) == (head == "pooled")
    batch = {name: jnp.array(x) for name, x in task.evals["eval"].batch(0, np.arange(2)).items()}
    logits = Model(made.spec).apply({"params": made.params}, batch)["logits"]
    if head == "entities":
        states = np.asarray(Model(made.spec).apply({"params": made.params}, batch, method="hidden"))
        joined = np.stack(
            [np.concatenate([states[0, 1], states[0, 5]]), np.concatenate([states[1, 6], states[1, 1]])]
        )
        kernel = made.params["classifier"]
        np.testing.assert_allclose(logits, joined @ kernel["kernel"] + kernel["bias"], rtol=1e-4, atol=1e-4)
    texts = ["[E1] a [/E1] b [E2] c [/E2]", "", "[E2]d[/E2] bx [E1]c a[/E1]", "a b"]
    found = list(prediction.predict(made, texts))
    shares = np.asarray(jax.nn.softmax(logits))
    for number, row in ((0, 0), (2, 1)):
        assert found[number]["label"] == task.labels[int(np.argmax(shares[row]))]
        assert list(found[number]["probabilities"].values()) == pytest.approx(shares[row].tolist(), rel=1e-3)
    assert (found[2]["text"], found[2]["head"], found[2]["tail"]) == ("d bx c a", [5, 8], [0, 1])
    assert found[1] == {"text": "", "label": None, "probabilities": None, "note": "empty line"}
    assert found[3]["label"] is None and "there must be one [E1]" in found[3]["note"]


def test_attention_pooling() -> None:
    spec = spec_lib.ModelSpec(vocab_size=8, mask_id=4, hidden_size=3)
    states = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    segments = jnp.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    module = AttentionPooling(spec)
    params = module.init(jax.random.key(0), jnp.array(states), segments)
    first = module.apply(params, jnp.array(states), segments)
    np.testing.assert_allclose(first, [states[0].mean(0), states[1, :2].mean(0)], rtol=1e-5)
    query = np.array([1.0, -2.0, 0.5], np.float32)
    found = module.apply({"params": {"query": jnp.array(query)}}, jnp.array(states), segments)
    for row, length in ((0, 4), (1, 2)):
        shares = np.exp(states[row, :length] @ query)
        np.testing.assert_allclose(found[row], shares @ states[row, :length] / shares.sum(), rtol=1e-4)
    gradient = jax.grad(lambda x: module.apply(params, x, segments).sum())(jnp.array(states))
    assert not np.asarray(gradient[1, 2:]).any() and np.asarray(gradient[1, :2]).all()


def test_attention_pooling_is_asked_for_on_top_of_a_model(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tokenizer, tmp_path, task__head="pooled", model__pooling="attention")
    made = source(tokenizer, task)
    native.write(tmp_path / "model", made.spec, made.params, tokenizer, made.labels)
    for asked, wanted in (("attention", "attention"), ("mean", "first")):
        c = config(tmp_path, task__head="pooled", model__pooling=asked)
        c.init_from = str(tmp_path / "model")
        assert completion.complete(c, None)[0].model.pooling == wanted
    with_attention = source(tokenizer, task, pooling="attention")
    assert with_attention.params["pooling"]["query"].shape == (16,)


def test_a_head_has_its_own_rate() -> None:
    c = config_lib.default().optimizer
    c.update({"schedule": "constant", "clip": 0.0})
    params = {name: {"kernel": jnp.ones((2, 2))} for name in ("encoder", "pooler", *optimizer.HEADS)}
    params["crf"] = {"transitions": jnp.ones((2, 2)), "start": jnp.ones(2), "end": jnp.ones(2)}
    grads = jax.tree.map(lambda x: 0.5 * x, params)

    def update(rate: float) -> Any:
        made = optimizer.make(c, 10, None, rate)
        state = made.init(params)
        return made.update(grads, state, params)[0], state

    (plain, state), (faster, _) = update(1.0), update(20.0)
    for name in params:
        factor = 20.0 if name in optimizer.HEADS else 1.0
        for key, value in plain[name].items():
            np.testing.assert_allclose(faster[name][key], factor * value, rtol=1e-6)
    assert jax.tree.structure(state) == jax.tree.structure(optimizer.make(c, 10).init(params))
    # Adam's first step is the rate; decay adds to a kernel, not to the chain's scores.
    assert float(plain["crf"]["transitions"][0, 0]) == pytest.approx(-c.learning_rate, rel=1e-3)
    assert float(plain["lstm"]["kernel"][0, 0]) == pytest.approx(-c.learning_rate * 1.01, rel=1e-3)
