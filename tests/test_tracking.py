"""Metrics beside metrics.jsonl: what TensorBoard, MLflow and W&B hold after a run that went on once."""

import json
import pathlib
import subprocess
import sys

import pytest

from bert_jax import config as config_lib
from bert_jax import tracking

ROOT = pathlib.Path(__file__).parents[1]
# A run of two processes: each tracker is asked anew, with the same workdir.
WRITES = """
import json, pathlib, sys
from bert_jax import config as config_lib, tracking

workdir = pathlib.Path(sys.argv[1])
config = config_lib.default()
config.train.trackers = (sys.argv[2],)
for step in (10, 20):
    (tracker,) = tracking.start(workdir, config)
    tracker.write(step, "train", {"loss": 5.0 - step / 10, "mfu": 0.5})
    tracker.write(step, "eval", {"loss": 6.0 - step / 10})
    tracker.close()
"""
READS = """
import json, pathlib, sys
from mlflow.tracking import MlflowClient

workdir = pathlib.Path(sys.argv[1])
client = MlflowClient(tracking_uri=f"sqlite:///{workdir}/mlflow.db")
run = client.get_run(json.loads((workdir / "tracking.json").read_text())["mlflow"])
history = client.get_metric_history(run.info.run_id, "train/loss")
print(json.dumps({
    "loss": [[x.step, x.value] for x in history],
    "eval": run.data.metrics["eval/loss"],
    "status": run.info.status,
    "name": run.info.run_name,
    "size": run.data.params["model.hidden_size"],
    "runs": len(client.search_runs([run.info.experiment_id])),
}))
"""


def run(code: str, *arguments: str) -> str:
    # Of their own, so that the warnings of other people's imports stay there.
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mlflow_holds_one_run_with_its_config(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mlflow")
    workdir = tmp_path / "mine"
    workdir.mkdir()
    run(WRITES, str(workdir), "mlflow")
    found = json.loads(run(READS, str(workdir)))
    assert found == {
        "loss": [[10, 4.0], [20, 3.0]], "eval": 4.0, "status": "FINISHED", "name": "mine", "size": "768",
        "runs": 1,
    }  # fmt: skip
    assert {file.name for file in workdir.iterdir()} == {"mlflow.db", "tracking.json"}


def test_wandb_keeps_all_in_the_workdir(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("wandb")
    run(WRITES, str(tmp_path), "wandb")
    name = json.loads((tmp_path / "tracking.json").read_text())["wandb"]
    kept = [*tmp_path.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb")]
    assert len(kept) in (1, 2)  # a process's start of the same second shares its folder
    held = b"".join(file.read_bytes() for file in kept)
    for word in (b"train/loss", b"eval/loss", b"hidden_size"):
        assert word in held
    assert {file.name for file in tmp_path.iterdir()} == {"tracking.json", "wandb"}


def test_what_is_not_installed_is_said_before_anything_is_made(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_lib.default()
    config.train.trackers = ("tensorboard", "wandb")
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        config_lib.ConfigError, match="names wandb, which is not installed: pip install wandb"
    ):
        tracking.check(config, tmp_path)
    config.train.trackers = ("tensorboard",)
    tracking.check(config, tmp_path)


@pytest.mark.parametrize(("kind", "place"), [("wandb", "WANDB_DIR"), ("mlflow", "MLFLOW_TRACKING_URI")])
def test_files_that_must_be_local_are_not_written_to_a_bucket(
    monkeypatch: pytest.MonkeyPatch, kind: str, place: str
) -> None:
    monkeypatch.delenv(place, raising=False)
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: name)
    config = config_lib.default()
    config.train.trackers = ("tensorboard", kind)
    with pytest.raises(config_lib.ConfigError, match=f"{kind}, which writes local files, .* by {place} in"):
        tracking.check(config, "gs://bucket/run")
    monkeypatch.setenv(place, "elsewhere")
    tracking.check(config, "gs://bucket/run")


def test_an_unknown_tracker_is_refused() -> None:
    config = config_lib.default()
    config.train.trackers = ("neptune",)
    with pytest.raises(
        config_lib.ConfigError, match=r'train.trackers = .*"tensorboard", "wandb" and "mlflow"'
    ):
        config_lib.validate(config)


def test_without_trackers_there_is_none(tmp_path: pathlib.Path) -> None:
    config = config_lib.default()
    assert config.train.trackers == ("tensorboard",)
    config.train.trackers, config.train.steps = (), 1
    config_lib.validate(config)
    assert tracking.start(tmp_path, config) == [] and not [*tmp_path.iterdir()]
