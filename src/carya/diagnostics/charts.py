"""Draw small inline SVG charts for HTML pages that contain no scripts and load no external files."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 640, 320
_LEFT, _BOTTOM, _TOP, _RIGHT = 60, 44, 12, 16
_TEXT = "#747d88"
_COLORS = ("#0072b2", "#d55e00")  # the colorblind-safe Okabe-Ito palette
_MAX_POINTS = 3_000
_BAR = 20  # height of one name and its pair of bars
_MAX_NAME = 40


def scatter(
    points: Sequence[tuple[float, float, str]],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
    diagonal: bool = False,
) -> str:
    """Return a scatter plot of (x, y, tooltip) points."""
    shown = [point for point in points if (point[0] > 0 or not log_x) and (point[1] > 0 or not log_y)][:_MAX_POINTS]
    if not shown:
        return ""
    across = _Axis([point[0] for point in shown], _LEFT, _WIDTH - _RIGHT, log=log_x)
    up = _Axis([point[1] for point in shown], _HEIGHT - _BOTTOM, _TOP, log=log_y)
    parts = [_frame(across, up, x, y)]
    if diagonal:
        low, high = max(across.low, up.low), min(across.high, up.high)
        if low < high:
            parts.append(
                f'<line x1="{across(low):.1f}" y1="{up(low):.1f}" x2="{across(high):.1f}" y2="{up(high):.1f}" '
                f'stroke="{_TEXT}" stroke-dasharray="4"/>'
            )
    parts += [
        f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="3" fill="{_COLORS[0]}" fill-opacity="0.5">'
        f"<title>{html.escape(title)}</title></circle>"
        for a, b, title in shown
    ]
    return _svg(parts, _HEIGHT)


def histogram(values: Sequence[float], *, bins: int = 10, x: str, y: str) -> str:
    """Return a histogram of values between 0 and 1."""
    if not values:
        return ""
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(value * bins))] += 1
    across, up = _Axis([0, 1], _LEFT, _WIDTH - _RIGHT), _Axis([0, max(counts)], _HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(across, up, x, y)]
    for number, count in enumerate(counts):
        left, right = across(number / bins), across((number + 1) / bins)
        parts.append(
            f'<rect x="{left + 1:.1f}" y="{up(count):.1f}" width="{right - left - 2:.1f}" '
            f'height="{up(0) - up(count):.1f}" fill="{_COLORS[0]}"><title>{count:,}</title></rect>'
        )
    return _svg(parts, _HEIGHT)


def bars(items: Sequence[tuple[str, float, float]], *, first: str, second: str) -> str:
    """Return a horizontal bar chart with one pair of bars per name."""
    if not items:
        return ""
    left, top = 260, 24
    height = top + _BAR * len(items) + 12
    largest = max(max(a, b) for _, a, b in items) or 1
    scale = (_WIDTH - left - 70) / largest
    legend = "".join(
        f'<rect x="{left + 150 * number}" y="4" width="10" height="10" fill="{color}"/>'
        f'<text x="{left + 16 + 150 * number}" y="13">{html.escape(name)}</text>'
        for number, (color, name) in enumerate(zip(_COLORS, (first, second), strict=True))
    )
    parts = [legend]
    for number, (name, a, b) in enumerate(items):
        y = top + number * _BAR
        shown = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{html.escape(shown)}</text>')
        for place, value in enumerate((a, b)):
            parts.append(
                f'<rect x="{left}" y="{y + 2 + 8 * place}" width="{max(1.0, value * scale):.1f}" height="7" '
                f'fill="{_COLORS[place]}"><title>{html.escape(name)}: {value:,.6g}</title></rect>'
            )
        parts.append(f'<text x="{left + max(a, b) * scale + 6:.1f}" y="{y + 13}">{a:,.4g} / {b:,.4g}</text>')
    return _svg(parts, height)


class _Axis:
    """Linear or logarithmic mapping from values to pixel positions."""

    def __init__(self, values: Sequence[float], begin: float, end: float, *, log: bool = False) -> None:
        self.low, self.high = min(values), max(values)
        if self.low == self.high:
            self.low, self.high = (self.low / 2, self.high * 2) if log else (self.low - 0.5, self.high + 0.5)
        self._begin, self._end, self._log = begin, end, log

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(part) if self._log else part for part in (self.low, self.high, value))
        return self._begin + (self._end - self._begin) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return the tick positions: about five round values or, on a logarithmic axis, the powers of ten."""
        if self._log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = [10.0**power for power in range(first, last + 1)]
            return powers if len(powers) > 1 else [self.low, self.high]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= 5.5)
        first = math.ceil(self.low / step - 1e-9)
        return [step * number for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _frame(across: _Axis, up: _Axis, x: str, y: str) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="{_TEXT}"/>',
        f'<line x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{bottom}" stroke="{_TEXT}"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{html.escape(x)}</text>',
        f'<text x="14" y="{(_TOP + bottom) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(_TOP + bottom) / 2})">{html.escape(y)}</text>',
    ]
    parts += [
        f'<text x="{across(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick:,.4g}</text>'
        for tick in across.ticks()
    ]
    parts += [
        f'<text x="{_LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:,.4g}</text>' for tick in up.ticks()
    ]
    return "".join(parts)


def _svg(parts: Sequence[str], height: float) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" font-size="12" '
        f'font-family="system-ui, sans-serif" fill="{_TEXT}">' + "".join(parts) + "</svg>"
    )
