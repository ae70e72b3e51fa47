"""The config file that stands for a run's config.json: --config=RUN/config.json is read through it."""

from __future__ import annotations

from etils import epath
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import workdir


def get_config(path: str) -> ConfigDict:
    """Returns the config that a run was started with; raises ConfigError, naming the file and its fault.

    The tokenizer that it took from a model which it names is left out: with another model it is another.
    """
    config = config_lib.from_json(epath.Path(path).expanduser().read_bytes(), path)
    named = (config.init_from, config.objective.distill.teacher)
    if config.data.tokenizer in {workdir.tokenizer_of(model) for model in named if model}:
        config.data.tokenizer = ""
    return config
