"""Runs of several row lengths, of several texts, and on from a model to another text and vocabulary."""

import pathlib
import shutil
from typing import Any

import commands
import jax
import numpy as np
import pytest
import small

from bert_jax import adopt, build, checkpoint, completion, train
from bert_jax import text as text_lib
from bert_jax.data import prepare
from bert_jax.interop import load

PHASES: dict[str, Any] = {
    "model.dropout": 0.1,
    "data.seq_len": 16,
    "train.phases": ((16, 12, 16), (32, 8)),
    "train.steps": 0,
    "train.log_every": 2,
    "train.eval_every": 5,
    "checkpoint.every": 5,
    "checkpoint.keep": 9,
}


def assert_same(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_phases_share_one_schedule_and_go_on_in_either(tmp_path: pathlib.Path) -> None:
    config = small.config(tmp_path, **PHASES)
    whole = tmp_path / "whole"
    result = train.train(config, whole)
    assert result["steps"] == 20
    rates = {line["step"]: line["learning_rate"] for line in small.metrics(whole) if line["split"] == "train"}
    # The mean over two steps of one line from the peak to 0 over all 20 steps.
    for step, rate in rates.items():
        assert rate == pytest.approx(1e-3 * (1 - (step - 1.5) / 20), rel=1e-5)

    for last in (5, 10, 15):  # in the first phase, in it again, in the second
        cut = tmp_path / f"cut{last}"
        shutil.copytree(whole, cut)
        (cut / "result.json").unlink()
        for folder in (cut / "checkpoints").iterdir():
            if folder.name.isdigit() and int(folder.name) > last:
                shutil.rmtree(folder)
        again = train.train(config, cut)
        assert_same(
            checkpoint.read_params(whole / "checkpoints"), checkpoint.read_params(cut / "checkpoints")
        )
        assert again["loss"] == result["loss"]


def test_each_phase_has_rows_of_its_length_and_an_order_of_its_own(tmp_path: pathlib.Path) -> None:
    config = small.config(tmp_path, **PHASES)
    run = build.build(*completion.complete(config, None))
    assert [(p.start, p.stop, p.train.batch_size) for p in run.phases] == [(0, 12, 16), (12, 20, 8)]
    first, second = (p.train.batch(0, np.arange(4)) for p in run.phases)
    assert first["tokens"].shape == (4, 16) and second["tokens"].shape == (4, 32)
    assert first["mlm_positions"].shape[1] < second["mlm_positions"].shape[1]
    same = build.build(*completion.complete(small.config(tmp_path, **{
        **PHASES, "train.phases": ((16, 12, 16), (16, 8, 16)),
    }), None))  # fmt: skip
    a, b = (p.train.batch(0, np.arange(16))["tokens"] for p in same.phases)
    assert (a != b).any(axis=1).sum() > 12
    assert run.phase_of(0) is run.phases[0] and run.phase_of(12) is run.phases[0]
    assert run.phase_of(13) is run.phases[1]


def test_a_short_run_cuts_the_phases(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for steps, expected in ((3, [(0, 3)]), (14, [(0, 12), (12, 14)])):
        config = small.config(tmp_path, **{**PHASES, "train.steps": steps})
        run = build.build(*completion.complete(config, None))
        assert [(p.start, p.stop) for p in run.phases] == expected
        assert f"cut to train.steps = {steps}" in caplog.text
        caplog.clear()


def test_only_the_last_phase_chooses_the_best(tmp_path: pathlib.Path) -> None:
    config = small.config(tmp_path, **{**PHASES, "train.steps": 14, "train.eval_every": 6})
    train.train(config, tmp_path / "run")
    held = checkpoint.Checkpoints(tmp_path / "run" / "checkpoints", keep=9, best_mode="min")
    evaluated = {
        line["step"]: line["loss"] for line in small.metrics(tmp_path / "run") if line["split"] == "eval"
    }
    assert set(evaluated) == {6, 12, 14}
    assert held.best_metric() == pytest.approx(evaluated[14])
    held.close()


def test_a_mixture_trains_and_evaluates_every_text(tmp_path: pathlib.Path) -> None:
    one = small.write_text(tmp_path / "text", documents=10)
    other = small.write_text(tmp_path / "other", documents=5)
    config = small.config(tmp_path, **{
        "data.path": "", "data.mixture": ((str(one), 0.25), (str(other), 0.75)), "train.steps": 4,
        "data.packing": True,
    })  # fmt: skip
    run = build.build(*completion.complete(config, None))
    alone = [
        build.build(*completion.complete(small.config(tmp_path, **{
            "data.path": str(path), "data.tokenizer": str(run_tokenizer(tmp_path, run)), "data.packing": True,
        }), None))
        for path in (one, other)
    ]  # fmt: skip
    phase = run.phases[0]
    assert phase.eval.num_examples == sum(r.phases[0].eval.num_examples for r in alone)
    result = train.train(config, tmp_path / "run")
    assert np.isfinite(result["loss"])

    # One text to be evaluated on is read once, and not once for each text of the mixture.
    config.data.eval_path = str(other)
    text = text_lib.open_text(config)
    assert (len(text.train), len(text.eval)) == (2, 1)
    parts = text_lib.open_text(alone[1].config)
    assert text.eval[0].num_tokens == parts.train[0].num_tokens + parts.eval[0].num_tokens


def run_tokenizer(tmp_path: pathlib.Path, run: build.Run) -> pathlib.Path:
    run.tokenizer.save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def test_a_general_text_is_judged_before_and_after(tmp_path: pathlib.Path) -> None:
    general = small.write_text(tmp_path / "text", documents=10)
    train.train(small.config(tmp_path, **{"train.steps": 10}), tmp_path / "general")
    domain = tmp_path / "domain"
    domain.mkdir()
    compounds = [a + b for a in ("bar", "kos", "lit") for b in ("muv", "new", "rox")]
    for n in range(8):
        sentences = [f"{compounds[(n + i) % 9]} mun {compounds[i % 9]} ner." for i in range(30)]
        (domain / f"{n}.txt").write_text("\n\n".join(sentences))
    config = small.config(tmp_path, **{
        "init_from": str(tmp_path / "general"), "data.path": str(domain), "data.general_path": str(general),
        "data.extend_vocab": 20, "train.steps": 6, "train.eval_every": 3, "checkpoint.every": 2,
    })  # fmt: skip
    result = train.train(config, tmp_path / "run")
    written = small.metrics(tmp_path / "run")
    assert (written[0]["step"], written[0]["split"]) == (0, "eval")
    assert result["start_loss"] == pytest.approx(written[0]["loss"])
    assert result["start_general_loss"] == pytest.approx(written[0]["general_loss"])
    assert result["loss"] < result["start_loss"]
    assert result["general_loss"] != result["start_general_loss"]

    # Words were added, and the old rows were the model's own at the start.
    old, new = load.read(tmp_path / "general"), load.read(tmp_path / "run")
    assert old.tokenizer.vocab_size < new.tokenizer.vocab_size <= old.tokenizer.vocab_size + 20
    run = build.build(*completion.complete(config, None))
    start = run.initial_state(run.phases[0].train.batch(0, np.arange(8))).params
    table, before = np.asarray(start["encoder"]["word"]), old.params["encoder"]["word"]
    size = old.tokenizer.vocab_size
    np.testing.assert_array_equal(table[:size], before[:size])
    for id in range(size, new.tokenizer.vocab_size):
        pieces = old.tokenizer.encode(new.tokenizer.token(id), special=False).ids
        np.testing.assert_allclose(table[id], before[pieces].mean(axis=0), rtol=1e-5, atol=1e-7)

    # Prepared by hand for the same run, the words are the same; for another they are refused.
    shard = tmp_path / "shards"
    flags = ("--config.init_from=" + str(tmp_path / "general"), "--config.data.path=" + str(domain))
    raw = small.write(config, tmp_path / "config.py")
    made = commands.run("prepare", f"--config={raw}", f"--output={shard}", *flags, folder=tmp_path)
    assert made.code == 0, made.err
    config.data.update({"source": "shards", "path": str(shard)})
    prepared = build.build(*completion.complete(config, None))
    assert prepared.tokenizer.digest() == new.tokenizer.digest()
    state = prepared.initial_state(prepared.phases[0].train.batch(0, np.arange(8)))
    np.testing.assert_array_equal(np.asarray(state.params["encoder"]["word"]), table)
    config.data.extend_vocab = 19
    with pytest.raises(
        ValueError, match=r"data.extend_vocab = 19 adds words as a text is prepared.* with 20"
    ):
        build.build(*completion.complete(config, None))
    config.data.extend_vocab = 0
    with pytest.raises(ValueError, match=r"prepare the text again with --config\.init_from="):
        build.build(*completion.complete(config, None))
    config.data.update({"source": "text", "path": str(domain), "extend_vocab": 20})

    # A run that is continued keeps what it saw before its first step.
    (tmp_path / "run" / "result.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "6")
    assert train.train(config, tmp_path / "run")["start_loss"] == result["start_loss"]


def test_another_vocabulary_takes_the_means_of_the_old_pieces() -> None:
    rng = np.random.default_rng(0)
    params = {
        "encoder": {"word": rng.normal(size=(128, 3)), "layers": {"x": np.ones(2)}},
        "token_head": {"bias": rng.normal(size=128), "dense": {"kernel": np.ones(2)}},
    }
    changed = adopt.with_vocabulary(params, [[0], [2, 4], [1], []], 256)
    word, bias = params["encoder"]["word"], params["token_head"]["bias"]
    found = changed["encoder"]["word"]
    assert found.shape == (256, 3)
    np.testing.assert_array_equal(found[[0, 2]], word[[0, 1]])
    np.testing.assert_allclose(found[1], (word[2] + word[4]) / 2)
    np.testing.assert_allclose(found[3], word[:5].mean(axis=0))
    assert (found[4:] == 0).all()
    np.testing.assert_allclose(changed["token_head"]["bias"][:3], [bias[0], (bias[2] + bias[4]) / 2, bias[1]])
    assert changed["encoder"]["layers"] is params["encoder"]["layers"]
    plain = adopt.with_vocabulary(
        {"encoder": {"word": word}, "token_head": {"kernel": rng.normal(size=(3, 128))}}, [[5], [6, 7]], 128
    )
    assert plain["token_head"]["kernel"].shape == (3, 128)


def test_general_text_may_be_raw_where_the_run_s_own_is_prepared(tmp_path: pathlib.Path) -> None:
    raw = small.write_text(tmp_path / "text", documents=10)
    prepare.prepare(small.config(tmp_path), tmp_path / "shards", progress=False)
    for general in (raw, tmp_path / "shards"):
        text = text_lib.open_text(small.config(tmp_path, **{
            "data.source": "shards", "data.path": str(tmp_path / "shards"), "data.general_path": str(general),
        }))  # fmt: skip
        assert text.general.num_tokens == text.eval[0].num_tokens
