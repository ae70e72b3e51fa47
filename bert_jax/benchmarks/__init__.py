"""Speed, measured as ratios: what is compared runs in turns within one run, since machines are noisy.

`bert_jax.bench` is the command. PyTorch, where it is compared with, runs in a process and an environment of
its own (`transformers_worker`, driven by `peer`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence


def in_turns(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Returns what each contender measured in each round; every round asks all of them, one by one.

    Args:
      contenders: by name, what does a fixed piece of work and returns the seconds that it took.
      rounds: how often.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            found[name].append(measure())
    return found


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Returns how many times as fast ours was: the median of the rounds' ratios, the lowest, the highest."""
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(each), "lowest": min(each), "highest": max(each)}
