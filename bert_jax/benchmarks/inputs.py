"""The speed of the input pipeline alone: what a step could be fed with."""

from __future__ import annotations

import statistics
import time
from typing import Any

from ml_collections import ConfigDict

from bert_jax import benchmarks, build, completion, cores, sharding
from bert_jax.data import pipeline


def measure(config: ConfigDict, *, rounds: int, steps: int) -> dict[str, Any]:
    """Makes the first phase's batches as training does, and uses none of them.

    Args:
      config: of a pretraining or a task.
      rounds: how often.
      steps: batches each time.

    Returns:
      JSON values: `tokens_per_second` (places of the rows), `examples_per_second`, and the processor's time a
      token, `core_seconds_per_token`, of all threads; medians over the rounds.
    """
    run = build.build(*completion.complete(config, None))
    train, data = run.phases[0].train, run.config.data
    rows = sharding.local_rows(train.batch_size, run.setup.mesh)
    places: list[int] = []
    processor: list[float] = []
    start = 0

    def made() -> float:
        nonlocal start
        began, used, count = time.perf_counter(), time.process_time(), 0
        for batch in pipeline.dataset(train, start, start + steps, rows, data.workers, data.prefetch):
            count += batch["tokens"].size
        start += steps  # other batches each time
        places.append(count)
        processor.append((time.process_time() - used) / count)
        return time.perf_counter() - began

    seconds = benchmarks.in_turns({"input": made}, rounds)["input"]
    return {
        "what": "input",
        "cores": len(cores.available()),
        "batch_size": train.batch_size,
        "rounds": rounds,
        "steps": steps,
        "tokens_per_second": statistics.median(n / s for n, s in zip(places, seconds, strict=True)),
        "examples_per_second": statistics.median(len(rows) * steps / s for s in seconds),
        "core_seconds_per_token": statistics.median(processor),
    }
