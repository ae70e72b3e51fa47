"""Spikes of the loss: what is one, what a run does about it, and that a kill changes nothing of that."""

import json
import os
import pathlib
import signal
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import small

from bert_jax import checkpoint, members, spikes, train
from bert_jax.data import pipeline
from bert_jax.objectives.mlm import MaskedLM

KEYS = {"train.log_every": 5, "model.dropout": 0.1, "checkpoint.keep": 1}
WATCHED = {**KEYS, "train.spike.factor": 3.0, "train.spike.window": 5}
SKIP = {**WATCHED, "train.spike.policy": "skip"}
# Batches, numbered from 0, whose losses weigh so much. What follows batch 24 is read after the run went back.
BAD = {24: 10.0, 27: float("nan")}


def poison(
    monkeypatch: pytest.MonkeyPatch, bad: dict[int, float], number: Callable[[int], int] = lambda step: step
) -> None:
    """Has some batches of the training poisoned; step n, from 0, reads batch `number`(n) of the order."""
    real = pipeline.Examples.batch
    monkeypatch.setattr(MaskedLM, "count", lambda self, batch: (batch["mlm_weights"] > 0).sum())

    def batch(self: pipeline.Examples, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        if not self._train:
            return real(self, step, rows)
        made = real(self, number(step), rows)
        weight = np.float32(bad.get(number(step), 1.0))
        return {**made, "mlm_weights": made["mlm_weights"] * weight}

    monkeypatch.setattr(pipeline.Examples, "batch", batch)


def test_a_spike_stands_out_of_a_full_window() -> None:
    config = small.config_lib.default().train.spike
    config.window, config.factor = 3, 2.0
    watch = spikes.Watch(config, [9.0, 9.0])
    assert watch.usual(100.0) is None  # the window was not full
    assert watch.usual(18.0) is None  # of 9, 9, 100 the median is 9, and twice that is no spike
    assert watch.usual(36.1) == 18.0
    assert [*watch.losses] == [9.0, 100.0, 18.0]  # a spike is not among them
    assert [*spikes.Watch(config, watch.losses).losses] == [9.0, 100.0, 18.0]


def test_what_is_left_out_is_never_read_again() -> None:
    borders, history, read = [(0, 30), (30, 60)], [], []
    spike = spikes.found(25, "loss", 9.0, 2.0, history, borders, every=10)
    assert (spike.back, spike.skips) == (20, ((20, 5),))
    history.append(spike)
    spike = spikes.found(23, "loss", float("nan"), None, history, borders, every=10)
    assert (spike.value, spike.skips) == (None, ((20, 3),))
    history.append(spike)
    # Now with another checkpoint.every, and in a phase that begins after the step gone back to.
    spike = spikes.found(33, "loss", 9.0, 2.0, history, borders, every=16)
    assert spike.skips == ((32, 1),)
    spike = spikes.found(32, "loss", 9.0, 2.0, history, borders, every=16)
    assert spike.skips == ((16, 14 + 8), (30, 2))
    assert spikes.pairs([*history, spike], 20) == [(16, 22)]

    class Numbers:
        def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
            return {"number": np.array(step)}

    kept = spikes.Skipping(Numbers(), 0, spikes.pairs(history))
    read = [int(kept.batch(step, np.arange(2))["number"]) for step in range(18, 24)]
    assert read == [18, 19, 28, 29, 30, 31]
    second = spikes.Skipping(Numbers(), 30, [(30, 2), (34, 1)])
    assert [int(second.batch(step, np.arange(2))["number"]) for step in range(6)] == [2, 3, 4, 5, 7, 8]


def test_a_spike_stops_a_run_in_one_line(tmp_path: pathlib.Path) -> None:
    config = small.config(tmp_path, **WATCHED, **{"train.spike.policy": "stop"})
    run = types.SimpleNamespace(config=config, steps=30, task=None, phases=())
    store = types.SimpleNamespace(latest_step=lambda: 20, release=lambda: None)
    log = types.SimpleNamespace(seconds=lambda: 1.0)
    watch = spikes.Watch(config.train.spike, [2.0] * 5)
    member = members.Member(run, tmp_path, store, log, 1, False, watch, (), None, None)
    member.judge(24, 6.0, 1.0)
    assert member.result is None
    member.judge(25, 6.2, 1.0)
    assert member.result["failed"] == (
        "loss = 6.2 in step 25, above train.spike.factor = 3 times 2, the median of the 5 steps before: "
        "nothing was saved since; the last good checkpoint is that of step 20; raise train.spike.factor, set "
        'train.spike.policy = "skip", lower optimizer.learning_rate, or raise the warm-up'
    )


def test_a_run_without_the_bad_batches_is_the_same_however_it_was_cut(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # left out from the beginning: 20 .. 24, and 25 .. 27
        poison(patch, BAD, lambda step: step if step < 20 else step + 8)
        train.train(small.config(tmp_path, **KEYS), tmp_path / "without")
    poison(monkeypatch, BAD)
    run = tmp_path / "run"
    real, passed = train.log_lib.Log.advance, []

    def advance(self: Any) -> None:
        real(self)
        passed.append(None)
        if len(passed) == 22:
            os.kill(os.getpid(), signal.SIGTERM)

    def saved() -> set[str]:
        return {path.name for path in (run / "checkpoints").iterdir() if path.name[0].isdigit()}

    monkeypatch.setattr(train.log_lib.Log, "advance", advance)
    once = small.config(tmp_path, **SKIP, **{"train.spike.most": 1})
    with pytest.raises(SystemExit):
        train.train(once, run)
    assert saved() == {"20", "22"}  # what is behind step 20 is given up then
    with pytest.raises(train.TrainingError, match=r"loss = nan in step 23, after .* back .*most = 1 times"):
        train.train(once, run)
    (spike,) = spikes.read(run)
    assert (spike.step, spike.name, spike.back, spike.skips) == (25, "loss", 20, ((20, 5),))
    assert spike.value > 3 * spike.usual > 0
    assert saved() == {"20"}

    train.train(small.config(tmp_path, **SKIP), run)  # what was decided stays; the next one is gone back from
    for one in (run, tmp_path / "without"):
        assert json.loads((one / "result.json").read_text())["steps"] == 30
    a, b = (checkpoint.read_params(folder / "checkpoints") for folder in (run, tmp_path / "without"))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    told = [line for line in small.metrics(run) if line["split"] == "skip"]
    assert [(x["step"], x["spike_step"], x["back"], x["batches"]) for x in told] == [
        (21, 25, 20, 5), (21, 23, 20, 3),
    ]  # fmt: skip
    assert told[0]["spike_loss"] > 3 * told[0]["usual"] and told[1]["spike_loss"] is None
    for split in ("train", "eval"):
        own, others = (
            [line["loss"] for line in small.metrics(folder) if line["split"] == split]
            for folder in (run, tmp_path / "without")
        )
        assert own == others
