"""The one loop, for pretraining and fine-tuning: data, step, log, evaluate, save."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from etils import epath
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax import build, completion, flops, sharding, signals, spikes, sweep, tracing, tracking
from bert_jax import config as config_lib
from bert_jax import log as log_lib
from bert_jax import members as members_lib
from bert_jax import step as step_lib
from bert_jax import workdir as workdir_lib
from bert_jax.checkpoint import CheckpointError, Checkpoints
from bert_jax.data import pipeline, shards
from bert_jax.evaluation import Evaluator, evaluators
from bert_jax.members import Member
from bert_jax.models import spec as spec_lib
from bert_jax.tasks import suite


class TrainingError(ValueError):
    """The loss or its gradient is no number any more, or by `train.spike` too large."""


def train(config: ConfigDict, workdir: epath.PathLike) -> dict[str, Any]:
    """Trains, continuing the run that the workdir holds, and returns what result.json says.

    Args:
      config: valid.
      workdir: the run's directory, local or gs://.

    Raises:
      ConfigError: the workdir holds another run.
      TrainingError: the loss became NaN or infinite, or a spike that ends the run; nothing of it was saved.
      SystemExit: SIGTERM or SIGINT came; the state was saved.
    """
    if config.task.name in suite.SUITES:
        return suite.run(config, workdir, train)
    if sweep.is_asked(config):
        return sweep.run(config, workdir, train_together)
    finished = completion.finished(config, workdir)
    if finished is not None and "failed" not in finished:
        logging.info("%s is complete: nothing to do", workdir)
        return finished
    result = train_together([config], [workdir])[0]
    if "failed" in result:
        raise TrainingError(result["failed"])
    return result


def train_together(
    configs: Sequence[ConfigDict], workdirs: Sequence[epath.PathLike], names: Sequence[str] = ("",)
) -> list[dict[str, Any]]:
    """Trains runs in one program, each as it would train alone, and returns what each result.json says.

    One that is to go back from a spike of its loss does what one that was killed does, with other batches.
    They go on from the newest step that all have saved. One whose loss is no number any more ends there, and
    its result has `failed`, which says why; the others go on.

    Args:
      configs: valid; they differ in seed and learning rate alone. More than one need one device.
      workdirs: of each, none complete.
      names: of each, for the reader; a run that has one is a member of a search, and leaves a result.json
        when it fails too.

    Raises:
      As `train` does, but for TrainingError.
    """
    tracking.check(configs[0], workdirs[0])
    _enable_cache(configs[0])
    stop = signals.Stop()
    while True:
        try:
            with contextlib.ExitStack() as locks:
                return _train_on(configs, workdirs, names, stop, locks)
        except spikes.GoBack as back:
            if jax.process_index() == 0:
                spikes.write(back.root, back.history)
            spike = back.history[-1]
            logging.warning(
                "a spike in step %d (%s %s): going back to step %d, and on without the batches since",
                spike.step, spike.name, "is no number" if spike.value is None else f"{spike.value:.4g}",
                spike.back,
            )  # fmt: skip
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("bert_jax: a spike is written down")


def _train_on(
    configs: Sequence[ConfigDict],
    workdirs: Sequence[epath.PathLike],
    names: Sequence[str],
    stop: signals.Stop,
    locks: contextlib.ExitStack,
) -> list[dict[str, Any]]:
    """Does what `train_together` does, up to the first spike from which one is to go back.

    Raises:
      GoBack: there is one.
      and what `train_together` raises.
    """
    several = len(configs) > 1

    # --- Workdirs, data, model
    roots = [epath.Path(workdir) for workdir in workdirs]
    if jax.process_index() == 0:
        for root in roots:
            spikes.remove_abandoned(root)
    found = [workdir_lib.read_config(root) for root in roots]
    if jax.process_count() > 1:  # all must have looked before one of them writes
        multihost_utils.sync_global_devices("bert_jax: workdir is read")
    # A run that was killed before it saved anything starts anew, from the weights of init_from.
    saved = set.intersection(*(workdir_lib.saved_steps(root) for root in roots))
    complete, source, teacher = completion.complete(configs[0], found[0] if saved else None)
    completed, histories = [], []
    for config, root, its_found in zip(configs, roots, found, strict=True):
        own = complete.copy_and_resolve_references()
        own.seed, own.optimizer.learning_rate = config.seed, config.optimizer.learning_rate
        workdir_lib.check(root, own, its_found)
        completed.append(own)
        same = its_found is not None and not config_lib.differing_keys(own, its_found)
        histories.append(spikes.read(root) if same else ())
        if several and histories[-1]:
            raise config_lib.ConfigError(
                f"{root} went back from a spike, so its batches are its own: set sweep.together = 1"
            )
    runs = build.build_together(completed, source, teacher, roots[0] if saved else None)
    run = runs[0]
    steps = run.steps
    if jax.process_index() == 0:  # not before: what cannot be built leaves nothing behind
        for own, root in zip(completed, roots, strict=True):
            locks.enter_context(workdir_lib.alone(root))
            workdir_lib.claim(root, own)
            if not histories[roots.index(root)]:
                (root / spikes.SPIKES).unlink(missing_ok=True)  # another run's
            run.tokenizer.save(root / workdir_lib.TOKENIZER)
            labels = run.task.labels if run.task else ()
            workdir_lib.write(root / workdir_lib.MODEL, spec_lib.to_json(run.setup.model.spec, labels))
            workdir_lib.write(root / workdir_lib.ABOUT, json.dumps(build.about(run), indent=2) + "\n")
            if run.task and not workdir_lib.has_saved(root):  # else the best one's are there
                workdir_lib.write_facts(root, run.task.facts)

    # --- State
    config = completed[0]
    mode = run.task.best_mode if run.task else "min"
    stores = [
        Checkpoints(root / workdir_lib.CHECKPOINTS, keep=config.checkpoint.keep, best_mode=mode)
        for root in roots
    ]
    sample = _sample(run)
    abstract = [step_lib.abstract_state(r.setup, sample, r.config.seed) for r in runs]
    restored = _restored(stores, abstract)
    start, states = restored if restored else (0, [r.initial_state(sample) for r in runs])
    size = sum(x.size for x in jax.tree.leaves(states[0].params))
    state = step_lib.stack(states) if several else states.pop()
    together = members_lib.together(runs) if several else None
    members: list[Member] = []
    for r, root, store, name, history in zip(runs, roots, stores, names, histories, strict=True):
        beside = members[0].log if members else None
        trackers = tracking.start(root, r.config) if jax.process_index() == 0 else ()
        log = log_lib.Log(root, start, steps, jax.process_index() == 0, name, beside, trackers)
        watch = None
        if r.config.train.spike.policy != "none":
            losses = store.notes(start).get("losses", ()) if restored else ()
            watch = spikes.Watch(r.config.train.spike, losses)
        best = store.best_metric(), store.best_step()
        member = Member(r, root, store, log, len(runs), bool(name), watch, history, *best)
        # One that was killed after its last step, or when it had stopped, has all but its result.
        member.ended = start == steps or _out_of_patience(r, member.best_step, start)
        members.append(member)
    log = members[0].log
    (logging.info if several else log.say)(
        (f"{len(runs)} members in one program, each of " if several else "")
        + f"{size / 1e6:.1f}M parameters on {jax.device_count()} {jax.devices()[0].device_kind} device(s), "
        + ", ".join(f"{p.stop - p.start:,} steps of {p.train.batch_size} rows" for p in run.phases)
        + (f"; going on from the checkpoint of step {start:,}" if restored else "")
    )

    # --- Loop
    phase: build.Phase | None = None
    window: step_lib.Sums | None = None
    pending: tuple[int, step_lib.Sums] | None = None
    held = start if restored else None  # the newest step that all have saved
    evaluate_all: list[Evaluator] = []
    compiled: set[tuple[int, tuple[int, ...]]] = set()  # the number of the phase, and the shape of its rows

    def params_of(number: int) -> Any:
        return members_lib.member(state.params, number) if several else state.params

    def alive() -> list[tuple[int, Member]]:
        return [(i, member) for i, member in enumerate(members) if member.result is None]

    def finish(number: int, member: Member, evaluator: Evaluator, last: int) -> None:
        nonlocal state
        if start == last:
            member.latest = evaluator(params_of(number)) | evaluator.generated(params_of(number))
        of_best = member.latest
        if run.task:
            if member.best_step in (None, last):
                params = params_of(number)
            else:  # what `load` and `predict` take is what the files say
                if not several:
                    state = None  # there may be no room for both
                params = member.checkpoints.restore_step(member.best_step, abstract[number]).params
                of_best = evaluator(params) | evaluator.generated(params)
            evaluator.write_predictions(member.root / workdir_lib.PREDICTIONS, params)
            if jax.process_index() == 0:  # those of a better one, which was gone back over, may be there
                workdir_lib.write_facts(member.root, run.task.facts_of(of_best))
        elif member.best is not None:
            of_best = {"loss": member.best}
        member.checkpoints.release()
        member.finish(of_best, last)

    window_of_profile = tracing.Window(config.train.profile, roots[0] / workdir_lib.PROFILE)
    with signals.as_stop(stop), contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(window_of_profile))
        for member in members:
            stack.enter_context(contextlib.closing(member.checkpoints))
            stack.enter_context(contextlib.closing(member.log))
        if any(member.ended for member in members):
            evaluate_all = evaluators(runs, len(run.phases) - 1)
            for i, member in alive():
                if member.ended:
                    finish(i, member, evaluate_all[i], start)
        for step, number, batch in _batches(members, start) if alive() else ():
            began, first = time.monotonic(), run.phases[number] is not phase
            if first:
                phase = run.phases[number]
                logging.info("compiling the step; then a line each %d steps", config.train.log_every)
                train_step = step_lib.make_train_step(phase.setup, together)
                evaluate_all = evaluators(runs, number)
            if step == 1 and run.source is not None and not run.task:
                for i, member in alive():  # what training then changes
                    member.log.write(0, "eval", evaluate_all[i](params_of(i)))
            window_of_profile.before(step)
            state, sums = train_step(state, batch)
            window_of_profile.after(step, sums)
            # The step before is read while this one runs, so the device never waits for the host.
            if pending:
                window = _checked(pending, window, members)
            pending = (step, sums)
            program = number, batch["tokens"].shape
            if program not in compiled:  # as when rows of a new length come
                compiled.add(program)
                jax.block_until_ready(sums)
                _pause(members, began)
            log.advance()
            for member in members:
                member.log_skips(step)

            if step % config.train.log_every == 0 or step == steps:
                window, pending = _checked(pending, window, members), None
                for i, member in alive():
                    own = {k: (s[i], c[i]) for k, (s, c) in window.items()} if several else window
                    member.log.write(step, "train", *_rates(run, phase, member.log, step, own))
                window = None

            evaluated = step == steps or (config.train.eval_every and step % config.train.eval_every == 0)
            for member in members:
                member.metric, member.improved = None, False
            if evaluated:
                if pending:
                    window, pending = _checked(pending, window, members), None
                began = time.monotonic()
                for i, member in alive():
                    member.latest = evaluate_all[i](params_of(i))
                    if phase is run.phases[-1]:  # losses over rows of other lengths are no comparison
                        metric = member.latest[run.task.metric if run.task else "loss"]
                        best = member.best
                        better = best is None or (metric > best if mode == "max" else metric < best)
                        member.metric, member.improved = metric, better and math.isfinite(metric)
                        if member.improved:
                            member.best, member.best_step = metric, step
                    member.ended = step == steps or _out_of_patience(run, member.best_step, step)
                    if member.ended:
                        member.latest |= evaluate_all[i].generated(params_of(i))
                    member.log.write(step, "eval", member.latest)
                    member.report(evaluate_all[i].samples())
                _pause(members, began)

            leave = stop.agreed(step)
            due = step % config.checkpoint.every == 0 or step == steps or leave
            if due or any(member.improved or member.ended for _, member in alive()):
                if pending:
                    window, pending = _checked(pending, window, members), None
                began = time.monotonic()
                if several:  # what they go on from is not let go before all have saved something newer
                    for _, member in alive():
                        member.checkpoints.wait()
                        member.checkpoints.held = held
                for i, member in alive():
                    if member.watch and not several:  # where it would go back to, now or once it is told to
                        member.checkpoints.held = step // config.checkpoint.every * config.checkpoint.every
                    if member.improved and run.task and jax.process_index() == 0:
                        workdir_lib.write_facts(member.root, run.task.facts_of(member.latest))
                    if due or member.improved or member.ended:
                        own_state = members_lib.member(state, i) if several else state
                        noted = spikes.notes(step, member.history, member.watch)
                        member.checkpoints.save(step, own_state, member.metric, noted)
                held = step if due else held
                _pause(members, began)
            for i, member in alive():
                if member.ended:
                    finish(i, member, evaluate_all[i], step)
            if not alive():
                break
            if leave:
                for _, member in alive():
                    member.checkpoints.wait()
                log.say(
                    f"stopped by {leave.name} after step {step}: saved; the same command goes on from there"
                )
                sys.exit(128 + leave)
    return [member.result or {} for member in members]


def evaluate(config: ConfigDict, workdir: epath.PathLike) -> dict[str, float]:
    """Evaluates the checkpoint of a workdir that `load` takes, and returns and logs the metrics.

    It is the best one, or the newest where evaluation chose none.

    Raises:
      ConfigError: the workdir holds no run, or another one.
    """
    if config.task.name in suite.SUITES:
        one = next(iter(suite.SUITES[config.task.name].members))
        raise config_lib.ConfigError(
            f'task.name = "{config.task.name}" is many runs: evaluate one of them, as task.name = "{one}" in '
            f"{workdir}/{one}"
        )
    if sweep.is_asked(config):
        raise config_lib.ConfigError(
            f"this config is a search of many runs: evaluate one of them, without the keys of sweep and with "
            f"its own seed and values, in {workdir}/members/N"
        )
    _enable_cache(config)
    root = epath.Path(workdir)
    found = workdir_lib.read_config(root)
    if found is None:
        raise FileNotFoundError(f"{root} holds no run to evaluate: train one there first")
    config, source, teacher = completion.complete(config, found)
    # A task's model may be judged on any rows; a text's vocabulary would be another with other text held out.
    if config.task.name:
        found.data.eval_path, found.task.eval_file = config.data.eval_path, config.task.eval_file
    workdir_lib.check(root, config, found)
    if not workdir_lib.has_saved(root):
        ended = workdir_lib.read_result(root) is not None
        why = (
            'they were dropped, as sweep.keep = "best" does: evaluate the best member'
            if ended
            else "train first"
        )
        raise FileNotFoundError(f"{root} holds no checkpoint to evaluate: {why}")
    run = build.build(config, source, teacher, saved=root)
    folder, mode = root / workdir_lib.CHECKPOINTS, run.task.best_mode if run.task else "min"
    checkpoints = Checkpoints(folder, keep=config.checkpoint.keep, best_mode=mode, saves=False)
    with contextlib.closing(checkpoints):
        abstract = step_lib.abstract_state(run.setup, _sample(run), config.seed)
        step, last, restored = checkpoints.best_step(), checkpoints.latest_step(), None
        if step is not None:
            try:
                restored = step, checkpoints.restore_step(step, abstract)
            except CheckpointError as error:
                logging.warning("%s: the newest one is evaluated in its place", error)
        restored = restored or checkpoints.restore(abstract)
    if restored is None:
        raise FileNotFoundError(f"{root} holds no checkpoint to evaluate: train first")
    step, state = restored
    if run.task:
        run.task.recall(workdir_lib.read_facts(root))
    evaluator = Evaluator(run, run.phase_of(step))
    metrics = evaluator(state.params) | evaluator.generated(state.params)
    if jax.process_index() == 0:
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in metrics.items())
        of_best = "" if step == last else ", the best, which predict and load take,"
        logging.info("eval of step %d%s: %s", step, of_best, shown)
    return metrics


def _sample(run: build.Run) -> dict[str, np.ndarray]:
    """Returns the first batch of the run, which tells the names and shapes of all."""
    train = run.phases[0].train
    return train.batch(0, sharding.local_rows(train.batch_size, run.setup.mesh))


def _restored(
    stores: Sequence[Checkpoints], abstract: Sequence[step_lib.State]
) -> tuple[int, list[step_lib.State]] | None:
    """Returns the newest step that all have whole, and its states; None where they share none."""
    if len(stores) == 1:
        found = stores[0].restore(abstract[0])
        return found and (found[0], [found[1]])
    shared = set.intersection(*(store.steps() for store in stores))
    while shared:
        both = [store.restore(own, shared) for store, own in zip(stores, abstract, strict=True)]
        oldest = min(step for step, _ in both)
        if all(step == oldest for step, _ in both):
            return oldest, [state for _, state in both]
        shared = {step for step in shared if step <= oldest}  # a newer one of another is damaged
    return None


def _batches(members: Sequence[Member], start: int) -> Iterator[tuple[int, int, Any]]:
    """Yields step, number of the phase and batch of the steps after `start`.

    A batch is on its way before it is asked for. That of several runs is (K, B, ...), one of each seed.
    """
    runs = [member.run for member in members]
    skips = spikes.pairs(members[0].history)
    for number, phase in enumerate(runs[0].phases):
        if start >= phase.stop:
            continue
        mesh, size, data = phase.setup.mesh, phase.train.batch_size, runs[0].config.data
        first = max(start, phase.start)
        examples = phase.train if len(runs) == 1 else members_lib.Stacked(runs, number)
        own = [pair for pair in skips if phase.start <= pair[0] < phase.stop]
        if own:
            examples = spikes.Skipping(examples, phase.start, own)
        made = pipeline.dataset(
            examples,
            first - phase.start,
            phase.stop - phase.start,
            sharding.local_rows(size, mesh),
            data.workers,
            data.prefetch,
        )
        ahead = None
        for step, batch in enumerate(_timed(made, members), first + 1):
            if len(runs) == 1:
                placed = sharding.to_devices(batch, size, mesh)
            else:
                placed = jax.device_put(batch, sharding.replicated(mesh))
            if ahead is not None:
                yield ahead
            ahead = step, number, placed
        if ahead is not None:
            yield ahead


def _timed(made: Iterator[Any], members: Sequence[Member]) -> Iterator[Any]:
    """Yields what `made` does, and has the logs count the time for which that took the loop's own.

    The device may be busy with the step before meanwhile: no more than this can be lost.
    """
    began = time.monotonic()
    for batch in made:
        for member in members:
            member.log.wait(time.monotonic() - began)
        yield batch
        began = time.monotonic()


def _checked(
    pending: tuple[int, step_lib.Sums], window: step_lib.Sums | None, members: Sequence[Member]
) -> step_lib.Sums:
    """Returns the window with a step's sums added; members of which they are too bad have failed.

    Raises:
      GoBack: a run is to go back instead.
    """
    step, sums = pending
    added = step_lib.add(None, sums)
    columns = (np.atleast_1d(added[name][0]).tolist() for name in ("loss", "grad_norm"))
    for member, loss, grad_norm in zip(members, *columns, strict=True):
        if member.result is None:
            member.judge(step, loss, grad_norm)
    return added if window is None else step_lib.add(window, added)


def _pause(members: Sequence[Member], began: float) -> None:
    for member in members:
        member.log.pause(time.monotonic() - began)


def _rates(
    run: build.Run, phase: build.Phase, log: log_lib.Log, step: int, window: step_lib.Sums
) -> tuple[dict[str, float], float]:
    """Returns a window's metrics with the rates, and the estimated seconds to the end."""
    means = step_lib.means(window)
    taken, waited = log.step_seconds(step)
    predictions = phase.setup.predictions
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
        "data_wait": waited,
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


def _enable_cache(config: ConfigDict) -> None:
    """Keeps compiled programs between processes, so that a second start trains at once."""
    chosen = config.train.compilation_cache
    folder = str(shards.cache_root(config.data.cache_dir) / "compiled") if chosen == "default" else chosen
    jax.config.update("jax_compilation_cache_dir", folder or None)
