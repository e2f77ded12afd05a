"""Figures that are only ever drawings, as SVG text (charts.py has those of reports): same values in, same bytes out.

Drawn on Figure objects of their own; matplotlib is imported on the first call and its settings are put back.
Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

BLUE, ORANGE, GREEN, INK, GREY = "#0072B2", "#D55E00", "#009E73", "#333333", "#8a8a8a"
SERIES = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", INK)
"""Where several things of one kind stand side by side."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
STYLE: dict[str, Any] = {
    "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.edgecolor": GREY, "axes.labelcolor": INK, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "xtick.color": INK, "ytick.color": INK, "grid.color": "#e8e8e8",
    "legend.frameon": True, "legend.framealpha": 0.95, "legend.edgecolor": "#dddddd", "legend.fontsize": 8,
}  # fmt: skip


def drawn(draw: Callable[..., Any]) -> Callable[..., str]:
    """Turns a function that returns a Figure into one that returns SVG text without date or version."""

    @wraps(draw)
    def render(*args: Any, **named: Any) -> str:
        import matplotlib as mpl

        buffer = io.StringIO()
        with mpl.rc_context({**STYLE, "svg.hashsalt": draw.__name__}):
            draw(*args, **named).savefig(
                buffer, format="svg", dpi=200, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
            )
        text = re.sub(r"\A.*?(?=<svg)", "", buffer.getvalue(), count=1, flags=re.DOTALL)
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"

    return render


def new_figure(width: float, height: float) -> Any:
    """An empty Figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


PANEL = 5.0
"""Width in inches of one panel of a picture: two fit side by side on a page, and on a phone its text can still be read."""
