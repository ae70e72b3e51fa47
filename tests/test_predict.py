"""Prediction: a model's answers to lines, the same whatever the batch, and the command around it."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from bert_jax import build, checkpoint, predict, prediction, train
from bert_jax import config as config_lib
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model

ROOT = pathlib.Path(__file__).parents[1]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "run", "##s", "."]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text("\n".join(VOCABULARY))
    return tokenizer_lib.load(file, lowercase=True)


def source(
    tokenizer: Any, labels: tuple[str, ...] = (), kind: str = "encoder", facts: Any = (), **heads: Any
) -> load.Source:
    """A small model with random weights, large enough that its answers differ."""
    model = config_lib.default().model
    model.kind, model.hidden_size, model.layers, model.heads = kind, 16, 1, 2
    model.feed_forward_size, model.max_positions = 32, 20
    spec = spec_lib.from_config(
        model, vocab_size=tokenizer.vocab_size, mask_id=4, labels=len(labels), **heads
    )
    shapes = jax.eval_shape(
        lambda: Model(spec).init(jax.random.key(0), {"tokens": jnp.ones((1, 4), jnp.int32)})
    )
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), nn.unbox(shapes)["params"])
    return load.Source(spec, params, tokenizer, labels, [], dict(facts))


def outputs(made: load.Source, ids: list[int]) -> dict[str, jax.Array]:
    """What the model says of one row without padding."""
    batch = {"tokens": jnp.array([ids])}
    return jax.jit(lambda p, b: Model(made.spec).apply({"params": p}, b))(made.params, batch)


LINES = [
    "the [MASK] sat.",
    "",
    "the cat",
    "[MASK] [MASK] run. the cat sat.",
    "the [MASK] the [MASK] the [MASK]",
    "the cat sat " * 9 + "[MASK]",
]


def close(a: Any, b: Any) -> bool:
    """Equal, numbers to float32's rounding."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    return a == pytest.approx(b, rel=1e-4) if isinstance(a, float) else a == b


@pytest.mark.parametrize("kind", ["encoder", "tta"])
def test_fillers_are_those_of_the_line_alone(tokenizer: Any, kind: str) -> None:
    made = source(tokenizer, kind=kind)
    found = list(predict.predict(made, LINES, top_k=100, batch_size=4))
    assert [answer["text"] for answer in found] == LINES
    ids = tokenizer.encode(LINES[0]).ids
    assert ids == [2, 5, 4, 8, 11, 3]
    name = "tta_logits" if kind == "tta" else "mlm_logits"
    shares = np.array(jax.nn.softmax(outputs(made, ids)[name][0, 2]))
    order = [i for i in np.argsort(-shares) if 5 <= i < 12]  # no special token, no row of padding
    (fill,) = found[0]["fills"]
    assert fill["position"] == 4
    assert [c["token"] for c in fill["candidates"]] == [VOCABULARY[i] for i in order]
    np.testing.assert_allclose([c["probability"] for c in fill["candidates"]], shares[order], rtol=1e-4)

    assert found[1] == {"text": "", "fills": [], "filled": "", "note": "empty line"}
    note = "no [MASK] in it, which is this vocabulary's mask"
    assert found[2] == {"text": "the cat", "fills": [], "filled": "the cat", "note": note}
    assert [fill["position"] for fill in found[3]["fills"]] == [0, 7]
    assert [fill["position"] for fill in found[4]["fills"]] == [4, 15, 26]
    assert "[MASK]" not in found[4]["filled"]
    assert found[5]["note"] == "cut from 30 to 20 tokens"
    assert (found[5]["fills"], found[5]["filled"]) == ([], LINES[5])


def test_a_piece_is_joined_to_its_word(tokenizer: Any) -> None:
    tokens, shares = np.array([[9, 6], [10, 6]]), np.array([[0.5, 0.25], [0.125, 0.0625]])
    head = prediction.head_of(source(tokenizer))
    found = head.filled("the dog [MASK] [MASK].", (8, 15), shares, tokens)
    assert found["filled"] == "the dog runs."
    assert found["fills"][1] == {
        "position": 15,
        "candidates": [{"token": "##s", "probability": 0.125}, {"token": "cat", "probability": 0.0625}],
    }


