"""What the members of a search reach, by setting, and which is best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SETTING = ("learning_rate", "batch_size", "epochs")
_NO_METRICS = ("value", "seconds", "steps", "data_wait")


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a search's result.

    The best setting is the one of the best mean over its seeds, one with a failed member only where all have
    one; the best member has the best value of all. Both are chosen on the data that they are judged by, so
    that their values are better than others would be on new data, the more so the more were tried.

    Args:
      rows: of each member `member`, `seed`, `learning_rate`, `batch_size`, `epochs` and `result`.

    Returns:
      `task`, `metric`; `value`, `std` (None of one seed) and the mean of every other metric of the best
      setting; `best`, the best member; `settings`, with `value`, `std`, `seeds` and `failed`; `members`, with
      `value` (None where it failed); `steps`, and `seconds` of all.

    Raises:
      ValueError: all members have failed.
    """
    done = [row for row in rows if "failed" not in row["result"]]
    if not done:
        raise ValueError(f"every member of the search has failed; the first: {rows[0]['result']['failed']}")
    metric = done[0]["result"]["metric"]
    sign = -1.0 if metric == "loss" else 1.0  # the one metric of which less is better

    def rank(value: float | None) -> float:
        return -math.inf if value is None or math.isnan(value) else sign * value

    settings = []
    for values in dict.fromkeys(tuple(row[name] for name in SETTING) for row in rows):
        own = [row for row in rows if tuple(row[name] for name in SETTING) == values]
        reached = [row["result"]["value"] for row in own if "failed" not in row["result"]]
        settings.append({
            **dict(zip(SETTING, values, strict=True)),
            "value": _mean(reached),
            "std": None if len(reached) < 2 or _mean(reached) is None else statistics.stdev(reached),
            "seeds": len(own),
            "failed": len(own) - len(reached),
        })  # fmt: skip
    chosen = max(settings, key=lambda s: (not s["failed"], rank(s["value"])))
    best = max(done, key=lambda row: rank(row["result"]["value"]))
    of_chosen = [row["result"] for row in done if all(row[name] == chosen[name] for name in SETTING)]
    return {
        "task": done[0]["result"]["task"],
        "metric": metric,
        "value": chosen["value"],
        "std": chosen["std"],
        **_means(of_chosen),
        "best": _told(best),
        "settings": settings,
        "members": [_told(row) for row in rows],
        "steps": of_chosen[0]["steps"],
        "seconds": round(sum(row["result"]["seconds"] for row in rows), 1),
    }


def table(summary: Mapping[str, Any]) -> list[str]:
    """Returns the lines of a table: members, settings with mean and deviation, and the best of both."""
    metric = summary["metric"].replace("_", " ")
    columns = f"{'learning rate':>14}{'batch':>7}{'epochs':>8}"
    lines = [f"{'member':>6}{'seed':>6}{columns}{metric:>14}"]
    for row in summary["members"]:
        end = "  failed: " + row["failed"].partition(":")[0] if "failed" in row else ""
        lines.append(f"{row['member']:>6}{row['seed']:>6}{_setting(row)}{_shown(row['value']):>14}{end}")
    lines.append(f"{'setting':<12}{columns}{'mean ' + metric:>14}{'deviation':>11}{'seeds':>7}")
    for row in summary["settings"]:
        end = f"  {row['failed']} failed" if row["failed"] else ""
        values = f"{_shown(row['value']):>14}{_shown(row['std']):>11}{row['seeds']:>7}"
        lines.append(f"{'':<12}{_setting(row)}{values}{end}")
    best, tried = summary["best"], len(summary["settings"])
    spread = "" if summary["std"] is None else f" +- {summary['std']:.4f}"
    chosen = f", the best of {tried} settings and chosen on the same data" if tried > 1 else ""
    lines.append(f"{metric} {_shown(summary['value'])}{spread}{chosen}")
    lines.append(
        f"best member: {best['member']}, seed {best['seed']}, learning rate {best['learning_rate']:g}, batch "
        f"{best['batch_size']}, epochs {best['epochs']:g}: {metric} {_shown(best['value'])}; the search's "
        "directory opens its model"
    )
    return lines


def _setting(row: Mapping[str, Any]) -> str:
    epochs = f"{row['epochs']:g}" if row["epochs"] else "-"
    return f"{row['learning_rate']:>14g}{row['batch_size']:>7}{epochs:>8}"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is said of one member."""
    result = row["result"]
    failed = {"failed": result["failed"]} if "failed" in result else {}
    value = None if failed else result["value"]
    own = {name: row[name] for name in ("member", "seed", *SETTING)}
    return {**own, "value": value, "seconds": result["seconds"], **failed}


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None of nothing, or where one is no number (None in a result that is read again)."""
    if not values or any(value is None or math.isnan(value) for value in values):
        return None
    return statistics.mean(values)


def _means(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the mean over results of every metric beside `value`."""
    names = [name for name in results[0] if name not in _NO_METRICS]
    numbers = {name: [result.get(name) for result in results] for name in names}
    return {n: statistics.mean(x) for n, x in numbers.items() if all(isinstance(v, float) for v in x)}
