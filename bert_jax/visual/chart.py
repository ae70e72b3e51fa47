"""Curves as SVG: a page with them needs no script and no plotting library where the run is."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 300, 72, 42, 14, 12
_MOST = 600  # points of a curve that are drawn
_LARGEST = 1e150  # of what is drawn: its square is a float still
COLOURS = 8  # curves that the page's style can tell apart; then they begin again


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line of a chart.

    Attributes:
      name: of the legend.
      points: (x, y), x ascending; None for y leaves a gap.
      colour: number of a colour, from 0.
      faint: drawn thin, as what stands behind.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    colour: int = 0
    faint: bool = False


def draw(
    curves: Sequence[Curve], levels: Sequence[tuple[str, float]] = (), x_name: str = "step", log: bool = False
) -> str:
    """Returns an SVG of curves, with a dashed line at each level; "" where there is nothing to draw.

    Args:
      curves: the curves.
      levels: (name, y), baselines.
      x_name: what stands under the chart.
      log: y by its logarithm; what is not above 0 is left out.
    """
    curves = [dataclasses.replace(curve, points=_thinned(curve.points, log)) for curve in curves]
    points = [point for curve in curves for point in curve.points if point[1] is not None]
    levels = [(name, y) for name, y in levels if _has_place(y, log)]
    if not points:
        return ""
    ys = [y for _, y in points] + [y for _, y in levels]
    right = max(x for x, _ in points)
    left = min(0.0, min(x for x, _ in points))
    low, high = min(ys), max(ys)
    y_ticks = _decades(low, high) if log else _ticks(low, high)
    low, high = min(low, y_ticks[0]), max(high, y_ticks[-1])
    if log:
        low, high = math.log10(low), math.log10(high)
    if _is_flat(low, high):
        room = max(0.5, 0.001 * abs(high))
        low, high = low - room, high + room
    right = right if right > left else left + 1

    def x_of(x: float) -> float:
        return _LEFT + (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)

    def y_of(y: float) -> float:
        y = math.log10(y) if log else y
        return _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" class="chart">']
    for y in y_ticks:
        parts.append(f'<path class="grid" d="M{_LEFT} {y_of(y):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{short(y)}</text>')
    for x in _ticks(left, right):
        if left <= x <= right:
            parts.append(f'<text x="{x_of(x):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{short(x)}</text>')
    parts.append(
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 5}" text-anchor="end">{html.escape(x_name)}</text>'
    )
    for name, y in levels:
        parts.append(
            f'<path class="level" d="M{_LEFT} {y_of(y):.1f}H{_WIDTH - _RIGHT}"/>'
            f'<text class="level-name" x="{_WIDTH - _RIGHT - 4}" y="{y_of(y) - 4:.1f}" text-anchor="end">'
            f"{html.escape(name)} {short(y)}</text>"
        )
    for curve in curves:
        kind = f"c{curve.colour % COLOURS}" + (" faint" if curve.faint else "")
        for run in _runs(curve.points):
            path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in run)
            parts.append(f'<path class="curve {kind}" d="M{path}"/>')
        if not curve.faint:
            for x, y in curve.points:
                if y is not None:
                    said = html.escape(f"{curve.name}: {short(y)} at {x_name} {short(x)}")
                    parts.append(
                        f'<circle class="{kind}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3">'
                        f"<title>{said}</title></circle>"
                    )
    return "".join([*parts, "</svg>"])


def short(value: float) -> str:
    """Returns a number as an axis names it: 12k, 3.4M, 0.25, 1e-05."""
    size = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.4g}{name}"
    return f"{value:.4g}"


def _thinned(points: Sequence[tuple[float, float | None]], log: bool) -> list[tuple[float, float | None]]:
    """Returns at most about `_MOST` of the points, the last one among them, and no y that has no place."""
    every = max(1, len(points) // _MOST)
    kept = [p for i, p in enumerate(points) if i % every == 0 or i == len(points) - 1]

    return [(x, y if y is not None and _has_place(y, log) else None) for x, y in kept]


def _has_place(y: float, log: bool) -> bool:
    return abs(y) < _LARGEST and (y > 1 / _LARGEST or not log)  # NaN has none


def _is_flat(low: float, high: float) -> bool:
    """Whether no tick fits between two values."""
    return high - low <= 1e-12 * max(abs(low), abs(high), 1 / _LARGEST)


def _runs(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Returns the parts of a curve between its gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if len(run) > 1]


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Returns round numbers from just below the lowest value to just above the highest."""
    if _is_flat(low, high):
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**i for i in range(first, last + 1)]
