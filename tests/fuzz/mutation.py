"""Bytes that are nearly good: JSON with other values in some places, bytes cut, changed or copied."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "a",
    "..", "../x", "/etc/passwd", "\0", "\ud800", "9" * 40, [], [[]], {}, {"a": 1}, ["a"], [None], "x" * 1000,
)  # fmt: skip
_BITS = (b"\0", b"\xff", b"\n", b"\r\n", b"\t", b"\xef\xbb\xbf", b'"', b"{", b"[" * 2000, b"]", b"|||", b" ",
         b"\x80\x04N.", b"9" * 5000, b"1e999", b"\\ud800", b"-DOCSTART-", b"\xed\xa0\x80")  # fmt: skip


def mutated(data: bytes, draw: random.Random, most: int = 1 << 16) -> bytes:
    """Returns bytes that differ from some in a few places.

    Args:
      data: good ones.
      draw: the source of chance.
      most: how many there are at most.
    """
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        changed = _json(data, draw) if draw.random() < 0.5 else None
        data = _bytes(data, draw) if changed is None else changed
    return data[:most]


def everywhere(data: bytes, values: tuple[Any, ...] = _VALUES) -> Iterator[bytes]:
    """Yields JSON, or JSON lines, with each of some values in each of its first places in turn."""
    lines = _lines(data)
    for number, line in enumerate(lines[:3]):
        try:
            whole = [json.loads(line)]
        except ValueError:
            continue
        for part, key in [*_places(whole)][:400]:
            good = part[key]
            for part[key] in values:
                yield b"\n".join([*lines[:number], json.dumps(whole[0]).encode(), *lines[number + 1 :]])
            part[key] = good


def _lines(data: bytes) -> list[bytes]:
    """Returns JSON lines one by one; JSON of several lines is one."""
    return data.split(b"\n") if data.count(b"\n") > 1 and not data.startswith(b"{\n") else [data]


def _places(part: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each object or list with each of its keys, of a list its first three."""
    for key in part if isinstance(part, dict) else range(min(3, len(part))):
        yield part, key
        if isinstance(part[key], dict | list):
            yield from _places(part[key])


def _json(data: bytes, draw: random.Random) -> bytes | None:
    """Returns JSON, or JSON lines, with another value somewhere; None where it is none."""
    lines = _lines(data)
    number = draw.randrange(len(lines))
    try:
        whole = [json.loads(lines[number])]
    except (ValueError, RecursionError):
        return None
    part, key = whole, 0
    while isinstance(part[key], dict | list) and part[key] and draw.random() < 0.8:
        part = part[key]
        key = draw.choice(list(part)) if isinstance(part, dict) else draw.randrange(len(part))
    kind = draw.randrange(4)
    if kind == 0 and part is not whole:
        del part[key]
    elif kind == 1 and isinstance(part, dict):
        part[draw.choice(["a", "", "\0", "idx", "label", "type", *map(str, part)])] = draw.choice(_VALUES)
    else:
        part[key] = draw.choice(_VALUES)
    lines[number] = json.dumps(whole[0]).encode() if whole else b""
    return b"\n".join(lines)


def _bytes(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    to = min(len(data), at + draw.choice((0, 1, 1, 2, 8, 64)))
    kind = draw.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[to:]
    if kind == 2:
        return data[:to] + data[at:]
    if kind == 3 and at < len(data):
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 4:
        return data[:at] + draw.choice(_BITS) + data[to:]
    return data[:at] + draw.randbytes(draw.choice((1, 2, 4, 8))) + data[to:]
