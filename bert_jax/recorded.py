"""The config file that stands for a run's config.json: --config=RUN/config.json is read through it."""

from __future__ import annotations

from etils import epath
from ml_collections import ConfigDict

from bert_jax import config as config_lib


def get_config(path: str) -> ConfigDict:
    """Returns the config that a run was started with; raises ConfigError, naming the file and its fault."""
    return config_lib.from_json(epath.Path(path).expanduser().read_bytes(), path)
