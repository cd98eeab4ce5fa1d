"""Draws charts as SVG; their colors and the sizes of their text are in the style sheet."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 640.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 14.0, 12.0, 30.0
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_TOP, _SMALL_BOTTOM = 180.0, 84.0, 6.0, 18.0

Point = tuple[float, float]


def ceiling(value: float) -> float:
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    rounded = (step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10))
    # A value that is one of these numbers is its own ceiling, although floating point may put it a little above.
    return next(number for number in rounded if number >= value * (1 - 1e-9))


def short(value: float) -> str:
    """Return a number in few characters: 1.5 k for 1,500."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def bar(value: float | None, largest: float) -> Markup:
    """Draw a horizontal bar beside a number, hidden from screen readers; the largest value fills it."""
    share = 100.0 * min(max(float(value or 0) / largest, 0.0), 1.0) if largest else 0.0
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"/><rect class="fill" width="{}" height="10"/></svg>'
    ).format(f"{share:.2f}")


def trend(values: Sequence[float]) -> Markup:
    """Draw a small line beside a number, hidden from screen readers."""
    top, last = max(values, default=0.0) or 1.0, max(len(values) - 1, 1)
    drawn = " ".join(f"{100 * index / last:.1f},{24 - 22 * value / top:.1f}" for index, value in enumerate(values))
    return Markup(
        '<svg class="trend" viewBox="0 0 100 26" preserveAspectRatio="none" aria-hidden="true">'
        '<polyline class="line-1" points="{}"/></svg>'
    ).format(drawn)


def lines(series: Sequence[tuple[str, Sequence[Point]]], *, title: str, unit: str = "") -> Markup:
    """Draw a chart of lines.

    :param series: of each line its class in the style sheet and its points, from left to right.
    :param title: what a screen reader says of it; the numbers belong into a table beside it.
    """
    points = [point for _, line in series for point in line]
    right = max((x for x, _ in points), default=0.0) or 1.0
    top = ceiling(max((y for _, y in points), default=0.0))
    parts = [_axis(top, unit)]
    step = max(1, math.ceil(right / 8))
    for number in range(int(right // step) + 1):
        label = Markup('<text class="middle{}" x="{}" y="{}">{}</text>')
        parts.append(label.format(_minor(number), f"{_x(step * number, right):.1f}", HEIGHT - 8, step * number))
    for name, line in series:
        drawn = " ".join(f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in line)
        parts.append(Markup('<polyline class="{}" points="{}"/>').format(name, drawn))
        if len(line) == 1:
            x, y = line[0]
            dot = Markup('<circle class="{}" cx="{}" cy="{}" r="4"/>')
            parts.append(dot.format(name, f"{_x(x, right):.1f}", f"{_y(y, top):.1f}"))
    return _svg("chart", WIDTH, HEIGHT, title, parts)


def bars(values: Sequence[tuple[str, float | None]], *, title: str) -> Markup:
    """Draw a chart of vertical bars.

    :param values: of each bar its label and its height; ``None`` where nothing is known.
    :param title: what a screen reader says of it; the numbers belong into a table beside it.
    """
    top = ceiling(max((value or 0 for _, value in values), default=0.0))
    width = (WIDTH - _LEFT - _RIGHT) / max(len(values), 1)
    parts = [_axis(top)]
    every = max(1, math.ceil(len(values) / 6))
    for number, (label, value) in enumerate(values):
        x = _LEFT + number * width
        y = _y(top if value is None else value, top)
        parts.append(_rectangle(x + width * 0.1, y, width * 0.8, HEIGHT - _BOTTOM - y, label, value))
        if number % every == 0 and len(values) - number >= every // 2:
            text = Markup('<text class="start{}" x="{}" y="{}">{}</text>')
            parts.append(text.format(_minor(number // every), f"{x:.1f}", HEIGHT - 8, label))
    return _svg("chart", WIDTH, HEIGHT, title, parts)


def weeks(values: Sequence[tuple[datetime.date, float | None, float | None]], *, title: str) -> Markup:
    """Draw a small chart of weeks: bars, and before each a narrow bar for the year before.

    :param values: of each week its first day, its value and that of the year before; ``None`` where nothing is known.
    :param title: what a screen reader says of it; the numbers belong into a table beside it.
    """
    top = ceiling(max((value or 0.0 for _, *pair in values for value in pair), default=0.0))
    width, base = _SMALL_WIDTH / max(len(values), 1), _SMALL_HEIGHT - _SMALL_BOTTOM
    parts = [Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(_SMALL_WIDTH, base, base)]
    for number, (first_day, value, before) in enumerate(values):
        x, label = number * width, f"{first_day:%m-%d}"
        for name, shown, left, share in (("before", before, 0.08, 0.22), ("fill", value, 0.34, 0.52)):
            if shown is not None:
                height = (base - _SMALL_TOP) * shown / top
                place = x + width * left, base - height, width * share, height
                parts.append(_rectangle(*place, label, shown, name))
        text = Markup('<text class="middle{}" x="{}" y="{}">{}</text>')
        parts.append(text.format(_minor(number), f"{x + width / 2:.1f}", _SMALL_HEIGHT - 4, label))
    return _svg("small-chart", _SMALL_WIDTH, _SMALL_HEIGHT, title, parts)


def _rectangle(
    x: float, y: float, width: float, height: float, label: str, value: float | None, name: str = "fill"
) -> Markup:
    text = "missing" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>').format(
        "unknown" if value is None else name, f"{x:.1f}", f"{y:.1f}", f"{width:.1f}", f"{height:.1f}", label, text
    )


def _minor(number: int) -> str:
    """The class of every second label, for which a phone has no room."""
    return " minor" if number % 2 else ""


def _svg(name: str, width: float, height: float, title: str, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        name, f"{width:.0f}", f"{height:.0f}", title, Markup("").join(parts)
    )


def _x(value: float, right: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / right


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _axis(top: float, unit: str = "") -> Markup:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _y(top * share, top)
        grid = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>')
        parts.append(grid.format(_LEFT, WIDTH - _RIGHT, f"{y:.1f}", f"{y:.1f}"))
        label = Markup('<text class="end" x="{}" y="{}">{}{}</text>')
        parts.append(label.format(_LEFT - 6, f"{y + 4:.1f}", short(top * share), unit))
    return Markup("").join(parts)
