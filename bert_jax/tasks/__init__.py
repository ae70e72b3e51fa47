"""Fine-tuning tasks: reading, features and metrics, one file a family."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bert_jax import config_tasks
from bert_jax.tasks.features import Examples

# Module of this package that makes each task; `config_tasks.NAMES` lists the same names.
FAMILIES = {
    **dict.fromkeys(config_tasks.GLUE, "glue"),
    **dict.fromkeys(config_tasks.SUPERGLUE, "superglue"),
    **dict.fromkeys(config_tasks.OWN_DATA, "own"),
    **dict.fromkeys(config_tasks.TAGGING, "tagging"),
    "relation": "relation",
    **dict.fromkeys(config_tasks.ANSWERS, "answers"),
    "seq2seq": "seq2seq",
    "spelling": "spelling",
}


class TaskDataError(ValueError):
    """A task's files that cannot be read; the message names the file and line, and the rule broken."""


class Task:
    """What training needs of a task.

    Attributes:
      labels: names of the classes, in the order of the logits; ("score",) of a regression.
      heads: fields of `ModelSpec` that the model needs: {"labels": 3}, {"token_labels": 9} ...
      metric: the key of `metrics` that checkpoints are chosen by.
      best_mode: whether the highest or the lowest is best.
      train: the training examples.
      evals: examples of each evaluation; the first is "eval" and chooses checkpoints. The metrics of the
        others have their name before them ("mismatched_accuracy").
      tests: examples without labels, of which only predictions are written.
      objective: of `bert_jax.objectives`.
      outputs: names of the model's outputs that `metrics` needs.
      sources: examples to which the model writes an answer by `generate`, once, at the end of a run; their
        names are among `evals`.
      result: the key of `generated_metrics` that is a run's result; "": it is `metric`.
      facts: what `bert_jax.predict` must know beside the labels, in JSON values: "kind", by which it
        chooses how to answer, "seq_len", by which it cuts as was done here, and what else the kind needs.
    """

    labels: tuple[str, ...]
    heads: Mapping[str, Any]
    metric: str
    best_mode: Literal["max", "min"] = "max"
    train: Examples
    evals: Mapping[str, Examples]
    tests: Mapping[str, Examples] = {}
    objective: Any
    outputs: tuple[str, ...] = ("logits",)
    sources: Mapping[str, Examples] = {}
    result: str = ""
    facts: Mapping[str, Any] = {}

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns every metric of an evaluation, and the baselines beside them.

        Args:
          name: which of `evals`.
          outputs: (N, ...) of each of `outputs`, or of what `condensed` makes of them, in the order of the
            examples. Where rows have their own length, (N, S, ...), they are filled up with 0.
        """
        raise NotImplementedError

    def condensed(self, name: str, first: int, outputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Returns what is kept of a batch's outputs until all are there: all of it, if they are small.

        Args:
          name: as in `metrics`.
          first: number of the batch's first example; those from `num_examples` on are padding.
          outputs: (B, ...) of each of `outputs`.
        """
        return outputs

    def facts_of(self, metrics: Mapping[str, float]) -> Mapping[str, Any]:
        """Returns `facts` with what only an evaluation tells: its metrics, those of the best checkpoint."""
        return self.facts

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Takes what the run's own evaluation decided from its facts, before others of it are made."""

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes what the trained model says of `evals` or `tests` `name`, at the end of a run.

        Args:
          folder: it is there.
          name, outputs: as in `metrics`; what `generate` gave for `sources`.
        """

    def samples(self, outputs: Mapping[str, np.ndarray], tokenizer: Any) -> dict[str, Any]:
        """Returns what the page of a run shows of an evaluation, in JSON values; nothing, if nothing is said.

        Args:
          outputs: of "eval", as in `metrics`.
          tokenizer: the run's.

        Returns:
          `answers`, some of {"text", "gold", "said", "right"} (null where nothing is right or wrong), and
          `confusion`, {"labels", "counts"}.
        """
        return {}

    def generate(self, model: Any, params: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answers, (B, ...) each, to a batch of `sources`; it is compiled."""
        raise NotImplementedError

    def generated_metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the metrics of what `generate` gave for all `sources` of a name, (N, ...) each."""
        raise NotImplementedError


def make(config: ConfigDict, tokenizer: Any) -> Task:
    """Reads the task that `config.task.name` names.

    Args:
      config: the whole config; `task`, `data`, `train` and `seed` are read.
      tokenizer: of `bert_jax.data.tokenizer`.

    Raises:
      ValueError: there is no such task, or its data cannot be read.
    """
    if config.task.name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ValueError(f"task.name = {config.task.name!r}: it must be one of {known}")
    module = importlib.import_module(f"bert_jax.tasks.{FAMILIES[config.task.name]}")
    return module.make(config, tokenizer)
