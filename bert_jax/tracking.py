"""Where a run's metrics go beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow.

The latter two are used where train.trackers names them, and keep what they get in the workdir: nothing leaves
the machine unless the user's environment says so (WANDB_MODE=online, MLFLOW_TRACKING_URI=http://...).
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from etils import epath
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import jsonl
from bert_jax import workdir as workdir_lib
from bert_jax.config import ConfigError

_NAMES = "tracking.json"
_PROJECT = "bert_jax"  # W&B's project and MLflow's experiment, where the environment names none
_MOST_PARAMS, _LONGEST_PARAM = 100, 6000  # that MLflow takes at once


class Tracker(Protocol):
    """Takes a run's metrics; one that a process goes on with takes up where the last one was."""

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Takes metrics by name, of "train" or "eval"."""

    def close(self) -> None:
        """Ends the run, or this process's part of it."""


class TensorBoard:
    """Event files in WORKDIR/tensorboard."""

    def __init__(self, workdir: epath.PathLike) -> None:
        import tensorflow as tf

        self._tf = tf
        self._writers = {
            split: tf.summary.create_file_writer(str(epath.Path(workdir) / workdir_lib.EVENTS / split))
            for split in ("train", "eval")
        }

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Writes scalars."""
        with self._writers[split].as_default(step=step):
            for name, value in values.items():
                self._tf.summary.scalar(name, value)
        self._writers[split].flush()

    def close(self) -> None:
        """Closes the files."""
        for writer in self._writers.values():
            writer.close()


class WeightsAndBiases:
    """A run of wandb in WORKDIR/wandb (or WANDB_DIR), offline (or WANDB_MODE); `wandb sync` sends it."""

    def __init__(self, workdir: epath.PathLike, config: ConfigDict, name: str) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            dir=os.environ.get("WANDB_DIR", os.fspath(workdir)),
            id=_known(workdir, "wandb", lambda: secrets.token_hex(8)),
            name=name,
            resume="allow",
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=config.to_dict(),
            settings=wandb.Settings(console="off", silent=True),
        )

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Logs "train/loss" and so on, at the step."""
        self._run.log({f"{split}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        """Writes what is left."""
        self._run.finish()


class MLflow:
    """A run of MLflow in WORKDIR/mlflow.db, unless MLFLOW_TRACKING_URI names another store."""

    def __init__(self, workdir: epath.PathLike, config: ConfigDict, name: str) -> None:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        store = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{os.path.abspath(workdir)}/mlflow.db")
        self._client = MlflowClient(tracking_uri=store)

        def begin() -> str:
            title = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
            known = self._client.get_experiment_by_name(title)
            experiment = known.experiment_id if known else self._client.create_experiment(title)
            run = self._client.create_run(experiment, run_name=name).info.run_id
            params = [Param(key, str(x)[:_LONGEST_PARAM]) for key, x in config_lib.flatten(config).items()]
            for first in range(0, len(params), _MOST_PARAMS):
                self._client.log_batch(run, params=params[first : first + _MOST_PARAMS])
            return run

        self._run = _known(workdir, "mlflow", begin)
        self._client.update_run(self._run, status="RUNNING")

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Logs "train/loss" and so on, at the step."""
        now = int(time.time() * 1000)
        metrics = [self._metric(f"{split}/{name}", value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        """Says that no process works on the run."""
        self._client.set_terminated(self._run)


def start(workdir: epath.PathLike, config: ConfigDict) -> list[Tracker]:
    """Returns the trackers that a run's config names.

    Args:
      workdir: the run's directory; the names that a tracker gave the run are kept in its tracking.json, so
        that a run that goes on is one run there too.
      config: the run's.
    """
    made: list[Tracker] = []
    for kind in config.train.trackers:
        if kind == "tensorboard":
            made.append(TensorBoard(workdir))
        else:
            tracker = {"wandb": WeightsAndBiases, "mlflow": MLflow}[kind]
            made.append(tracker(workdir, config, epath.Path(workdir).name))
    return made


def check(config: ConfigDict, workdir: epath.PathLike) -> None:
    """Raises ConfigError where a tracker that the config names is not installed, or cannot write there."""
    for kind in config.train.trackers:
        elsewhere = {"wandb": "WANDB_DIR", "mlflow": "MLFLOW_TRACKING_URI"}.get(kind)
        if elsewhere and "://" in os.fspath(workdir) and elsewhere not in os.environ:
            raise ConfigError(
                f"train.trackers names {kind}, which writes local files, and --workdir={workdir} is none: "
                f"name another place for it by {elsewhere} in the environment"
            )
        if kind != "tensorboard" and importlib.util.find_spec(kind) is None:
            raise ConfigError(f"train.trackers names {kind}, which is not installed: pip install {kind}")


def _known(workdir: epath.PathLike, kind: str, make: Callable[[], str]) -> str:
    """Returns the name that a run has with a tracker, which the run's first process had made."""
    path = epath.Path(workdir) / _NAMES
    names = jsonl.read_object(path) if path.exists() else {}
    if kind not in names:
        names[kind] = make()
        workdir_lib.write(path, json.dumps(names) + "\n")
    return names[kind]
