"""The curves of a training as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import OpscopeError
from ..base.files.atomic import PathLike, atomic_file

_NOT_CURVES = ("epoch", "seconds")


def require_matplotlib() -> None:
    """Raises:
    OpscopeError: matplotlib is not installed; the extra that brings it is named.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise OpscopeError(
            "plots need matplotlib, which is not installed: pip install opscope[plot]"
        ) from None


def plot_history(
    columns: Mapping[str, Sequence[float]], best_epoch: int, held_out: str, path: PathLike
) -> None:
    """Draw a history as a PNG: the loss in one panel, the metrics in another.

    Values of the training are solid lines, those on held-out data dashed.

    Args:
        columns: numbers by epoch, `epoch` among them.
        best_epoch: the epoch whose parameters an early stop has restored, which is marked; 0: none.
        held_out: prefix of the names of columns with values on held-out data.

    Raises:
        OpscopeError: matplotlib is not installed.
        SaveError: the file cannot be written.
    """
    require_matplotlib()
    # Not pyplot, which keeps every figure alive and may want a display.
    from matplotlib.figure import Figure

    names = [name for name in columns if name not in _NOT_CURVES]
    base = list(dict.fromkeys(name.removeprefix(held_out) for name in names))
    panels = [panel for panel in (base[:1], base[1:]) if panel]
    figure = Figure(figsize=(4.8 * max(len(panels), 1), 3.6), dpi=120, layout="constrained")
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        for color, name in enumerate(panel):
            for curve, style, data in (
                (name, "-", "training"),
                (held_out + name, "--", "held-out"),
            ):
                if curve in columns:
                    label = f"{name}, {data}"
                    _draw(axes, columns["epoch"], columns[curve], style, f"C{color}", label)
            if best_epoch:
                axes.axvline(best_epoch, color="0.6", linewidth=0.8)
        axes.set_xlabel("epoch")
        axes.set_title(", ".join(panel))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        axes.locator_params("x", integer=True)
    with atomic_file(path) as file:
        # Without the name of the software, which holds its version: equal histories give equal
        # files.
        figure.savefig(file, format="png", metadata={"Software": None})


def _draw(
    axes: Any,
    epochs: Sequence[float],
    values: Sequence[float],
    style: str,
    color: str,
    label: str,
) -> None:
    marker = "o" if len(epochs) < 2 else ""
    axes.plot(epochs, values, style, marker=marker, color=color, label=label)
