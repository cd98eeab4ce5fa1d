"""Draws charts as SVG; their colors are in the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 640.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 12.0, 10.0, 26.0

Point = tuple[float, float]


def ceiling(value: float) -> float:
    """Return a round number that is not less than a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def bar(value: float | None, largest: float) -> Markup:
    """Draw a horizontal bar beside a number, hidden from screen readers.

    :param largest: the value of a bar of full length.
    """
    share = 100.0 * min(max(float(value or 0) / largest, 0.0), 1.0) if largest else 0.0
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"/><rect class="fill" width="{}" height="10"/></svg>'
    ).format(f"{share:.2f}")


def trend(values: Sequence[float]) -> Markup:
    """Draw a small line beside a number, hidden from screen readers.

    :param values: the values, from left to right.
    """
    top, last = max(values, default=0.0) or 1.0, max(len(values) - 1, 1)
    drawn = " ".join(f"{100 * index / last:.1f},{24 - 22 * value / top:.1f}" for index, value in enumerate(values))
    return Markup(
        '<svg class="trend" viewBox="0 0 100 26" preserveAspectRatio="none" aria-hidden="true">'
        '<polyline class="mine" points="{}"/></svg>'
    ).format(drawn)


def days(values: Sequence[tuple[str, bool]], *, title: str) -> Markup:
    """Draw a strip of days.

    :param values: of each day its label and whether it is complete.
    :param title: what a screen reader says of it.
    """
    parts = [
        Markup('<rect class="{}" x="{}" width="9" height="14"><title>{}: {}</title></rect>').format(
            "fill" if is_loaded else "unknown", 11 * number, label, "loaded" if is_loaded else "missing"
        )
        for number, (label, is_loaded) in enumerate(values)
    ]
    return Markup('<svg class="days" viewBox="0 0 {} 14" role="img" aria-label="{}">{}</svg>').format(
        11 * max(len(values), 60), title, Markup("").join(parts)
    )


def lines(series: Sequence[tuple[str, Sequence[Point]]], *, title: str, unit: str = "") -> Markup:
    """Draw a chart of lines.

    :param series: of each line its class in the style sheet and its points, from left to right.
    :param title: what a screen reader says of it; the numbers belong into a table beside it.
    :param unit: the unit of the vertical axis.
    """
    points = [point for _, line in series for point in line]
    right = max((x for x, _ in points), default=0.0) or 1.0
    top = ceiling(max((y for _, y in points), default=0.0))
    parts = [_axis(top, unit), *(_tick(x, right) for x in _ticks(right))]
    for name, line in series:
        drawn = " ".join(f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in line)
        parts.append(Markup('<polyline class="{}" points="{}"/>').format(name, drawn))
        if len(line) == 1:
            x, y = line[0]
            dot = Markup('<circle class="{}" cx="{}" cy="{}" r="3"/>')
            parts.append(dot.format(name, f"{_x(x, right):.1f}", f"{_y(y, top):.1f}"))
    return _svg(title, parts)


def bars(values: Sequence[tuple[str, float | None]], *, title: str, unit: str = "") -> Markup:
    """Draw a chart of vertical bars.

    :param values: of each bar its label and its height; ``None`` where nothing is known.
    :param title: what a screen reader says of it; the numbers belong into a table beside it.
    :param unit: the unit of the vertical axis.
    """
    top = ceiling(max((value or 0 for _, value in values), default=0.0))
    width = (WIDTH - _LEFT - _RIGHT) / max(len(values), 1)
    parts = [_axis(top, unit)]
    every = max(1, math.ceil(len(values) / 6))
    for number, (label, value) in enumerate(values):
        x = _LEFT + number * width
        y = _y(top if value is None else value, top)
        parts.append(
            Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>').format(
                "unknown" if value is None else "fill",
                f"{x + width * 0.1:.1f}",
                f"{y:.1f}",
                f"{width * 0.8:.1f}",
                f"{HEIGHT - _BOTTOM - y:.1f}",
                label,
                "missing" if value is None else f"{value:,.0f}",
            )
        )
        if number % every == 0:
            parts.append(Markup('<text x="{}" y="{}">{}</text>').format(f"{x:.1f}", HEIGHT - 8, label))
    return _svg(title, parts)


def _svg(title: str, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        f"{WIDTH:.0f}", f"{HEIGHT:.0f}", title, Markup("").join(parts)
    )


def _x(value: float, right: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / right


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _axis(top: float, unit: str) -> Markup:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _y(top * share, top)
        grid = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>')
        parts.append(grid.format(_LEFT, WIDTH - _RIGHT, f"{y:.1f}", f"{y:.1f}"))
        label = Markup('<text class="end" x="{}" y="{}">{}</text>')
        parts.append(label.format(_LEFT - 6, f"{y + 4:.1f}", f"{top * share:,.10g}{unit}"))
    return Markup("").join(parts)


def _ticks(right: float) -> list[float]:
    step = float(max(1, math.ceil(right / 8)))
    return [step * number for number in range(int(right // step) + 1)]


def _tick(x: float, right: float) -> Markup:
    return Markup('<text class="middle" x="{}" y="{}">{}</text>').format(f"{_x(x, right):.1f}", HEIGHT - 8, f"{x:g}")
