"""The train step's speed, and PyTorch's at the same shapes in the same run."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
from absl import logging
from ml_collections import ConfigDict

from bert_jax import benchmarks, build, completion, cores, flops, sharding
from bert_jax import step as step_lib
from bert_jax.benchmarks import peer as peer_lib
from bert_jax.flags import UsageError

_BATCHES = 8  # different batches that the steps go through


def measure(
    config: ConfigDict, *, rounds: int, steps: int, peers: tuple[str, ...] = (), python: str = ""
) -> dict[str, Any]:
    """Measures the first phase's train step, and the peers', in turns.

    Args:
      config: of a pretraining.
      rounds: how often each is asked.
      steps: updates each time.
      peers: of "stock" (transformers as it is: logits at every place), "gathered" (logits at the masked
        places only) and the two with "_compiled" behind (torch.compile).
      python: the peers' interpreter.

    Returns:
      JSON values: `tokens_per_second` (places of the rows, padding too: both sides compute them),
      `real_tokens_per_second` (without padding), `step_seconds`, `model_flops`, `peak_flops` and
      `peak_share`, medians over the rounds; with peers `peers`, by name, and `ratio_<peer>` with its
      `_spread`.

    Raises:
      UsageError: the peer does not compute the config's model or objectives.
    """
    run = build.build(*completion.complete(config, None))
    phase, spec = run.phases[0], run.setup.model.spec
    names = {objective.name for objective in phase.setup.objectives}
    if peers and (run.task or not {"mlm"} <= names <= {"mlm", "nsp"}):
        raise UsageError(
            f"--peer=transformers trains with objective.mlm, alone or with objective.nsp, and the config has "
            f"{', '.join(sorted(names)) or config.task.name}"
        )
    size = phase.train.batch_size
    rows = sharding.local_rows(size, phase.setup.mesh)
    batches = [phase.train.batch(i, rows) for i in range(_BATCHES)]
    contenders: dict[str, Callable[[], float]] = {"ours": _ours(run, phase, batches, steps)}
    with contextlib.ExitStack() as stack:
        versions = {}
        if peers:
            peer = stack.enter_context(peer_lib.Peer(python))
            versions = peer.versions
            given = peer.give(batches)
            for name in peers:
                contenders[name] = _theirs(peer, name, config, phase, given, steps)
        peaks: list[float] = []

        def peak() -> float:
            flops.peak.cache_clear()  # as fast as the machine is now
            peaks.append(flops.peak())
            return 0.0

        found = benchmarks.in_turns({**contenders, "peak": peak}, rounds)
    seconds = [x / steps for x in found["ours"]]
    length = batches[0]["tokens"].shape[-1]
    real = sum(int((batch["segment_ids"] > 0).sum()) for batch in batches) / len(batches)
    capacity = phase.setup.predictions
    work = flops.train_step(spec, size, length, capacity)
    shares = [work / s / p for s, p in zip(seconds, peaks, strict=True)]
    result = {
        "what": "train",
        "device": f"{jax.device_count()} {jax.devices()[0].device_kind}",
        "batch_size": size,
        "seq_len": length,
        "predictions": capacity,
        "rounds": rounds,
        "steps": steps,
        "step_seconds": statistics.median(seconds),
        "tokens_per_second": size * length / statistics.median(seconds),
        "real_tokens_per_second": real * size / len(rows) / statistics.median(seconds),
        "model_flops": work,
        "peak_flops": statistics.median(peaks),
        "peak_share": statistics.median(shares),
        "peak_share_spread": [min(shares), max(shares)],
    }
    if peers:
        result["peers"] = {"versions": versions}
    for name in peers:
        ratio = benchmarks.ratios(found["ours"], found[name])
        median = statistics.median(found[name]) / steps
        result["peers"][name] = {"step_seconds": median, "tokens_per_second": size * length / median}
        result[f"ratio_{name}"] = ratio["median"]
        result[f"ratio_{name}_spread"] = [ratio["lowest"], ratio["highest"]]
    return result


def _ours(run: Any, phase: Any, batches: list[Any], steps: int) -> Callable[[], float]:
    """Returns what does `steps` updates and says how long they took; it is compiled and warm."""
    size, mesh = phase.train.batch_size, phase.setup.mesh
    state = run.initial_state(batches[0])
    train_step = step_lib.make_train_step(phase.setup)
    cycle = itertools.cycle(batches)

    def measure(count: int = steps) -> float:
        nonlocal state
        start = time.perf_counter()
        for _ in range(count):
            state, sums = train_step(state, sharding.to_devices(next(cycle), size, mesh))
        jax.block_until_ready((state, sums))
        return time.perf_counter() - start

    logging.info("compiled in %.1f s", measure(1))
    measure(1)
    return measure


def _theirs(
    peer: peer_lib.Peer, name: str, config: ConfigDict, phase: Any, batches: str, steps: int
) -> Callable[[], float]:
    """Returns what lets the peer do `steps` updates and says how long they took; it is warm."""
    kind, _, compiled = name.partition("_")
    o = config.optimizer
    peer.ask(
        "load",
        name=name,
        kind=kind,
        compiled=bool(compiled),
        config=peer_lib.bert_config(phase.setup.model.spec),
        batches=batches,
        rates=[o.learning_rate],
        optimizer={key: o[key] for key in ("b1", "b2", "eps", "weight_decay", "clip")},
        threads=len(cores.available()),
    )
    warm = peer.ask("steps", name=name, count=2)
    logging.info("%s is warm after %.1f s", name, warm["seconds"])
    return lambda: peer.ask("steps", name=name, count=steps)["seconds"]