def test_labels_and_their_probabilities(tokenizer: Any) -> None:
    made = source(tokenizer, labels=("bad", "good"), has_mlm=False)
    found = list(predict.predict(made, LINES))
    assert [answer["text"] for answer in found] == LINES
    assert found[1] == {"text": "", "label": None, "probabilities": None, "note": "empty line"}
    for number in (2, 5):
        ids = tokenizer.encode(LINES[number]).ids
        ids = ids if len(ids) <= 20 else [*ids[:19], 3]
        shares = np.array(jax.nn.softmax(outputs(made, ids)["logits"][0]))
        answer = found[number]
        np.testing.assert_allclose(list(answer["probabilities"].values()), shares, rtol=1e-4)
        assert answer["label"] == ("bad", "good")[int(np.argmax(shares))]
    assert found[5]["note"] == "cut from 30 to 20 tokens"


def test_a_regression_has_scores(tokenizer: Any) -> None:
    made = source(tokenizer, labels=("score",), has_mlm=False)
    found = list(predict.predict(made, LINES[:3], batch_size=2))
    assert found[1] == {"text": "", "score": None, "note": "empty line"}
    assert found[0]["score"] != found[2]["score"]


def logits(made: load.Source, first: str, second: str | None = None) -> np.ndarray:
    """The model's logits of a text or pair alone."""
    encoding = made.tokenizer.encode(first, second)
    batch = {"tokens": jnp.array([encoding.ids]), "type_ids": jnp.array([encoding.type_ids])}
    return np.array(
        jax.jit(lambda p, b: Model(made.spec).apply({"params": p}, b))(made.params, batch)["logits"][0]
    )


def test_pairs_keep_their_order_and_their_types(tokenizer: Any) -> None:
    facts = {"kind": "classification", "pairs": True, "seq_len": 14}
    made = source(tokenizer, labels=("no", "yes"), facts=facts, has_mlm=False)
    pairs = [
        ("the cat", "the dog sat."),
        ("the dog sat.", "the cat"),
        ("", "cat"),
        (" ", ""),
        ("the " * 12, "run"),
    ]
    found = list(predict.predict(made, pairs, batch_size=2))
    assert [(x["text"], x["text_pair"]) for x in found] == pairs
    for (first, second), answer in zip(pairs[:3], found, strict=False):
        shares = np.array(jax.nn.softmax(logits(made, first, second)))
        np.testing.assert_allclose(list(answer["probabilities"].values()), shares, rtol=1e-4)
    assert found[0]["probabilities"] != found[1]["probabilities"]
    assert found[3] == {
        "text": " ", "text_pair": "", "label": None, "probabilities": None, "note": "empty line"
    }  # fmt: skip
    assert found[4]["note"] == "cut from 16 to 14 tokens"
    with pytest.raises(ValueError, match="input 2 has 1 texts: the model reads 2, text, text_pair"):
        list(predict.predict(made, [("a", "b"), "a"]))
    single = source(tokenizer, labels=("no", "yes"), facts={**facts, "pairs": False}, has_mlm=False)
    with pytest.raises(ValueError, match="input 1 has 2 texts: the model reads 1, text"):
        list(predict.predict(single, pairs))


def test_a_choice_is_a_softmax_over_its_texts(tokenizer: Any) -> None:
    facts = {"kind": "choice", "pairs": True, "seq_len": 20, "choices": ["x", "y", "z"]}
    made = source(tokenizer, labels=("score",), facts=facts, has_mlm=False)
    texts = [
        ("the cat", "sat.", "run.", "dogs"),
        ("the dog", "sat", "", "run"),
        ("cats", "run", "the dog sat", "."),
    ]
    found = list(predict.predict(made, texts, batch_size=2))
    for n in (0, 2):
        shares = np.array(jax.nn.softmax(np.array([logits(made, texts[n][0], x)[0] for x in texts[n][1:]])))
        assert found[n]["text"] == texts[n][0]
        assert found[n]["choices"] == list(texts[n][1:])
        np.testing.assert_allclose(list(found[n]["probabilities"].values()), shares, rtol=1e-4)
        assert found[n]["label"] == "xyz"[int(np.argmax(shares))]
    assert (found[1]["label"], found[1]["note"]) == (None, "empty choice")
    alone = source(tokenizer, labels=("score",), facts={**facts, "pairs": False}, has_mlm=False)
    (answer,) = predict.predict(alone, [("sat.", "run.", "dogs")])
    assert answer["choices"] == ["sat.", "run.", "dogs"]
    assert "text" not in answer


