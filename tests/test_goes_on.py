"""A run keeps the vocabulary, the classes and the decisions that it began with, whatever its data is now."""

import json
import logging
import pathlib

import pytest
import small
import tasks_data

from bert_jax import completion, recorded, train, workdir
from bert_jax import config as config_lib
from bert_jax.data import tokenizer as tokenizers
from bert_jax.interop import load


def _other_text(folder: pathlib.Path) -> None:
    """Replaces a part of the text by one of other words."""
    first = sorted(folder.iterdir())[0]
    first.write_text("\n\n".join(f"Zygote{n} quartz jumps, vexing {n} wolves." for n in range(400)))


def test_a_pretraining_run_keeps_its_vocabulary(tmp_path, caplog):
    keys = {"train.steps": 6, "checkpoint.every": 3, "train.log_every": 3}
    config, root = small.config(tmp_path, **keys), tmp_path / "run"
    train.train(config, root)
    began_with = tokenizers.load(root / workdir.TOKENIZER)
    caplog.set_level(logging.WARNING)
    train.evaluate(config, root)
    assert "is not the one that the run" not in caplog.text

    _other_text(tmp_path / "text")
    train.evaluate(config, root)
    assert "the text is not the one that the run" in caplog.text
    caplog.clear()
    (root / workdir.RESULT).unlink()
    longer = small.config(tmp_path, **keys)
    (root / "checkpoints" / "6").rename(tmp_path / "newest")  # as if it had been killed before it
    train.train(longer, root)
    assert "the text is not the one that the run" in caplog.text
    assert tokenizers.load(root / workdir.TOKENIZER).digest() == began_with.digest()
    assert tokenizers.load(root / workdir.TOKENIZER).tokens == began_with.tokens
    # A new run of the same text has another.
    train.train(longer, tmp_path / "new")
    assert tokenizers.load(tmp_path / "new" / workdir.TOKENIZER).tokens != began_with.tokens


def test_a_pretraining_run_goes_on_without_the_model_that_it_began_with(tmp_path):
    first, root = tmp_path / "first", tmp_path / "run"
    train.train(small.config(tmp_path, **{"train.steps": 1}), first)
    config = small.config(tmp_path, **{"init_from": str(first), "train.steps": 2})
    result = train.train(config, root)
    first.rename(tmp_path / "moved")
    assert train.evaluate(config, root)["loss"] == pytest.approx(result["loss"], rel=1e-6)


def test_shards_of_another_vocabulary_are_refused(tmp_path):
    from bert_jax.data import prepare

    text = small.config(tmp_path)
    prepare.prepare(text, str(tmp_path / "shards"))
    keys = {"data.source": "shards", "data.path": str(tmp_path / "shards"), "train.steps": 2}
    config = small.config(tmp_path, **keys)
    train.train(config, tmp_path / "run")
    _other_text(tmp_path / "text")
    (tmp_path / "shards").rename(tmp_path / "before")
    prepare.prepare(text, str(tmp_path / "shards"))
    with pytest.raises(config_lib.ConfigError, match="is not the vocabulary of the shards"):
        train.evaluate(config, tmp_path / "run")


def _task(tmp_path: pathlib.Path, labels: str = "xyz", **keys: object) -> config_lib.ConfigDict:
    words = ("a", "b", "c", "d")
    rows = [f"{words[n % 4]} {words[n // 4 % 4]} a,{labels[n % 3]}" for n in range(24)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "dev.csv").write_text("text,label\n" + "\n".join(rows[:9]) + "\n")
    tasks_data.tokenizer(tmp_path)
    return tasks_data.config(
        "classification", tmp_path, data__tokenizer=str(tmp_path / "vocab.txt"), train__batch_size=8,
        train__steps=4, checkpoint__every=2, model__hidden_size=16, model__layers=1, model__heads=2,
        model__feed_forward_size=32, model__max_positions=12, task__text="text", task__label="label", **keys,
    )  # fmt: skip


