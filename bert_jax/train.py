"""The one loop, for pretraining and fine-tuning: data, step, log, evaluate, save."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from absl import logging
from etils import epath
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax import build, flops, sharding, sweep
from bert_jax import config as config_lib
from bert_jax import log as log_lib
from bert_jax import step as step_lib
from bert_jax import workdir as workdir_lib
from bert_jax.checkpoint import Checkpoints
from bert_jax.data import pipeline, shards
from bert_jax.models import spec as spec_lib
from bert_jax.tasks import suite

# With several processes, steps between their agreements on a signal that came to one of them.
_AGREE_EVERY = 10


class NonFiniteError(ValueError):
    """The loss or its gradient is no number any more."""


def train(config: ConfigDict, workdir: epath.PathLike) -> dict[str, Any]:
    """Trains, continuing the run that the workdir holds, and returns what result.json says.

    Args:
      config: valid.
      workdir: the run's directory, local or gs://.

    Raises:
      ConfigError: the workdir holds another run.
      NonFiniteError: the loss became NaN or infinite; nothing of it was saved.
      SystemExit: SIGTERM or SIGINT came; the state was saved.
    """
    if config.task.name in suite.SUITES:
        return suite.run(config, workdir, train)
    if config.sweep.seeds > 1:
        return sweep.run(config, workdir, train)
    _enable_cache(config)

    # --- Workdir, data, model
    found = workdir_lib.read_config(workdir)
    if jax.process_count() > 1:  # all must have looked before one of them writes
        multihost_utils.sync_global_devices("bert_jax: workdir is read")
    root = epath.Path(workdir)
    # A run that was killed before it saved anything starts anew, from the weights of init_from.
    config, source, teacher = build.complete(config, found if workdir_lib.has_saved(root) else None)
    workdir_lib.check(root, config, found)
    finished = workdir_lib.read_result(root)
    if finished is not None and found is not None and not config_lib.differing_keys(config, found):
        logging.info("%s is complete: nothing to do", root)
        return finished
    run = build.build(config, source, teacher)
    steps = run.steps
    if jax.process_index() == 0:  # not before: what cannot be built leaves nothing behind
        workdir_lib.claim(root, config)
        run.tokenizer.save(root / workdir_lib.TOKENIZER)
        labels = run.task.labels if run.task else ()
        workdir_lib.write(root / workdir_lib.MODEL, spec_lib.to_json(run.setup.model.spec, labels))
        if run.task and not workdir_lib.has_saved(root):  # then what the best checkpoint told is there too
            workdir_lib.write_facts(root, run.task.facts)

    # --- State
    mode = run.task.best_mode if run.task else "min"
    checkpoints = Checkpoints(root / workdir_lib.CHECKPOINTS, keep=config.checkpoint.keep, best_mode=mode)
    sample = _sample(run)
    abstract = step_lib.abstract_state(run.setup, sample, config.seed)
    restored = checkpoints.restore(abstract)
    start, state = restored if restored else (0, run.initial_state(sample))
    log = log_lib.Log(root, start, steps, writes=jax.process_index() == 0)
    size = sum(x.size for x in jax.tree.leaves(state.params))
    log.say(
        f"{size / 1e6:.1f}M parameters on {jax.device_count()} {jax.devices()[0].device_kind} device(s), "
        + ", ".join(f"{p.stop - p.start:,} steps of {p.train.batch_size} rows" for p in run.phases)
        + (f"; going on from the checkpoint of step {start:,}" if restored else "")
    )

    # --- Loop
    phase: build.Phase | None = None
    best, best_step = checkpoints.best_metric(), checkpoints.best_step()
    # A run that was killed after its last step, or when it had stopped, has all but its result.
    ended = start == steps or _out_of_patience(run, best_step, start)
    window: step_lib.Sums | None = None
    pending: tuple[int, step_lib.Sums] | None = None
    latest: dict[str, float] = {}
    with _signals() as stop, contextlib.closing(checkpoints), contextlib.closing(log):
        for step, its_phase, batch in () if ended else _batches(run, start):
            began, first = time.monotonic(), its_phase is not phase
            if first:
                phase = its_phase
                train_step, evaluator = step_lib.make_train_step(phase.setup), Evaluator(run, phase)
            if step == 1 and run.source is not None and not run.task:
                log.write(0, "eval", evaluator(state.params))  # what training then changes
            state, sums = train_step(state, batch)
            # The step before is read while this one runs, so the device never waits for the host.
            if pending:
                window = _checked(pending, window, checkpoints)
            pending = (step, sums)
            if first:
                jax.block_until_ready(sums)
                log.pause(time.monotonic() - began)  # the compilation
            log.advance()

            if step % config.train.log_every == 0 or step == steps:
                window, pending = _checked(pending, window, checkpoints), None
                log.write(step, "train", *_rates(run, phase, log, step, window))
                window = None

            evaluated = step == steps or (config.train.eval_every and step % config.train.eval_every == 0)
            metric, improved = None, False
            if evaluated:
                if pending:
                    window, pending = _checked(pending, window, checkpoints), None
                began = time.monotonic()
                latest = evaluator(state.params)
                if phase is run.phases[-1]:  # losses over rows of other lengths are no comparison
                    metric = latest[run.task.metric if run.task else "loss"]
                    better = best is None or (metric > best if mode == "max" else metric < best)
                    improved = better and math.isfinite(metric)
                    best, best_step = (metric, step) if improved else (best, best_step)
                ended = step == steps or _out_of_patience(run, best_step, step)
                if ended:
                    latest |= evaluator.generated(state.params)
                log.write(step, "eval", latest)
                log.pause(time.monotonic() - began)

            leave = stop.agreed(step)
            if step % config.checkpoint.every == 0 or improved or ended or leave:
                if pending:
                    window, pending = _checked(pending, window, checkpoints), None
                began = time.monotonic()
                if improved and run.task and jax.process_index() == 0:
                    workdir_lib.write_facts(root, run.task.facts_of(latest))
                checkpoints.save(step, state, metric)
                log.pause(time.monotonic() - began)
            if ended:
                break
            if leave:
                checkpoints.wait()
                log.say(
                    f"stopped by {leave.name} after step {step}: saved; the same command goes on from there"
                )
                sys.exit(128 + leave)
        last = checkpoints.latest_step()
        if start == last:
            evaluator = Evaluator(run, run.phases[-1])
            latest = evaluator(state.params) | evaluator.generated(state.params)
        of_best = latest
        if run.task:
            params = state.params
            if best_step not in (None, last):  # what `load` and `predict` take is what the files say
                del state, params  # there may be no room for both
                params = checkpoints.restore_step(best_step, abstract).params
                of_best = evaluator(params) | evaluator.generated(params)
            evaluator.write_predictions(root / workdir_lib.PREDICTIONS, params)
        checkpoints.wait()
        seconds = log.seconds()

    # --- Result
    if not run.task and best is not None:
        of_best = {"loss": best}
    result = _result(run, latest, last, of_best, best_step, workdir_lib.start_metrics(root), seconds)
    if best_step not in (None, last):
        logging.info(
            "best %s %.4g at step %d, whose checkpoint predict and load take; %.4g at step %d, the last",
            result["metric"], result["best_value"], best_step, result["value"], last,
        )  # fmt: skip
    if jax.process_index() == 0:
        workdir_lib.write_result(root, result)
    return result


def evaluate(config: ConfigDict, workdir: epath.PathLike) -> dict[str, float]:
    """Evaluates the newest checkpoint of a workdir, and returns and logs the metrics.

    Raises:
      ConfigError: the workdir holds no run, or another one.
    """
    if config.task.name in suite.SUITES:
        one = next(iter(suite.SUITES[config.task.name].members))
        raise config_lib.ConfigError(
            f'task.name = "{config.task.name}" is many runs: evaluate one of them, as task.name = "{one}" in '
            f"{workdir}/{one}"
        )
    _enable_cache(config)
    root = epath.Path(workdir)
    found = workdir_lib.read_config(root)
    if found is None:
        raise FileNotFoundError(f"{root} holds no run to evaluate: train one there first")
    config, source, teacher = build.complete(config, found)
    workdir_lib.check(root, config, found)
    run = build.build(config, source, teacher)
    checkpoints = Checkpoints(root / workdir_lib.CHECKPOINTS, keep=config.checkpoint.keep, best_mode=None)
    with contextlib.closing(checkpoints):
        abstract = step_lib.abstract_state(run.setup, _sample(run), config.seed)
        restored = checkpoints.restore(abstract)
    if restored is None:
        raise FileNotFoundError(f"{root} holds no checkpoint to evaluate: train first")
    step, state = restored
    evaluator = Evaluator(run, run.phase_of(step))
    metrics = evaluator(state.params) | evaluator.generated(state.params)
    if jax.process_index() == 0:
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in metrics.items())
        logging.info("eval of step %d: %s", step, shown)
    return metrics


class Evaluator:
    """Evaluates parameters on the evaluation examples of a phase, each counted once."""

    def __init__(self, run: build.Run, phase: build.Phase) -> None:
        self._run, self._phase = run, phase
        self._step = step_lib.make_eval_step(phase.setup)
        self._outputs: dict[str, dict[str, np.ndarray]] = {}  # of the last call, by evaluation

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

    def generated(self, params: Any) -> dict[str, float]:
        """Returns the metrics of what the task's model writes, which takes longer than one pass a row."""
        task = self._run.task
        metrics: dict[str, float] = {}
        for name, examples in task.sources.items() if task else ():
            generate = step_lib.make_generate_step(self._phase.setup, task.generate)
            collected = [
                {key: _on_host(x) for key, x in generate(params, batch).items()}
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
            sums, outputs = self._step(params, batch)
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


def _sample(run: build.Run) -> dict[str, np.ndarray]:
    """Returns the first batch of the run, which tells the names and shapes of all."""
    train = run.phases[0].train
    return train.batch(0, sharding.local_rows(train.batch_size, run.setup.mesh))


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


def _batches(run: build.Run, start: int) -> Iterator[tuple[int, build.Phase, Any]]:
    """Yields step, phase and batch of the steps after `start`, a batch on its way before it is asked for."""
    for phase in run.phases:
        if start >= phase.stop:
            continue
        mesh, size, data = phase.setup.mesh, phase.train.batch_size, run.config.data
        first = max(start, phase.start)
        made = pipeline.dataset(
            phase.train,
            first - phase.start,
            phase.stop - phase.start,
            sharding.local_rows(size, mesh),
            data.workers,
            data.prefetch,
        )
        ahead = None
        for step, batch in enumerate(made, first + 1):
            placed = sharding.to_devices(batch, size, mesh)
            if ahead is not None:
                yield ahead
            ahead = step, phase, placed
        if ahead is not None:
            yield ahead


def _checked(
    pending: tuple[int, step_lib.Sums], window: step_lib.Sums | None, checkpoints: Checkpoints
) -> step_lib.Sums:
    """Returns the window with a step's sums added, once they are known to be numbers."""
    step, sums = pending
    added = step_lib.add(None, sums)
    for name in ("loss", "grad_norm"):
        if not math.isfinite(added[name][0]):
            good = checkpoints.latest_step()
            last = f"the last good checkpoint is that of step {good}" if good else "no checkpoint was saved"
            raise NonFiniteError(
                f"{name} = {added[name][0]} in step {step}: nothing was saved since; {last}; "
                "lower optimizer.learning_rate, or raise the warm-up"
            )
    return added if window is None else step_lib.add(window, added)


def _rates(
    run: build.Run, phase: build.Phase, log: log_lib.Log, step: int, window: step_lib.Sums
) -> tuple[dict[str, float], float]:
    """Returns a window's metrics with the rates, and the estimated seconds to the end."""
    means = step_lib.means(window)
    taken = log.step_seconds(step)
    predictions = sum(getattr(objective, "capacity", 0) for objective in phase.setup.objectives)
    length, tokens = means.pop("row_length"), means.pop("tokens")
    rows = phase.train.batch_size * getattr(phase.train, "choices", 1)
    frozen = max(0, phase.setup.layers.frozen)
    work = flops.train_step(phase.setup.model.spec, rows, length, predictions, frozen)
    if phase.setup.teacher is not None:
        work += flops.forward(phase.setup.teacher.spec, phase.train.batch_size, length, predictions)
    values = {
        **means,
        "tokens_per_second": tokens / taken,
        "mfu": work / taken / flops.peak(),
        "step_seconds": taken,
    }
    return values, (run.steps - step) * taken


def _out_of_patience(run: build.Run, best_step: int | None, step: int) -> bool:
    """Returns whether a run waits no longer for a better metric than that of `best_step`, after a step.

    That follows from the two steps alone: a run that goes on from a checkpoint ends where it would have.
    """
    train = run.config.train
    if not train.patience:
        return False
    since = max(run.phases[-1].start, best_step or 0)
    return step // train.eval_every - since // train.eval_every >= train.patience


def _result(
    run: build.Run,
    metrics: dict[str, float],
    last: int,
    of_best: dict[str, float],
    best_step: int | None,
    start: dict[str, float],
    seconds: float,
) -> dict[str, Any]:
    """Returns what result.json says.

    Args:
      run: the run.
      metrics, last: of the last step, and which it was.
      of_best, best_step: the metrics of the best, and which it was; None where no evaluation chose one.
      start: the metrics before the first step, if there are any.
      seconds: that it took.
    """
    metric = (run.task.result or run.task.metric) if run.task else "loss"
    return {
        "task": run.config.task.name or "pretraining",
        "metric": metric,
        "value": metrics[metric],
        "best_value": of_best[metric],
        "best_step": best_step,
        **metrics,
        **{f"start_{name}": value for name, value in start.items() if name in metrics},
        **({"stopped_early": last < run.steps} if run.config.train.patience else {}),
        "steps": last,
        "seconds": round(seconds, 1),
    }


def _enable_cache(config: ConfigDict) -> None:
    """Keeps compiled programs between processes, so that a second start trains at once."""
    chosen = config.train.compilation_cache
    folder = str(shards.cache_root(config.data.cache_dir) / "compiled") if chosen == "default" else chosen
    jax.config.update("jax_compilation_cache_dir", folder or None)


class _Stop:
    """The signal that asks the run to save and leave, once it has come."""

    def __init__(self) -> None:
        self.came: signal.Signals | None = None

    def agreed(self, step: int) -> signal.Signals | None:
        """Returns the signal; with several processes once all know of it, at the same step."""
        if jax.process_count() == 1:
            return self.came
        if step % _AGREE_EVERY:
            return None
        known = multihost_utils.process_allgather(np.array(self.came or 0))
        return signal.Signals(int(known.max())) if known.any() else None


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    """Turns the first SIGTERM or SIGINT into a request to stop; a second one ends the process."""
    stop = _Stop()
    before: dict[int, Any] = {}

    def request(number: int, _: Any) -> None:
        stop.came = signal.Signals(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, request)
    except ValueError:  # not in the main thread, as in a notebook's worker: the caller's own handlers stay
        before.clear()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
