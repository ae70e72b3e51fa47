"""Spelling: the soft mask, rows, made errors, scores, answers, and a made language that is learnt."""

import dataclasses
import json
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tasks_data
import tiny_models
from ml_collections import ConfigDict

from bert_jax import prediction, tasks, train
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.data.ordering import generators
from bert_jax.interop import export, load
from bert_jax.models.model import Model
from bert_jax.objectives.spelling import Spelling as Objective
from bert_jax.tasks import misspelling, spelling, spelling_scores

PAIRS = [("a b c", "a d c"), ("d d", "d d"), ("a", "a b"), ("c " * 20, "c " * 20), ("b a", "b c")]
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "b",
    "c",
    "d",
    "##a",
    "##b",
    "[unused1]",
    "cat",
    "act",
]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    return tasks_data.tokenizer(tmp_path_factory.mktemp("words"), WORDS)


def config(path: pathlib.Path, **keys: Any) -> ConfigDict:
    return tasks_data.config("spelling", path, **{"task__text": "from", "task__target": "to"} | keys)


def write(folder: pathlib.Path, **splits: Sequence[tuple[str, str]]) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    for name, pairs in splits.items():
        lines = [json.dumps({"from": a, "to": b}) + "\n" for a, b in pairs]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def make(folder: pathlib.Path, tokenizer: Any, pairs: Any = PAIRS, **keys: Any) -> spelling.Spelling:
    return tasks.make(config(write(folder, train=pairs, dev=pairs), **keys), tokenizer)


def test_the_soft_mask(tokenizer: Any) -> None:
    """p = 0 is the encoder on the text, p = 1 on masks; what the text is comes through the residual alone."""
    heads = {"has_mlm": True, "has_spelling": True, "gru_size": 4}
    source = tiny_models.source(tokenizer, heads=heads, embedding_size=8)
    model, params = Model(source.spec), jax.tree.map(jnp.asarray, source.params)
    batch = {
        "tokens": np.array([[2, 5, 6, 8, 3, 0]]),
        "segment_ids": np.array([[1, 1, 1, 1, 1, 0]]),
        "type_ids": np.zeros((1, 6), np.int32),
        "positions": np.arange(6, dtype=np.int32)[None],
    }

    def with_bias(bias: float) -> Any:
        out = params["detector"]["out"]
        out = {"kernel": jnp.zeros_like(out["kernel"]), "bias": jnp.full_like(out["bias"], bias)}
        return {**params, "detector": {**params["detector"], "out": out}}

    @jax.jit
    def logits(params: Any) -> Any:
        return model.apply({"params": params}, batch)

    @jax.jit
    def plain(tokens: jax.Array) -> jax.Array:
        def read(model: Model, tokens: jax.Array) -> jax.Array:
            embedded = model.encoder.embed(batch["tokens"], batch["positions"], batch["type_ids"])
            hidden = model.hidden({**batch, "tokens": tokens})
            return model.token_logits(hidden + model.encoder.widened(embedded))

        return model.apply({"params": params}, tokens, method=read)

    for bias, tokens in ((-200.0, batch["tokens"]), (200.0, np.full((1, 6), tokenizer.mask_id))):
        np.testing.assert_allclose(
            logits(with_bias(bias))["correction_logits"][:, :5], plain(tokens)[:, :5], atol=1e-5
        )
    found = logits(params)
    np.testing.assert_array_equal(found["corrected"], np.argmax(found["correction_logits"], axis=-1))
    assert found["detection_logits"].shape == (1, 6)
    # What is behind a text changes nothing of it.
    other = {**batch, "tokens": np.array([[2, 5, 6, 8, 3, 7]])}
    again = jax.jit(lambda: model.apply({"params": params}, other))()
    for name in ("detection_logits", "correction_logits"):
        np.testing.assert_allclose(again[name][:, :5], found[name][:, :5], atol=1e-5)

    judged = {
        **batch,
        "right": np.array([[2, 5, 7, 8, 3, 0]]),
        "token_weights": np.array([[0, 1, 1, 1, 0, 0.0]]),
    }
    for share in (0.0, 0.2):
        objective = Objective(6, share)

        def loss(params: Any, objective: Objective = objective) -> jax.Array:
            return objective.sums(judged, model.apply({"params": params}, batch))["loss"]

        # The detector learns by the correction alone too, through the soft mask.
        gradient = jax.jit(jax.grad(loss))(params)["detector"]
        assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(gradient))
    with pytest.raises(export.ExportError, match=r"detector of wrong tokens"):
        export.choose(dataclasses.replace(source.spec, embedding_size=0), tokenizer.pad_id)


