"""The curves of a training as a picture."""

from __future__ import annotations

from typing import Any

from ...framework.base.atomic import PathLike, atomic_file
from ...framework.base.errors import OpscopeError
from .history import EVAL_PREFIX, History

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


def plot_history(history: History, path: PathLike) -> None:
    """Draw a history as a PNG: the loss in one panel, the metrics in another.

    Values of the training are solid lines, those on held-out data dashed. A mark shows the epoch
    whose parameters an early stop has restored.

    Raises:
        OpscopeError: matplotlib is not installed.
        SaveError: the file cannot be written.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    names = [name for name in history.columns if name not in _NOT_CURVES]
    base = list(dict.fromkeys(name.removeprefix(EVAL_PREFIX) for name in names))
    panels = [panel for panel in (base[:1], base[1:]) if panel]
    figure = Figure(figsize=(4.8 * max(len(panels), 1), 3.6), dpi=120, layout="constrained")
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        for color, name in enumerate(panel):
            _draw(axes, history, name, f"C{color}")
        axes.set_xlabel("epoch")
        axes.set_title(", ".join(panel))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        axes.locator_params("x", integer=True)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})


def _draw(axes: Any, history: History, name: str, color: str) -> None:
    epochs = history["epoch"]
    marker = "o" if len(epochs) < 2 else ""
    for column, style, what in (
        (name, "-", "training"),
        (EVAL_PREFIX + name, "--", "held-out"),
    ):
        if column in history.columns:
            axes.plot(
                epochs, history[column], style, marker=marker, color=color, label=f"{name}, {what}"
            )
    if history.best_epoch:
        axes.axvline(history.best_epoch, color="0.6", linewidth=0.8)
