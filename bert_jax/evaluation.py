"""Evaluation: every example once, the objectives' means, the task's own metrics, and samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from bert_jax import build, sharding
from bert_jax import step as step_lib
from bert_jax.data import pipeline
from bert_jax.visual import samples


class Evaluator:
    """Evaluates parameters on the evaluation examples of a phase, each counted once."""

    def __init__(self, run: build.Run, phase: build.Phase, like: Evaluator | None = None) -> None:
        """Prepares the evaluation of a phase; `like` is one of the same setup, compiled for both."""
        self._run, self._phase = run, phase
        self._step = like._step if like else step_lib.make_eval_step(phase.setup)
        self._generate: Any = None  # compiled when it is first asked for
        self._outputs: dict[str, dict[str, np.ndarray]] = {}  # of the last call, by evaluation
        self._guesses: dict[str, np.ndarray] = {}  # of its first batch, with the batch

    def __call__(self, params: Any) -> dict[str, float]:
        """Returns the objectives' means with their baselines, and the task's own metrics.

        Those of the general text, where there is one, have "general_" before their names, and those of
        a task's second and further evaluations the evaluation's name.
        """
        task = self._run.task
        metrics, outputs = self._metrics(params, self._phase.eval, "eval")
        if task:
            self._outputs = {"eval": outputs}
            metrics |= task.metrics("eval", outputs)
            for name, examples in task.evals.items():
                if name == "eval":
                    continue
                found, self._outputs[name] = self._metrics(params, examples, name)
                found |= task.metrics(name, self._outputs[name])
                metrics |= {f"{name}_{key}": value for key, value in found.items()}
        if self._phase.general is not None:
            general, _ = self._metrics(params, self._phase.general, "general")
            metrics |= {f"general_{name}": value for name, value in general.items()}
        return metrics

    def samples(self) -> dict[str, Any]:
        """Returns some of what the model said at the last call, in JSON values (`visual.samples`)."""
        tokenizer, task = self._run.tokenizer, self._run.task
        if task:
            return task.samples(self._outputs["eval"], tokenizer)
        for objective in self._phase.setup.objectives:
            if f"{objective.name}_guesses" in self._guesses:
                return {"tokens": samples.of_tokens(self._guesses, objective.name, tokenizer)}
        return {}

    def generated(self, params: Any) -> dict[str, float]:
        """Returns the metrics of what the task's model writes, which takes longer than one pass a row."""
        task = self._run.task
        metrics: dict[str, float] = {}
        for name, examples in task.sources.items() if task else ():
            if self._generate is None:
                self._generate = step_lib.make_generate_step(self._phase.setup, task.generate)
            collected = [
                {key: _on_host(x) for key, x in self._generate(params, batch).items()}
                for batch in self._batches(examples)
            ]
            outputs = {
                key: _joined([each[key] for each in collected])[: examples.num_examples]
                for key in collected[0]
            }
            self._outputs[name] = outputs
            found = task.generated_metrics(name, outputs)
            metrics |= found if name == "eval" else {f"{name}_{key}": value for key, value in found.items()}
        return metrics

    def write_predictions(self, folder: epath.Path, params: Any) -> None:
        """Writes what the task says of the last calls' outputs, and of those of its tests."""
        task = self._run.task
        if not task:
            return
        tests = {name: self._metrics(params, examples, name)[1] for name, examples in task.tests.items()}
        if jax.process_index() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            for name, outputs in {**self._outputs, **tests}.items():
                task.write_predictions(folder, name, outputs)

    def _metrics(
        self, params: Any, examples: Any, name: str
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Returns the means over the examples, and what the task keeps of their outputs, (N, ...) each."""
        total: step_lib.Sums | None = None
        collected: list[dict[str, np.ndarray]] = []
        for step, batch in enumerate(self._batches(examples)):
            sums, outputs, guesses = self._step(params, batch)
            if step == 0 and name == "eval":
                self._guesses = {key: _on_host(x) for key, x in {**batch, **guesses}.items() if guesses}
            total = step_lib.add(total, sums)
            host = {key: _on_host(output) for key, output in outputs.items()}
            task = self._run.task
            collected.append(task.condensed(name, step * examples.batch_size, host) if task else host)
        means = step_lib.means(total or {})
        loss = sum(o.weight * means[f"{o.name}_loss"] for o in self._phase.setup.objectives)
        joined = {key: _joined([each[key] for each in collected]) for key in collected[0]}
        return {"loss": loss, **means}, {key: x[: examples.num_examples] for key, x in joined.items()}

    def _batches(self, examples: Any) -> Iterator[dict[str, jax.Array]]:
        """Yields all examples once, on the devices."""
        mesh, data, size = self._phase.setup.mesh, self._run.config.data, examples.batch_size
        rows, number = sharding.local_rows(size, mesh), examples.num_eval_batches()
        for batch in pipeline.dataset(examples, 0, number, rows, data.workers, data.prefetch):
            yield sharding.to_devices(batch, size, mesh)


def evaluators(runs: Sequence[build.Run], phase: int) -> list[Evaluator]:
    """Returns an evaluator for each run, all of one compiled step."""
    first = Evaluator(runs[0], runs[0].phases[phase])
    return [first, *(Evaluator(run, run.phases[phase], first) for run in runs[1:])]


def _on_host(array: jax.Array) -> np.ndarray:
    if jax.process_count() == 1:
        return np.asarray(array)
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """Returns the rows of all batches; those of shorter rows, (B, S, ...), are filled up with 0."""
    longest = max(x.shape[1:] for x in arrays)
    if any(x.shape[1:] != longest for x in arrays):
        rest = [(0, 0)] * (arrays[0].ndim - 2)
        arrays = [np.pad(x, [(0, 0), (0, longest[0] - x.shape[1]), *rest]) for x in arrays]
    return np.concatenate(arrays)
