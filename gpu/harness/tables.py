"""Numbers as text."""

from __future__ import annotations

import statistics


def percentile(values, share: float):
    """The value at `share` (0 to 1) of the sorted values, None when there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(values):
    """The median: of an even number the mean of the two in the middle."""
    return statistics.median(values)


def table(rows, header) -> str:
    """Rows as text columns, numbers to the right."""
    cells = [[str(c) for c in header]] + [[fmt(c) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in cells) for i in range(len(header))]
    lines = []
    for n, row in enumerate(cells):
        lines.append(
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
        )
        if n == 0:
            lines.append("  ".join("-" * w for w in widths))
    return "\n".join(lines)


def fmt(value) -> str:
    """A cell: floats shortened, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}"
    return str(value)