def test_the_loss() -> None:
    batch = {
        "tokens": jnp.array([[2, 5, 6, 3]]), "right": jnp.array([[2, 5, 7, 3]]),
        "token_weights": jnp.array([[0.0, 1.0, 1.0, 0.0]]),
    }  # fmt: skip
    outputs = {"correction_logits": jnp.zeros((1, 4, 8)).at[0, 1, 5].set(2.0),
               "detection_logits": jnp.array([[9.0, -1.0, 3.0, 9.0]])}  # fmt: skip
    objective = Objective(4, 0.2)
    sums = objective.sums(batch, outputs)
    correction = np.log(7 + np.exp(2.0)) - 2 + np.log(8)
    detection = np.log1p(np.exp(-1.0)) + np.log1p(np.exp(-3.0))
    assert float(sums["correction_loss"]) == pytest.approx(correction, rel=1e-5)
    assert float(sums["detection_loss"]) == pytest.approx(detection, rel=1e-5)
    assert float(sums["loss"]) == pytest.approx(0.8 * correction + 0.2 * detection, rel=1e-5)
    assert (float(sums["accuracy"]), float(objective.count(batch))) == (1.0, 2.0)


def test_rows(tmp_path: pathlib.Path, tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        task = make(tmp_path, tokenizer)
    batch = task.evals["eval"].batch(0, np.arange(4))
    assert [[i for i in row if i] for row in batch["tokens"].tolist()] == [
        [2, 5, 6, 7, 3], [2, 8, 8, 3], [2, *[7] * 10, 3], [2, 6, 5, 3],
    ]  # fmt: skip
    assert [[i for i in row if i] for row in batch["right"].tolist()] == [
        [2, 5, 8, 7, 3], [2, 8, 8, 3], [2, *[7] * 10, 3], [2, 6, 7, 3],
    ]  # fmt: skip
    assert batch["token_weights"].sum(axis=1).tolist() == [3, 2, 10, 2]
    assert not batch["token_weights"][:, 0].any()
    assert "1 of 5 training texts are left out" in caplog.text and "line 3" in caplog.text
    assert "1 of 4 evaluation texts are cut to data.seq_len = 12" in caplog.text
    assert task.heads == {"has_mlm": True, "has_spelling": True, "gru_size": 256}


def test_scores_literal() -> None:
    read = [[1, 2, 3], [1, 1], [4, 5], [6], [7, 7]]
    said = [[1, 9, 3], [1, 2], [4, 8], [6], [9, 7]]
    gold = [[1, 9, 3], [1, 1], [4, 6], [7], [7, 7]]
    found = spelling_scores.of_texts(*([np.array(x) for x in side] for side in (read, said, gold)))
    # Changed: four texts; wrong: three; detected of them two, corrected one.
    assert (found["sentence_detection_precision"], found["sentence_detection_recall"]) == (2 / 4, 2 / 3)
    assert (found["sentence_correction_precision"], found["sentence_correction_recall"]) == (1 / 4, 1 / 3)
    assert found["sentence_correction_f1"] == pytest.approx(2 / 7)
    assert (found["sentence_detection_accuracy"], found["sentence_correction_accuracy"]) == (2 / 5, 1 / 5)
    assert (found["token_detection_precision"], found["token_detection_recall"]) == (2 / 4, 2 / 3)
    assert (found["token_correction_f1"], found["token_accuracy"]) == (pytest.approx(2 / 7), 6 / 10)
    assert (found["unchanged_sentence_accuracy"], found["unchanged_token_accuracy"]) == (2 / 5, 7 / 10)
    same = [np.array([1, 2])]
    none = spelling_scores.of_texts(same, same, same)
    assert (none["sentence_correction_f1"], none["sentence_correction_accuracy"]) == (0.0, 1.0)


def test_metrics_and_predictions(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tmp_path / "data", tokenizer)
    said = np.zeros((4, 12), np.int32)
    said[0, :5], said[1, :4], said[2, :12], said[3, :4] = [2, 5, 8, 7, 3], [2, 8, 4, 3], 7, [2, 6, 8, 3]
    logits = np.full((4, 12), -1.0)
    logits[0, 2] = logits[2, 3] = 1.0
    outputs = {"corrected": said, "detection_logits": logits}
    found = task.metrics("eval", outputs)
    assert found["sentence_correction_f1"] == 2 / 4 and found["sentence_detection_f1"] == 1.0
    assert found["detector_f1"] == 2 / 4 and found["aligned_share"] == 4 / 5
    task.write_predictions(tmp_path, "eval", outputs)
    written = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    assert written[0] == {"text": "a b c", "output": "a d c", "gold": "a d c"}
    assert written[1]["output"] == "d d"  # a mask is no answer
    assert written[2]["output"] == "c " * 20  # what was cut stays


def test_corrected_texts_keep_what_is_not_wrong(words: Any) -> None:
    text = "  Cat,  aB  d"
    encoding = words.encode(text, special=False)
    assert encoding.ids == [12, 1, 5, 10, 8]
    said = spelling.accepted(words, np.array(encoding.ids), np.array([13, 1, 9, 9, 13]))
    assert said.tolist() == [13, 1, 5, 9, 13]  # "##a" begins no word
    output, changes = spelling.corrected(words, text, encoding, said)
    assert output == "  Act,  aA  act"
    assert changes == [
        {"token": 0, "start": 2, "end": 5, "from": "Cat", "to": "Act"},
        {"token": 3, "start": 9, "end": 10, "from": "B", "to": "A"},
        {"token": 4, "start": 12, "end": 13, "from": "d", "to": "act"},
    ]


def test_errors_in_tokens(words: Any) -> None:
    errors = misspelling.Tokens(words, 0.3)
    tokens = np.tile(np.array([[2, 5, 6, 9, 12, 10, 3]], np.int32), (2000, 1))
    may = np.tile(np.array([[0, 1, 1, 1, 1, 1, 0]], bool), (2000, 1))
    draws = generators(3, "x", np.zeros(2000, int), np.arange(2000))
    made = errors(tokens, may, draws)
    changed = made != tokens
    assert not changed[:, [0, 6]].any() and not np.isin(made, [0, 1, 4, 11]).any()
    assert (words.continues[made] == words.continues[tokens]).all()
    # Of six beginnings one, and of two others one, is the token itself.
    np.testing.assert_allclose(changed.mean(axis=0)[1:6], [0.25, 0.25, 0.15, 0.25, 0.15], atol=0.04)
    part = errors(tokens[:3], may[:3], generators(3, "x", np.zeros(3, int), np.array([5, 0, 7])))
    np.testing.assert_array_equal(part, made[[5, 0, 7]])


def test_errors_are_of_the_epoch_and_the_evaluation_has_its_own(
    tmp_path: pathlib.Path, tokenizer: Any
) -> None:
    pairs = [("a b c d a b", "x")] * 8
    keys = {"task__errors": "tokens", "task__target": "", "task__error_rate": 0.5}
    task = make(tmp_path, tokenizer, pairs, **keys)
    batches = [task.train.batch(step, np.arange(4)) for step in range(4)]
    assert len({row.tobytes() for batch in batches for row in batch["tokens"]}) > 12
    for batch in batches:
        assert [row.tolist()[1:7] for row in batch["right"]] == [[5, 6, 7, 8, 5, 6]] * 4
    np.testing.assert_array_equal(batches[2]["tokens"][1:3], task.train.batch(2, np.array([1, 2]))["tokens"])
    again = make(tmp_path, tokenizer, pairs, **keys)
    again.train._seed = 1
    assert (again.train.batch(0, np.arange(4))["tokens"] != batches[0]["tokens"]).any()
    for a, b in zip(task.read, again.read, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(task.read, task.right, strict=True))


def test_errors_in_letters(words: Any) -> None:
    texts = ["cat cat, a b d", "Cat 12 ab"] * 50
    made = misspelling.letters(texts, words, 0.5, 0)
    assert made == misspelling.letters(texts, words, 0.5, 0) != misspelling.letters(texts, words, 0.5, 1)
    assert {*made} - {*texts}
    for text, wrong in zip(texts, made, strict=True):
        right, read = words.encode_batch([text, wrong])
        assert len(right) == len(read) and right.count(words.unk_id) == read.count(words.unk_id)
    assert misspelling.letters(texts, words, 1e-6, 0) == texts
    assert any("act" in text for text in made)  # two letters exchanged


@pytest.mark.parametrize(
    ("pairs", "keys", "message"),
    [
        ([("a", "a b")], {}, r"of 1 evaluation texts none has as many tokens"),
        ([("a", " ")], {}, r"line 1: the to is empty"),
        (PAIRS, {"task__target": ""}, r"needs task.target"),
        (PAIRS, {"task__errors": "letters"}, r"task.target = \"to\" is not read"),
        (PAIRS, {"model__mask": "prefix"}, r"sees the whole text"),
        (PAIRS, {"task__label": "to"}, r"task.label is for other data"),
        (PAIRS, {"task__name": "seq2seq", "model__mask": "prefix", "task__errors": "tokens",
                 "task__max_target": 4}, r"task.errors = \"tokens\" is for"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: pathlib.Path, tokenizer: Any, pairs: Any, keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path, tokenizer, pairs, **keys)


def made_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts that go up by one, a b c d a .., in which one letter of some is another."""
    draw, pairs = random.Random(seed), []
    for _ in range(count):
        start, size = draw.randrange(4), draw.randint(5, 8)
        right = ["abcd"[(start + i) % 4] for i in range(size)]
        wrong = list(right)
        if draw.random() < 0.7:
            at = draw.randrange(size)
            wrong[at] = draw.choice([x for x in "abcd" if x != right[at]])
        pairs.append((" ".join(wrong), " ".join(right)))
    return pairs


def test_a_run_learns_and_answers(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    folder = write(tmp_path / "data", train=made_pairs(400, 0), dev=made_pairs(32, 1))
    c = config(
        folder, data__tokenizer=str(tmp_path / "tokenizer"), data__workers=1, train__steps=160,
        train__batch_size=32, train__eval_every=160, train__log_every=40, checkpoint__every=160,
        optimizer__learning_rate=5e-3, task__gru_size=32, task__head_rate=3.0,
        train__compilation_cache=str(tmp_path.parent / "compiled"),
    )  # fmt: skip
    c.model.update({
        "hidden_size": 32, "layers": 2, "heads": 2, "feed_forward_size": 64, "max_positions": 16,
        "scan": True, "init_std": 0.15, "norm": "pre", "dropout": 0.0, "attention_dropout": 0.0,
    })  # fmt: skip
    result = train.train(c, tmp_path / "run")
    assert (result["metric"], result["value"]) == ("sentence_correction_f1", result["sentence_correction_f1"])
    assert result["sentence_correction_f1"] > 0.9 and result["detector_f1"] > 0.6
    assert result["sentence_correction_accuracy"] > 0.9 > 0.5 > result["unchanged_sentence_accuracy"]
    assert result["task_loss"] == pytest.approx(
        0.8 * result["task_correction_loss"] + 0.2 * result["task_detection_loss"], rel=1e-5
    )
    lines = (tmp_path / "run" / "predictions" / "eval.jsonl").read_text().splitlines()
    said = [json.loads(line) for line in lines]
    answers = list(
        prediction.predict(load.read(tmp_path / "run"), [*(x["text"] for x in said), "", "a b " * 9])
    )
    assert [answer["output"] for answer in answers[:-2]] == [line["output"] for line in said]
    wrong = next(n for n, line in enumerate(said) if line["text"] != line["gold"] == line["output"])
    (change,) = answers[wrong]["changes"]
    assert said[wrong]["gold"][change["start"]] == change["to"] != change["from"]
    assert change["end"] == change["start"] + 1 and 0 <= change["probability"] <= 1
    assert answers[-2] == {"text": "", "output": "", "changes": [], "note": "empty line"}
    assert answers[-1]["note"] == "cut from 20 to 12 tokens" and answers[-1]["output"].endswith(" a b a b ")
