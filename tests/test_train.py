"""The loop: what it writes, how it goes on, and when it stops."""

import json
import os
import shutil
import signal
import threading
import time
import types

import jax
import numpy as np
import pytest
import small

from bert_jax import checkpoint, tracing, train
from bert_jax.config import ConfigError


def params(workdir):
    return checkpoint.read_params(workdir / "checkpoints")


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_run_leaves_all_that_it_promises(tmp_path):
    config = small.config(tmp_path, **{"train.eval_every": 15, "objective.nsp.weight": 1.0})
    result = train.train(config, tmp_path / "run")
    assert result["steps"] == 30
    assert result["value"] == result["loss"] == pytest.approx(result["mlm_loss"] + result["nsp_loss"])
    assert 0 < result["unigram_cross_entropy"] < np.log(200)
    assert 0 <= result["most_frequent_accuracy"] <= 1
    assert result == json.loads((tmp_path / "run" / "result.json").read_text())
    written = small.metrics(tmp_path / "run")
    assert [(line["step"], line["split"]) for line in written] == [
        (10, "train"), (15, "eval"), (20, "train"), (30, "train"), (30, "eval"),
    ]  # fmt: skip
    for line in written:
        kinds = {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
        rates = {"tokens_per_second", "mfu", "learning_rate", "data_wait"}
        rates |= {"grad_norm", "clipped", "clip_scale"}
        more = rates if line["split"] == "train" else set()
        assert kinds | more <= set(line)
        assert all(np.isfinite(line[name]) for name in kinds | more)
    assert (tmp_path / "run" / "tokenizer").is_dir()
    assert list((tmp_path / "run" / "tensorboard").rglob("events.*"))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "has ended; step 30" in page and page.count("<svg") >= 5
    samples = json.loads((tmp_path / "run" / "samples.json").read_text())["tokens"]
    asked = [piece for row in samples for piece in row if not isinstance(piece, str)]
    assert 0 < len(samples) <= 8 and len(asked) >= len(samples)
    assert all(0 < piece["probability"] <= 1 and piece["gold"] for piece in asked)
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["vocabulary"] == 109 and about["batch_size"] == 8 and about["steps"] == 30
    assert train.train(config, tmp_path / "run") == result  # complete: nothing is done again
    assert len(small.metrics(tmp_path / "run")) == len(written)


def test_waiting_for_data_is_told_as_a_share_of_the_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = train.log_lib.Log(tmp_path, 0, 10, True)

    def made():
        for number in range(3):
            now[0] += 1.0
            yield number

    for _ in train._timed(made(), [types.SimpleNamespace(log=log)]):
        now[0] += 3.0  # a step
    seconds, share = log.step_seconds(3)
    assert (seconds, share) == (4.0, 0.25)
    log.note(3, "train", {"step_seconds": seconds, "data_wait": share})
    log.note(5, "train", {"step_seconds": 1.0, "data_wait": 1.0})
    assert log.data_wait() == pytest.approx((12 * 0.25 + 2 * 1.0) / 14)
    log.close()


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    config = small.config(tmp_path, **{"model.dropout": 0.1, "checkpoint.every": 7})
    train.train(config, tmp_path / "whole")

    sent = threading.Event()
    log_write = train.log_lib.Log.write

    def write_and_stop(self, step, split, values, left=None):
        log_write(self, step, split, values, left)
        if step == 10 and not sent.is_set():
            sent.set()
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(train.log_lib.Log, "write", write_and_stop)
    with pytest.raises(SystemExit) as exit_info:
        train.train(config, tmp_path / "cut")
    assert exit_info.value.code == 128 + signal.SIGTERM
    assert sorted(p.name for p in (tmp_path / "cut" / "checkpoints").iterdir() if p.name.isdigit()) in (
        ["10", "7"], ["11", "7"],
    )  # fmt: skip
    result = train.train(config, tmp_path / "cut")
    assert_same(params(tmp_path / "whole"), params(tmp_path / "cut"))
    steps = [line["step"] for line in small.metrics(tmp_path / "cut")]
    assert steps == sorted(steps)
    assert result["loss"] == json.loads((tmp_path / "whole" / "result.json").read_text())["loss"]


def test_steps_logged_after_the_last_checkpoint_are_not_logged_twice(tmp_path):
    config = small.config(tmp_path, **{"train.log_every": 5})
    train.train(config, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        if folder.name == "30":
            folder.rename(folder.with_name("30.damaged"))
    train.train(config, tmp_path / "run")
    assert [line["step"] for line in small.metrics(tmp_path / "run")] == [5, 10, 15, 20, 25, 30, 30]


def test_a_loss_that_is_no_number_stops_the_run_and_is_not_saved(tmp_path):
    config = small.config(
        tmp_path, **{"optimizer.learning_rate": 1e38, "optimizer.clip": 0.0, "train.log_every": 30}
    )
    with pytest.raises(train.TrainingError, match=r"in step \d+.*no checkpoint was saved"):
        train.train(config, tmp_path / "run")
    assert not [p for p in (tmp_path / "run" / "checkpoints").iterdir() if p.name.isdigit()]
    assert not (tmp_path / "run" / "result.json").exists()


def test_another_config_is_refused_with_its_keys(tmp_path):
    train.train(small.config(tmp_path, **{"train.steps": 1}), tmp_path / "run")
    other = small.config(tmp_path, **{"train.steps": 1, "seed": 3, "train.log_every": 1})
    with pytest.raises(ConfigError, match="seed: 0 -> 3") as error:
        train.train(other, tmp_path / "run")
    assert "log_every" not in str(error.value)


def test_what_cannot_be_built_leaves_nothing_behind(tmp_path):
    for change in ({"mesh.tensor": 3}, {"data.path": str(tmp_path / "nowhere")}, {"init_from": "nowhere"}):
        for seeds in (1, 2):
            config = small.config(tmp_path, **change, **{"sweep.seeds": seeds})
            with pytest.raises(ValueError):
                train.train(config, tmp_path / "run")
            assert not (tmp_path / "run").exists()


def test_a_workdir_without_a_checkpoint_can_be_used_again(tmp_path):
    train.train(small.config(tmp_path, **{"train.steps": 1}), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert (
        train.train(small.config(tmp_path, **{"train.steps": 1, "seed": 3}), tmp_path / "run")["steps"] == 1
    )


def test_a_sweep_gives_each_member_and_their_spread(tmp_path):
    result = train.train(small.config(tmp_path, **{"train.steps": 3, "sweep.seeds": 3}), tmp_path / "run")
    values = [member["value"] for member in result["members"]]
    assert len(set(values)) == 3
    assert result["value"] == pytest.approx(np.mean(values))
    assert result["std"] == pytest.approx(np.std(values, ddof=1))
    for number in range(3):
        assert (tmp_path / "run" / "members" / str(number) / "result.json").exists()
    assert [member["seed"] for member in result["members"]] == [0, 1, 2]


def test_accumulation_and_scan_change_no_result(tmp_path):
    still = {"model.dropout": 0.0, "model.attention_dropout": 0.0, "train.steps": 5}
    plain = train.train(small.config(tmp_path, **still), tmp_path / "plain")
    for name, change in (
        ("parts", {"train.accumulation": 4}),
        ("unrolled", {"model.scan": False}),
        ("remat", {"model.remat": "dots"}),
    ):
        other = train.train(small.config(tmp_path, **still, **change), tmp_path / name)
        assert other["loss"] == pytest.approx(plain["loss"], rel=1e-5)


def test_evaluation_alone_repeats_the_run_s_last(tmp_path):
    config = small.config(tmp_path, **{"train.steps": 5})
    result = train.train(config, tmp_path / "run")
    assert train.evaluate(config, tmp_path / "run")["loss"] == pytest.approx(result["loss"], rel=1e-6)
    with pytest.raises(FileNotFoundError, match="holds no run"):
        train.evaluate(config, tmp_path / "nowhere")


def test_a_run_starts_from_the_weights_of_another(tmp_path):
    first = small.config(tmp_path)
    before = train.train(first, tmp_path / "first")
    second = small.config(
        tmp_path, **{"init_from": str(tmp_path / "first"), "train.steps": 1, "optimizer.learning_rate": 0.0}
    )
    after = train.train(second, tmp_path / "second")
    assert after["loss"] == pytest.approx(before["loss"], rel=1e-6)


def test_a_run_killed_before_it_saved_starts_from_the_given_weights_again(tmp_path):
    before = train.train(small.config(tmp_path, **{"train.steps": 5}), tmp_path / "first")
    config = small.config(
        tmp_path, **{"init_from": str(tmp_path / "first"), "train.steps": 1, "optimizer.learning_rate": 0.0}
    )
    train.train(config, tmp_path / "second")
    (tmp_path / "second" / "result.json").unlink()
    shutil.rmtree(tmp_path / "second" / "checkpoints")  # as a kill in the first steps leaves it
    again = train.train(config, tmp_path / "second")
    assert again["loss"] == pytest.approx(before["loss"], rel=1e-6)
    assert again["start_loss"] == pytest.approx(before["loss"], rel=1e-6)


def test_a_window_of_steps_is_profiled(tmp_path, caplog):
    caplog.set_level("INFO")
    config = small.config(tmp_path, **{"train.profile": (2, 4), "train.steps": 10})
    train.train(config, tmp_path / "run")
    (trace,) = (tmp_path / "run" / "profile").rglob("*.trace.json.gz")
    assert trace.stat().st_size > 1000
    # TensorBoard's plug-in looks for this name, and reads this file.
    (space,) = (tmp_path / "run" / "profile" / "plugins" / "profile").glob("*/*.xplane.pb")
    assert space.parent == trace.parent and space.stat().st_size > 1000
    assert "the trace of steps 3 to 4" in caplog.text


def test_a_window_is_traced_by_a_run_that_goes_on_in_it_and_missed_aloud(tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO")
    traced = []
    monkeypatch.setattr("jax.profiler.start_trace", traced.append)
    monkeypatch.setattr("jax.profiler.stop_trace", lambda: None)
    for steps, first in ((range(3, 9), 3), (range(7, 9), None), (range(0), None)):
        caplog.clear()
        traced.clear()
        window = tracing.Window((1, 6), tmp_path)
        for step in steps:
            window.before(step)
            window.after(step, np.zeros(1))
        window.close()
        assert traced == [str(tmp_path)] * bool(first)
        assert ("the trace of steps 3 to 6" in caplog.text) == bool(first)
        assert ("no step of this process was in it, the last was 8" in caplog.text) == (
            7 in steps and not first
        )
