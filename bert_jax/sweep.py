"""Several runs of one config with other seeds, and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import jax
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir as workdir_lib


def run(
    config: ConfigDict, workdir: epath.PathLike, train: Callable[[ConfigDict, epath.Path], dict[str, Any]]
) -> dict[str, Any]:
    """Trains a member for each seed and returns the mean of their values beside each.

    A member that is complete is not trained again, and one that was cut short goes on.

    Args:
      config: `sweep.seeds` runs, with seeds `seed`, `seed` + 1, ...
      workdir: members live in members/N/ of it.
      train: trains one.

    Returns:
      what result.json says: the first member's task and metric, `value` the mean, `std` the sample
      deviation, the mean of every other metric, and `members` with each one's value and seed.
    """
    root = epath.Path(workdir)
    workdir_lib.check(root, config, workdir_lib.read_config(root))
    results = []
    for number in range(config.sweep.seeds):
        member = config.copy_and_resolve_references()
        member.sweep.seeds = 1
        member.seed = config.seed + number
        logging.info("member %d of %d, seed %d", number + 1, config.sweep.seeds, member.seed)
        results.append((member.seed, train(member, root / workdir_lib.MEMBERS / str(number))))
        if number == 0 and jax.process_index() == 0:
            workdir_lib.claim(root, config)
    metric = results[0][1]["metric"]
    values = [result["value"] for _, result in results]
    members = [
        {"seed": seed, "value": result["value"], "seconds": result["seconds"]} for seed, result in results
    ]
    summary = {
        "task": results[0][1]["task"],
        "metric": metric,
        "value": statistics.mean(values),
        **_means([result for _, result in results]),
        "std": statistics.stdev(values),
        "members": members,
        "steps": results[0][1]["steps"],
        "seconds": round(sum(result["seconds"] for _, result in results), 1),
    }
    if jax.process_index() == 0:
        for each in members:
            logging.info("seed %d: %s %.4f in %.0f s", each["seed"], metric, each["value"], each["seconds"])
        logging.info("%s %.4f +- %.4f over %d seeds", metric, summary["value"], summary["std"], len(values))
        workdir_lib.write_result(root, summary)
    return summary


def _means(results: list[dict[str, Any]]) -> dict[str, float]:
    """Returns the mean over the members of every metric beside `value`."""
    others = ("value", "seconds", "steps")
    names = [name for name in results[0] if name not in others]
    values = {name: [result.get(name) for result in results] for name in names}
    # A metric that was no number is None in a result that is read again.
    numbers = {name: them for name, them in values.items() if all(isinstance(x, float) for x in them)}
    return {name: statistics.mean(them) for name, them in numbers.items()}
