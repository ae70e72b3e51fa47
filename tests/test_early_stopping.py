"""When a run ends before its last step, and what is said of its best one."""

import json
import pathlib
import shutil
import types
from typing import Any

import numpy as np
import pytest
import small
import tasks_data

from bert_jax import checkpoint, evaluation, predict, train
from bert_jax.config import ConfigError
from bert_jax.interop import load

SENTENCES = ["a b", "b a", "a c d", "d c", "b b c", "d"]


def make(tmp_path: pathlib.Path, **keys: Any) -> Any:
    """CoLA's form on a model that is compiled in a moment."""
    data = tmp_path / "CoLA"
    data.mkdir(exist_ok=True)
    for name in ("train.tsv", "dev.tsv"):
        (data / name).write_text("".join(f"x\t{i % 2}\t\t{s}\n" for i, s in enumerate(SENTENCES)))
    tasks_data.tokenizer(tmp_path)
    return tasks_data.config(
        "cola", data, data__tokenizer=str(tmp_path / "vocab.txt"), data__lowercase=True, data__workers=1,
        train__steps=40, model__hidden_size=8, model__layers=1, model__heads=2,
        model__feed_forward_size=16, model__max_positions=12,
        train__compilation_cache=str(tmp_path.parent / "compiled"),
        checkpoint__keep=1, checkpoint__every=100,
        **{"train__eval_every": 2, "train__patience": 2, **keys},
    )  # fmt: skip


def saved(workdir: pathlib.Path) -> list[int]:
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("seconds", "data_wait")}


def test_a_run_that_gets_no_better_stops_and_wherever_it_is_cut_stops_there(tmp_path: pathlib.Path) -> None:
    """With a learning rate of 0 all metrics are alike, and equal is not better."""
    config, run = make(tmp_path, optimizer__learning_rate=0.0), tmp_path / "run"
    result = train.train(config, run)
    assert (result["steps"], result["best_step"], result["stopped_early"]) == (6, 2, True)
    assert result["best_value"] == result["value"] == result["mcc"]
    assert result == json.loads((run / "result.json").read_text())
    assert saved(run) == [2, 6]
    evaluated = [line["step"] for line in small.metrics(run)]
    assert evaluated == [2, 4, 6]
    assert train.train(config, run) == result  # complete: nothing is done again

    (run / "result.json").unlink()  # as a kill at the very end leaves it
    assert without_time(train.train(config, run)) == without_time(result)
    assert saved(run) == [2, 6]
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints/6")  # as a kill after the best checkpoint leaves it
    assert without_time(train.train(config, run)) == without_time(result)
    assert saved(run) == [2, 6]
    assert train.evaluate(config, run)["mcc"] == result["value"]
    # Other rows may be judged: with the other label each.
    rows = (tmp_path / "CoLA" / "dev.tsv").read_text().translate(str.maketrans("01", "10"))
    (tmp_path / "CoLA" / "test_set.tsv").write_text(rows)
    config.task.eval_file = "test_set.tsv"
    assert train.evaluate(config, run)["accuracy"] == 1 - result["accuracy"]
    config.task.train_file = "test_set.tsv"
    with pytest.raises(ConfigError, match=r"another config \(task.train_file"):
        train.evaluate(config, run)


def test_the_best_checkpoint_is_what_is_told_predicted_and_loaded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reached = iter([0.1, 0.5, float("nan"), 0.5, 0.3, 0.5])  # steps 2, 4, ... and once more at the end
    evaluate = evaluation.Evaluator.__call__
    monkeypatch.setattr(
        evaluation.Evaluator, "__call__", lambda self, params: evaluate(self, params) | {"mcc": next(reached)}
    )
    config = make(tmp_path, optimizer__learning_rate=0.1, train__patience=3)
    with caplog.at_level("INFO"):
        result = train.train(config, tmp_path / "run")
    assert (result["steps"], result["value"]) == (10, 0.3)
    assert (result["best_step"], result["best_value"]) == (4, 0.5)
    assert result["stopped_early"]
    assert "best mcc 0.5 at step 4" in caplog.text
    assert saved(tmp_path / "run") == [4, 10]
    assert next(reached, None) is None

    lines = (tmp_path / "run/predictions/eval.jsonl").read_text().splitlines()
    written = [json.loads(line)["probabilities"]["acceptable"] for line in lines]

    def said(step: int) -> list[float]:
        source = load.read(tmp_path / "run")
        params = checkpoint.read_params(tmp_path / "run/checkpoints", step)
        of_step = load.Source(
            source.spec, params, source.tokenizer, source.labels, source.report, source.facts
        )
        if step == result["best_step"]:
            np.testing.assert_array_equal(params["classifier"]["bias"], source.params["classifier"]["bias"])
        return [x["probabilities"]["acceptable"] for x in predict.predict(of_step, SENTENCES)]

    np.testing.assert_allclose(written, said(4), rtol=1e-4)
    assert np.abs(np.subtract(written, said(10))).max() > 1e-2


def test_evaluations_of_the_last_phase_count() -> None:
    phases = [types.SimpleNamespace(start=0), types.SimpleNamespace(start=7)]

    def stops(best_step: int | None, patience: int = 2) -> list[int]:
        settings = types.SimpleNamespace(patience=patience, eval_every=3)
        run = types.SimpleNamespace(config=types.SimpleNamespace(train=settings), phases=phases)
        return [step for step in range(1, 20) if train._out_of_patience(run, best_step, step)]

    assert stops(None)[:2] == [12, 13]  # evaluated after 3 and 6, in the first phase, then after 9, 12 ...
    assert stops(9)[0] == 15
    assert stops(10)[0] == 15  # a best that a last step of fewer came to
    assert stops(9, patience=1)[0] == 12
    assert stops(9, patience=0) == []


def test_patience_without_evaluations_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=r"train.patience = 2 counts evaluations, and train.eval_every = 0"):
        make(tmp_path, train__eval_every=0)
