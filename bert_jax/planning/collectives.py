"""What a compiled program says to other devices: read from its text."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Mapping

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\([^{]*)?.*\{$")
_COLLECTIVE = re.compile(rf"= (.+?) ({'|'.join(_KINDS)})(-start)?\(")
_CALLS = re.compile(r"(?:body|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count"?[:=]\s*\{\s*"?n"?\s*[:=]\s*"?(\d+)')
# Where a compiler does not tell it: what the counter, from 0, is compared with.
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_LIMIT = re.compile(r"[su]32\[\](?:\{[^}]*\})? constant\((\d+)\)")
_ARRAY = re.compile(r"(pred|[a-z]\w*?)(\d+)?\[([\d,]*)\]")
# Groups of devices, in each of the forms that the compilers write: {{0,1},{2,3}}, [2,4]<=[8] (2 of 4), and
# mesh['data'=4,'fsdp'=2] {'data'}.
_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}")


def of(text: str, devices: int) -> dict[str, dict[str, float]]:
    """Returns, by kind, the `count` of collectives that one step runs, and the `bytes` that a device moves.

    A loop's body counts as often as it runs. Of n bytes, a ring of k devices moves 2n(k-1)/k for an
    all-reduce, and n(k-1)/k for the other kinds, n being the larger of what goes in and comes out.

    Args:
      text: of a compiled program (HLO).
      devices: how many there are; what names no group is among all of them.
    """
    bodies, entry = _computations(text)
    times: dict[str, float] = collections.Counter()

    def run(name: str, number: float) -> None:
        times[name] += number
        for line in bodies.get(name, ()):
            inside = set(_CALLS.findall(line))
            for branches in _BRANCHES.findall(line):
                inside |= {part.strip().lstrip("%") for part in branches.split(",")}
            trips = _trips(line, bodies)
            for called in inside:
                run(called, number * (trips if f"body=%{called}" in line else 1))

    run(entry, 1)
    found: dict[str, dict[str, float]] = {}
    for name, number in times.items():
        for line in bodies.get(name, ()):
            match = _COLLECTIVE.search(line)
            if not match:
                continue
            kind, moved = match[2], _moved(match[2], match[1], line, devices)
            entry_of = found.setdefault(kind, {"count": 0, "bytes": 0.0})
            entry_of["count"] += number
            entry_of["bytes"] += number * moved
    return found


def _trips(line: str, bodies: Mapping[str, list[str]]) -> int:
    """Returns how often a loop runs, as its line or its condition tells; 1 where neither does."""
    if match := _TRIPS.search(line):
        return int(match[1])
    condition = _CONDITION.search(line)
    lines = bodies.get(condition[1], []) if condition else []
    limits = [int(match[1]) for part in lines for match in _LIMIT.finditer(part)]
    return limits[0] if len(limits) == 1 and any("direction=LT" in part for part in lines) else 1


def _computations(text: str) -> tuple[Mapping[str, list[str]], str]:
    bodies: dict[str, list[str]] = {}
    name = entry = ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            match = _HEAD.match(line)
            name = match[2] if match else ""
            bodies[name] = []
            entry = name if match and match[1] else entry
        elif line.startswith("}"):
            name = ""
        elif name:
            bodies[name].append(line)
    return bodies, entry


def _moved(kind: str, result: str, line: str, devices: int) -> float:
    total = float(sum(_size(match) for match in _ARRAY.finditer(result)))
    k = _group_size(line, devices)
    # A start's result repeats its operands beside what comes out, but for that of an all-reduce.
    if f"{kind}-start(" in line and kind != "all-reduce":
        total *= {"all-gather": k / (k + 1), "reduce-scatter": 1 / (k + 1)}.get(kind, 1 / 2)
    if kind == "reduce-scatter":
        total *= k  # what goes in
    if k <= 1:
        return 0.0
    return total * (2 if kind == "all-reduce" else 1) * (k - 1) / k


def _group_size(line: str, devices: int) -> int:
    """Returns k, how many devices a collective is among."""
    if match := _LISTED.search(line):
        return len(match[1].split(","))
    if match := _COUNTED.search(line):
        return int(match[1])
    if match := _NAMED.search(line):
        sizes = dict(part.replace("'", "").split("=") for part in match[1].split(","))
        return math.prod(int(sizes[name.strip().strip("'")]) for name in match[2].split(","))
    return devices


def _size(match: re.Match[str]) -> int:
    count = 1
    for size in filter(None, match[3].split(",")):
        count *= int(size)
    bits = 8 if match[1] == "pred" else int(match[2] or 0)
    return count * bits // 8
