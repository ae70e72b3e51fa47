"""A text for a text: rows, what sees what, scores, refusals, a task that is learnt and its answers."""

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

from bert_jax import build, completion, prediction, tasks, train
from bert_jax import config as config_lib
from bert_jax.interop import export, load, native
from bert_jax.models.model import Model
from bert_jax.objectives.tokens import token_sums
from bert_jax.tasks.seq2seq import Seq2Seq

PAIRS = [("a b", "b a"), ("c", "c c d"), ("d d d d d d d d", "a"), ("b a", "a b c d a b")]


def config(path: pathlib.Path, **keys: Any) -> ConfigDict:
    return tasks_data.config(
        "seq2seq", path,
        **{"task__text": "from", "task__target": "to", "task__max_target": 4, "model__mask": "prefix"} | keys,
    )  # fmt: skip


def write(folder: pathlib.Path, **splits: Sequence[tuple[str, str]]) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    for name, pairs in splits.items():
        lines = [json.dumps({"from": a, "to": b}) + "\n" for a, b in pairs]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def make(folder: pathlib.Path, tokenizer: Any, pairs: Any = PAIRS, **keys: Any) -> Seq2Seq:
    return tasks.make(config(write(folder, train=pairs, dev=pairs), **keys), tokenizer)


def test_rows(tmp_path: pathlib.Path, tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        task = make(tmp_path, tokenizer)
    batch = task.evals["eval"].batch(0, np.arange(4))
    # A source has room for 12 - 4 - 2 tokens, a target for 3 and its end.
    rows = [
        [2, 5, 6, 3, 6, 5, 3],
        [2, 7, 3, 7, 7, 8, 3],
        [2, *[8] * 6, 3, 5, 3],
        [2, 6, 5, 3, 5, 6, 7, 8],
    ]
    assert [[i for i in row if i] for row in batch["tokens"].tolist()] == rows
    sources = [4, 3, 8, 4]
    for number, (row, source) in enumerate(zip(rows, sources, strict=True)):
        target = len(row) - source
        assert batch["prefix"][number].tolist() == [1] * source + [0] * (12 - source)
        assert batch["type_ids"][number].tolist() == [0] * source + [1] * target + [0] * (12 - len(row))
        assert batch["prefix_weights"][number].tolist() == [1.0] * target + [0.0] * (4 - target)
        assert batch["prefix_labels"][number, :target].tolist() == row[source:]
        assert batch["prefix_positions"][number, :target].tolist() == list(range(source - 1, len(row) - 1))
    alone = task.sources["eval"].batch(0, np.arange(4))
    assert [[i for i in row if i] for row in alone["tokens"].tolist()] == [
        row[:source] for row, source in zip(rows, sources, strict=True)
    ]
    assert "1 of 4 training sources lose their end" in caplog.text
    assert "1 of 4 evaluation targets lose their end: task.max_target" in caplog.text
    # Of 13 tokens a, b, c, d and [SEP] are 3, 2, 3, 2 and 3; one is added to each of the nine.
    shares = np.exp(task.objective.unigram.log_probs)
    np.testing.assert_allclose(shares[[5, 6, 7, 8, 3, 0]] * (13 + 9), [4, 3, 4, 3, 4, 1], rtol=1e-5)


def test_padding_is_not_judged(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tmp_path, tokenizer, train__batch_size=3)
    batch = task.evals["eval"].batch(1, np.arange(3))
    assert batch["prefix_weights"].sum(axis=1).tolist() == [4.0, 0.0, 0.0]
    assert not batch["prefix_labels"][1:].any() and batch["prefix_positions"].min() >= 0


def small_model(tokenizer: Any) -> tuple[Model, Any]:
    source = tiny_models.source(tokenizer, heads={"has_mlm": True}, mask="prefix")
    return Model(source.spec), jax.tree.map(jnp.asarray, source.params)


def test_no_token_is_told_from_itself(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    """Another token in place of a target's changes nothing that is said of it, nor anything in the source."""
    task = make(tmp_path, tokenizer)
    model, params = small_model(tokenizer)
    read = jax.jit(lambda batch: model.apply({"params": params}, batch))
    batch = {k: v[:2] for k, v in task.evals["eval"].batch(0, np.arange(4)).items()}
    first = read(batch)
    for row, (source, size) in enumerate(((4, 7), (3, 7))):
        for place in range(source, size):
            changed = {**batch, "tokens": batch["tokens"].copy()}
            changed["tokens"][row, place] = 8 if batch["tokens"][row, place] != 8 else 5
            other = read(changed)
            said = place - source + 1  # the tokens up to this one
            for a, b, same in (
                (first["prefix_logits"][row, :said], other["prefix_logits"][row, :said], True),
                (first["hidden"][row, :place], other["hidden"][row, :place], True),
                (first["hidden"][row, place:size], other["hidden"][row, place:size], False),
                (first["hidden"][1 - row], other["hidden"][1 - row], True),
            ):
                assert np.array_equal(a, b) == same
        changed = {**batch, "tokens": batch["tokens"].copy()}
        changed["tokens"][row, source - 2] = 8
        other = read(changed)
        differs = np.any(np.asarray(first["hidden"][row] != other["hidden"][row]), axis=-1)
        assert differs[:size].all()  # all see the whole source


def test_loss_is_of_the_target_alone(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    task = make(tmp_path, tokenizer)
    batch = task.evals["eval"].batch(0, np.arange(4))
    assert float(task.objective.count(batch)) == 3 + 4 + 2 + 4
    logits = jnp.zeros((4, 4, 128)).at[0, 0, 6].set(5.0)
    sums = task.objective.sums(batch, {"prefix_logits": logits})
    expected = 12 * np.log(128) + np.log(127 + np.exp(5.0)) - 5
    assert float(sums["loss"]) == pytest.approx(expected, rel=1e-5) and float(sums["accuracy"]) == 1
    assert task.objective.capacity == 4
    beside = token_sums(logits, batch["prefix_labels"], batch["prefix_weights"])
    assert float(beside["loss"]) == float(sums["loss"])


def test_scores(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    pairs = [*PAIRS[:3], ("a b c d", "A b")]
    task = make(tmp_path / "data", tokenizer, pairs)
    tokens = [[6, 5, 3, 0], [7, 7, 7, 3], [5, 5, 5, 5], [5, 6, 3, 0]]
    outputs = {
        "tokens": np.array(tokens), "lengths": np.array([3, 4, 4, 3]),
        "ended": np.array([True, True, False, True]), "log_prob": np.array([-1.0, -2.0, -3.0, -0.5]),
    }  # fmt: skip
    found = task.generated_metrics("eval", outputs)
    assert (found["exact_match"], found["ended"], found["copy_exact_match"]) == (0.5, 0.75, 0.0)
    assert 0 < found["copy_bleu"] < found["bleu"] < 100 and 0 < found["chrf"] < 100
    right = {**outputs, "tokens": np.array([[6, 5, 3, 0], [7, 7, 8, 3], [5, 3, 0, 0], [5, 6, 3, 0]])}
    right["lengths"] = np.array([3, 4, 2, 3])
    found = task.generated_metrics("eval", right)
    assert (found["exact_match"], found["chrf"]) == (1.0, 100.0)  # case is left out, as by the vocabulary
    task.write_predictions(tmp_path, "eval", outputs)
    written = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    assert written[2] == {
        "text": "d d d d d d d d", "output": "a a a a", "log_prob": -3.0, "ended": False, "gold": "a",
    }  # fmt: skip
    # A target that was cut is none that an answer could be.
    cut = make(tmp_path / "data", tokenizer, [PAIRS[3]] * 4)
    outputs["tokens"], outputs["lengths"] = np.array([[5, 6, 7, 8]] * 4), np.array([4] * 4)
    assert cut.generated_metrics("eval", outputs)["exact_match"] == 0


@pytest.mark.parametrize(
    ("pairs", "keys", "message"),
    [
        ([("a", " ")], {}, r"line 1: the to is empty"),
        ([("a", "b"), ("", "b")], {}, r"line 2: the from is empty"),
        ([("a", "\u200b")], {}, r"line 1: the to has no token"),
        ([("\u200b", "a")], {}, r"line 1: the from has no token"),
        ([("a", 3)], {}, r"line 1: to 3: it must be a text"),
        (PAIRS, {"task__target": "into"}, r"no column 'into'"),
        (PAIRS, {"task__target": ""}, r"needs task.target"),
        (PAIRS, {"model__mask": "full"}, r'set model.mask = "prefix"'),
        (PAIRS, {"model__kind": "tta", "model__mask": "full"}, r'model.kind = "tta" has another mask'),
        (PAIRS, {"task__max_target": 5}, r"data.seq_len = 12 has room for 7 tokens"),
        (PAIRS, {"task__label": "to"}, r"task.label is for other data"),
        (PAIRS, {"model__attention": "random"}, r"no keys to keep"),
        (PAIRS, {"task__name": "classification", "task__label": "to"}, r"task.target = \"to\" is for"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: pathlib.Path, tokenizer: Any, pairs: Any, keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path, tokenizer, pairs, **keys)


def test_a_model_without_a_token_head_is_refused(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    for name, mask, heads in (("encoder", "full", {"has_mlm": False}), ("masked", "full", {"has_mlm": True})):
        source = tiny_models.source(tokenizer, heads=heads, mask=mask)
        native.write(tmp_path / name, source.spec, source.params, tokenizer, ())
    c = config(write(tmp_path / "data", train=PAIRS, dev=PAIRS), data__lowercase=True)
    c.init_from = str(tmp_path / "encoder")
    with pytest.raises(config_lib.ConfigError, match=r"has no token head, by which task.name"):
        build.build(*completion.complete(c, None))
    c.init_from = str(tmp_path / "masked")
    run = build.build(*completion.complete(c, None))
    assert (run.config.model.mask, run.setup.model.spec.has_mlm) == ("prefix", True)
    state = run.initial_state(run.phases[0].train.batch(0, np.arange(4)))
    for got, given in zip(
        jax.tree.leaves(state.params["token_head"]), jax.tree.leaves(source.params["token_head"]), strict=True
    ):
        words = tokenizer.vocab_size if len(given) == 128 else None  # the rest of a table is padding
        np.testing.assert_array_equal(got[:words], given[:words])
    with pytest.raises(export.ExportError, match=r"model.mask = 'prefix'"):
        export.choose(run.setup.model.spec, tokenizer.pad_id)


def made_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Words, and the same in the other order."""
    draw = random.Random(seed)
    texts = [[draw.choice("abcd") for _ in range(draw.randint(1, 3))] for _ in range(count)]
    return [(" ".join(text), " ".join(reversed(text))) for text in texts]


def test_a_run_learns_and_answers(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    folder = write(tmp_path / "data", train=made_pairs(300, 0), dev=made_pairs(20, 1))
    c = config(
        folder, data__tokenizer=str(tmp_path / "tokenizer"), data__workers=1, train__steps=150,
        train__batch_size=32, train__eval_every=75, train__log_every=75, checkpoint__every=150,
        optimizer__learning_rate=5e-3, optimizer__warmup_fraction=0.1, task__beam_size=2,
        task__metric="exact_match", train__compilation_cache=str(tmp_path.parent / "compiled"),
    )  # fmt: skip
    c.model.update({
        "hidden_size": 32, "layers": 2, "heads": 2, "feed_forward_size": 64, "max_positions": 16,
        "scan": True, "init_std": 0.15, "norm": "pre", "dropout": 0.0, "attention_dropout": 0.0,
    })  # fmt: skip
    result = train.train(c, tmp_path / "run")
    assert (result["metric"], result["value"]) == ("exact_match", result["exact_match"])
    assert result["exact_match"] > 0.9 and result["chrf"] > 80 and result["ended"] == 1
    assert result["task_loss"] < 0.2 < result["unigram_cross_entropy"]
    lines = (tmp_path / "run" / "predictions" / "eval.jsonl").read_text().splitlines()
    said = [json.loads(line) for line in lines]
    assert np.mean([line["output"] == line["gold"] for line in said]) == result["exact_match"]
    opened = load.read(tmp_path / "run")
    texts = [line["text"] for line in said]
    answers = list(prediction.predict(opened, [*texts, "", "a " * 40]))
    for answer, line in zip(answers, said, strict=False):
        assert (answer["output"], answer["ended"]) == (line["output"], line["ended"])
        assert answer["log_prob"] == pytest.approx(line["log_prob"], abs=1e-3)
    assert answers[-2] == {
        "text": "", "output": None, "log_prob": None, "ended": None, "note": "empty line",
    }  # fmt: skip
    assert answers[-1]["note"] == "cut from 42 to 8 tokens"
    short = next(prediction.predict(opened, ["a b c"], search={"max_target": 2, "beam_size": 1}))
    assert (short["output"], short["ended"]) == ("c b", False)
    with pytest.raises(ValueError, match=r"max_target = 16 of the 16 tokens"):
        prediction.head_of(opened, search={"max_target": 16})
    with pytest.raises(ValueError, match=r"beam_size: the model is of the kind 'fill', and does not write"):
        made = tiny_models.source(tokenizer, heads={"has_mlm": True})
        prediction.head_of(made, search={"beam_size": 2})
    assert train.evaluate(c, tmp_path / "run")["exact_match"] == result["exact_match"]