ROWS = [("the cat sat.", "the dogs run", "x"), ("the cat " * 7, "dogs", "y"), ("run", "sat " * 9, "x"),
        ("the dog", "cat", "y"), ("cat cat", "the run.", "x")]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("pairs", {"text": "a", "text_pair": "b", "label": "right"}),
        ("regression", {"text": "a", "label": "number"}),
        ("choice", {"text": "a", "choices": ("a", "b"), "label": "right", "labels": ("x", "y")}),
    ],
)
def test_the_same_as_the_evaluation_says(
    tmp_path: pathlib.Path, tokenizer: Any, name: str, keys: dict[str, Any]
) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    lines = [f'"{a}","{b}",{right},{n}\n' for n, (a, b, right) in enumerate(ROWS)]
    (tmp_path / "train.csv").write_text("a,b,right,number\n" + "".join(lines))
    c = config_lib.default()
    c.task.name, c.data.path, c.data.eval_path = (
        name,
        str(tmp_path / "train.csv"),
        str(tmp_path / "train.csv"),
    )
    for key, value in keys.items():
        c.task[key] = value
    c.data.tokenizer, c.data.seq_len, c.data.buckets = str(tmp_path / "tokenizer"), 12, (8,)
    c.model.hidden_size, c.model.layers, c.model.heads, c.model.feed_forward_size = 16, 1, 2, 32
    c.model.max_positions, c.model.init_std = 20, 0.3
    c.train.steps, c.train.batch_size, c.train.eval_batch_size = 1, 2, 2  # the last batch is half empty
    run = build.build(c, None)
    state = run.initial_state(run.phases[0].train.batch(0, np.arange(2)))
    evaluator = train.Evaluator(run, run.phases[0])
    evaluator(state.params)
    evaluator.write_predictions(tmp_path / "predictions", state.params)
    want = [json.loads(line) for line in (tmp_path / "predictions/eval.jsonl").read_text().splitlines()]

    task = run.task
    made = load.Source(
        run.setup.model.spec, jax.device_get(state.params), tokenizer, task.labels, [], task.facts
    )
    columns = [key for key in (keys["text"], keys.get("text_pair"), *keys.get("choices", ())) if key]
    places = {"a": 0, "b": 1}
    found = list(
        predict.predict(made, [tuple(row[places[k]] for k in columns) for row in ROWS], batch_size=3)
    )
    assert [line["index"] for line in want] == ["0", "1", "2", "3", "4"]
    for ours, theirs in zip(found, want, strict=True):
        if name == "regression":
            assert ours["score"] == pytest.approx(theirs["score"], abs=1e-5)
        else:
            assert ours["label"] == theirs["label"]
            assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-5)
    assert [line["gold"] for line in want] == ([0, 1, 2, 3, 4] if name == "regression" else list("xyxyx"))


def test_answers_do_not_depend_on_the_batch(tokenizer: Any) -> None:
    made = source(tokenizer)
    lines = LINES * 3
    alone = list(predict.predict(made, lines, batch_size=1))
    assert close(alone, list(predict.predict(made, lines, batch_size=5)))
    assert close(alone[:6], alone[6:12])


def test_a_model_that_cannot_answer(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="neither a classifier nor a head that predicts tokens"):
        list(predict.predict(source(tokenizer, has_mlm=False), ["the cat"]))
    made = source(tokenizer)
    made.params["encoder"]["embedding_norm"]["scale"] = np.full(16, np.nan, np.float32)
    with pytest.raises(ValueError, match="is not a number"):
        list(predict.predict(made, ["the [MASK]"]))


def save(folder: pathlib.Path, made: load.Source) -> pathlib.Path:
    """Writes a run's directory whose best checkpoint is not its newest."""
    folder.mkdir()
    (folder / "model.json").write_text(spec_lib.to_json(made.spec, made.labels))
    made.tokenizer.save(folder / "tokenizer")
    checkpoints = checkpoint.Checkpoints(folder / "checkpoints", keep=2, best_mode="max")
    params = jax.tree.map(jnp.asarray, made.params)
    checkpoints.save(1, {"params": params}, metric=0.5)
    checkpoints.save(2, {"params": jax.tree.map(jnp.zeros_like, params)}, metric=0.25)
    checkpoints.close()
    return folder


def run(folder: pathlib.Path, stdin: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "bert_jax.predict", *arguments]
    return subprocess.run(command, cwd=folder, env=env, input=stdin, capture_output=True, check=False)


