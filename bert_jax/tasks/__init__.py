"""Fine-tuning tasks: reading, features and metrics, one file a family."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from ml_collections import ConfigDict

from bert_jax.tasks.features import Features


class Task(Protocol):
    """What training needs of a task.

    Attributes:
      labels: names of the classes, in the order of the logits.
      metric: the key of `metrics` that checkpoints are chosen by.
      best_mode: whether the highest or the lowest is best.
      train, eval: the examples.
      objective: of `bert_jax.objectives`.
    """

    labels: tuple[str, ...]
    metric: str
    best_mode: Literal["max", "min"]
    train: Features
    eval: Features
    objective: Any

    def metrics(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Returns every metric of (N, C) logits for (N,) labels, and the baselines beside them."""
        ...


def make(config: ConfigDict, tokenizer: Any) -> Task:
    """Reads the task that `config.task.name` names.

    Args:
      config: the whole config; `task`, `data`, `train` and `seed` are read.
      tokenizer: of `bert_jax.data.tokenizer`.

    Raises:
      ValueError: there is no such task, or its data cannot be read.
    """
    if config.task.name == "cola":
        from bert_jax.tasks.glue import Cola

        return Cola(config, tokenizer)
    raise ValueError(f'task.name = {config.task.name!r}: it must be "cola"')