def test_other_classes_are_refused(tmp_path):
    config, root = _task(tmp_path), tmp_path / "run"
    train.train(config, root)
    before = (root / workdir.MODEL).read_bytes()
    message = r"trained on other classes than its data has now \('new' came, 'x' went\): give it back"
    _task(tmp_path, labels=("new", "y", "z"))
    with pytest.raises(config_lib.ConfigError, match=message):
        train.evaluate(config, root)
    (root / workdir.RESULT).unlink()
    with pytest.raises(config_lib.ConfigError, match=message):
        train.train(config, root)
    assert (root / workdir.MODEL).read_bytes() == before
    train.train(config, tmp_path / "new")  # it is a matter of the run, not of the data


def test_a_task_goes_on_without_the_vocabulary_s_file(tmp_path):
    config, root = _task(tmp_path), tmp_path / "run"
    result = train.train(config, root)
    (tmp_path / "vocab.txt").unlink()
    found = train.evaluate(config, root)
    assert found["accuracy"] in (result["accuracy"], result["best_value"])


def test_evaluation_judges_what_predict_takes(tmp_path, caplog):
    config, root = _task(tmp_path, train__eval_every=1, optimizer__learning_rate=0.3), tmp_path / "run"
    result = train.train(config, root)
    lines = workdir.read_metrics(root)
    values = {line["step"]: line for line in lines if line["split"] == "eval"}
    best = values[result["best_step"]]
    assert result["best_step"] < 4 and best["loss"] != values[4]["loss"]
    caplog.set_level(logging.INFO)
    found = train.evaluate(config, root)
    assert found["accuracy"] == best["accuracy"] and found["loss"] == pytest.approx(best["loss"], rel=1e-5)
    assert f"eval of step {result['best_step']}, the best, which predict and load take," in caplog.text

    # Damaged, it is told, and the newest one stands in.
    caplog.clear()
    for file in (root / "checkpoints" / str(result["best_step"]) / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(b"x")
    assert train.evaluate(config, root)["loss"] == pytest.approx(values[4]["loss"], rel=1e-5)
    assert "the newest one is evaluated in its place" in caplog.text


def test_a_dropped_member_is_told(tmp_path):
    config, root = _task(tmp_path), tmp_path / "run"
    train.train(config, root)
    (root / "checkpoints").rename(tmp_path / "dropped")
    with pytest.raises(FileNotFoundError, match="they were dropped, as sweep"):
        train.evaluate(config, root)


def _recorded(root: pathlib.Path) -> config_lib.ConfigDict:
    return recorded.get_config(str(root / workdir.CONFIG))


def test_a_config_of_a_run_takes_the_vocabulary_of_the_model_that_it_names(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    train.train(small.config(tmp_path, **{"train.steps": 1}), first)
    train.train(small.config(tmp_path, **{"train.steps": 1, "data.vocab_size": 120}), second)
    config = small.config(tmp_path, **{"init_from": str(first), "train.steps": 1})
    train.train(config, tmp_path / "on")
    written = json.loads((tmp_path / "on" / workdir.CONFIG).read_bytes())
    assert written["data"]["tokenizer"] == str(first / workdir.TOKENIZER)
    again = _recorded(tmp_path / "on")
    assert again.data.tokenizer == ""
    assert not config_lib.differing_keys(completion.complete(again, None)[0], _read(tmp_path / "on"))
    again.init_from = str(second)
    train.train(again, tmp_path / "other")
    assert load.read(tmp_path / "other").tokenizer.tokens == load.read(second).tokenizer.tokens
    # A tokenizer that the user named stays.
    own = small.config(tmp_path, **{"data.tokenizer": str(second / workdir.TOKENIZER), "train.steps": 1})
    train.train(own, tmp_path / "own")
    assert _recorded(tmp_path / "own").data.tokenizer == str(second / workdir.TOKENIZER)


def _read(root: pathlib.Path) -> config_lib.ConfigDict:
    found = workdir.read_config(root)
    assert found is not None
    return found


def test_a_task_s_model_reads_its_own_vocabulary_only(tmp_path):
    train.train(small.config(tmp_path, **{"train.steps": 1}), tmp_path / "model")
    config = _task(tmp_path)
    config.init_from = str(tmp_path / "model")
    with pytest.raises(config_lib.ConfigError, match="is another vocabulary than that of init_from"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    config.data.tokenizer = ""
    train.train(config, tmp_path / "run")