def test_the_command_on_a_run(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    made = source(tokenizer, labels=("bad", "good"), has_mlm=False)
    save(tmp_path / "run", made)
    again = load.read(tmp_path / "run")
    assert (again.spec, again.labels) == (made.spec, made.labels)
    assert jax.tree.all(jax.tree.map(np.array_equal, again.params, made.params))

    (tmp_path / "in.txt").write_bytes("\r\n".join(LINES[:3]).encode())
    done = run(tmp_path, b"", "--model=run", "--input=in.txt", "--output=out.jsonl", "--batch_size=2")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().decode().split("\n")[:-1]]
    assert close(found, list(predict.predict(made, LINES[:3])))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.jsonl", "run"]

    # A table has columns.
    (tmp_path / "in.csv").write_text('id,said\n1,"the cat"\n')
    done = run(tmp_path, b"", "--model=run", "--input=in.csv", "--output=-", "--text=said")
    assert close(json.loads(done.stdout), next(predict.predict(made, ["the cat"]))), done.stderr
    (tmp_path / "in.csv").unlink()

    # Bad input leaves an earlier output as it was, and nothing beside it.
    before = (tmp_path / "out.jsonl").read_bytes()
    done = run(tmp_path, b"the cat\n\xff\n", "--model=run", "--input=-", "--output=out.jsonl")
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1].startswith("error: /dev/stdin, line 2: not UTF-8")
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.jsonl", "run"]


def test_columns_of_a_table(tokenizer: Any, tmp_path: pathlib.Path) -> None:
    facts = {
        "kind": "classification",
        "pairs": True,
        "columns": {"text": "a", "text_pair": "b", "choices": []},
    }
    trained = source(tokenizer, labels=("no", "yes"), facts=facts, has_mlm=False)
    other = source(tokenizer, labels=("no", "yes"), has_mlm=False)

    def columns(made: load.Source, name: str, *given: str) -> tuple[str, ...]:
        return predict._columns(name, given, made, prediction.head_of(made))

    assert columns(trained, "x.tsv.gz") == ("a", "b")
    assert columns(trained, "x.txt") == ()
    assert columns(trained, "-", "c", "d") == ("c", "d")
    assert columns(other, "x.csv", "c") == ("c",)
    assert columns(other, "x.csv", "c", "d") == ("c", "d")
    with pytest.raises(
        ValueError, match=r"x\.csv is a table: name the column of the text by --text, and that"
    ):
        columns(other, "x.csv")
    with pytest.raises(ValueError, match="the columns c are 1: the model reads 2, text, text_pair"):
        columns(trained, "x.csv", "c")
    with pytest.raises(ValueError, match="the columns c, d, e are 3: the model reads 2"):
        columns(other, "x.csv", "c", "d", "e")

    file = tmp_path / "in.jsonl"
    file.write_text('{"b": "", "a": "the cat"}\n')
    assert list(predict._of_table(epath.Path(file), ("a", "b"))) == [("the cat", "")]
    file.write_text('{"b": null, "a": "the cat"}\n')
    with pytest.raises(ValueError, match=r"in\.jsonl, line 1: b None: it must be a text"):
        list(predict._of_table(epath.Path(file), ("a", "b")))


def test_lines_of_pairs_are_separated_by_tabs(tokenizer: Any, tmp_path: pathlib.Path) -> None:
    facts = {"kind": "classification", "pairs": True}
    pairs = prediction.head_of(source(tokenizer, labels=("no", "yes"), facts=facts, has_mlm=False))
    single = prediction.head_of(source(tokenizer, labels=("no", "yes"), has_mlm=False))
    file = tmp_path / "in.txt"
    file.write_bytes(b"the cat\trun\r\n\n\tsat\n")
    lines = epath.Path(file)
    assert list(predict._of_lines(lines, pairs)) == [("the cat", "run"), ("", ""), ("", "sat")]
    assert list(predict._of_lines(lines, single)) == ["the cat\trun", "", "\tsat"]
    file.write_text("the cat\trun\nsat\n")
    with pytest.raises(ValueError, match=r"in\.txt, line 2: 1 texts: the model reads 2, separated by tabs"):
        list(predict._of_lines(lines, pairs))


def test_a_kind_of_another_version(tokenizer: Any) -> None:
    made = source(tokenizer, labels=("no", "yes"), facts={"kind": "poetry"}, has_mlm=False)
    with pytest.raises(ValueError, match="of the kind 'poetry', and answers are made by classification, "):
        prediction.head_of(made)
