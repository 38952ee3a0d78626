"""Weights of convolutions in panels, where a vector of outputs is one load (`pack_weights` of
`native/convolution.c`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ...framework.fusion.team import ParallelTask, aligned
from ...framework.ir.kernel_args import KernelArgs
from ...framework.runtime.plans.memory import as_view, memory_of, padded
from .images import Work, lanes, steps


def pack(
    k: KernelArgs,
    work: Work,
    w: Any,
    side: int,
    taps: Any,
    *,
    keep: bool = False,
    overlap: bool = False,
) -> np.ndarray:
    """Panels [vectors, taps, inner, lanes] of weights [O, C, *K] for outs along axis `side`.

    Args:
        taps: numbers of those that are wanted, row by row.
        keep: memory of their own, which is filled again only when the weights have changed: the
            frame knows when, or else the weights are compared with what they were.
        overlap: the last vector has the last outs, and not zeros after them.
    """
    outs = w.shape[side]
    inner = w.shape[1 - side]
    size = lanes(w.dtype)
    so, si, down, right = (steps(w)[axis] for axis in (side, 1 - side, 2, 3))
    places = taps // w.shape[3] * down + taps % w.shape[3] * right
    shape = -(-outs // size), len(taps), inner, size
    known = getattr(k.frame, "kept", None) if keep else None
    if known is not None and known.holds(w):
        panels = known.get(
            w,
            (side, tuple(taps), overlap),
            int(np.prod(shape)) * w.itemsize,
            lambda: _packing(w, (outs, inner, so, si), places, shape, overlap),
        )
        if panels is not None:
            return panels
    old = None
    kept = keep and side == 0 and w.flags.c_contiguous
    if kept:
        panels, old = _compared(w, shape, (side, tuple(taps), overlap))
    else:
        panels = k.scratch(shape, w.dtype)
    add_packing(work, w, (outs, inner, so, si), places, panels, old, overlap=overlap)
    return panels


def add_packing(
    work: Work,
    w: Any,
    sizes: tuple[int, ...],
    places: np.ndarray,
    panels: Any,
    old: Any = None,
    *,
    overlap: bool = False,
) -> None:
    """Have panels filled; see `pack`.

    Args:
        sizes: outs and inner, and their steps. places: of the taps.
        old: what the panels were made of before, or None.
    """
    fields = dict(zip(("outs", "inner", "out_step", "in_step"), sizes, strict=True))
    places = np.asarray(places, np.int64)
    work.add(
        *("convolution", "pack_weights", w.size),
        **{"w": w, "taps": len(places), "places": places, "old": old, **fields},
        **{"panels": panels, "panel": panels[0].size, "overlap": overlap},
    )


def _compared(w: Any, shape: tuple[int, ...], how: Any) -> tuple[np.ndarray, np.ndarray]:
    """Memory for panels, and for the weights that they were made of; frames share both."""
    room = padded(int(np.prod(shape)) * w.itemsize)

    def make() -> np.ndarray:
        memory = aligned(room + w.nbytes)
        memory.view(w.dtype)[:] = np.nan  # bytes that no weights are likely to have
        return memory

    memory = memory_of(("panels", w.ctypes.data, w.shape, w.dtype, shape, how), make)
    return as_view(memory, (shape, w.dtype)), memory[room : room + w.nbytes].view(w.dtype)


def kept_panels(
    k: KernelArgs, w: Any, label: Hashable, room: int, add: Callable[[Work, Any, Any], None]
) -> Any:
    """Panels of weights that stay packed from run to run; None where a run may change the weights.

    Args:
        label: of this kind of panels. room: their elements.
        add: has work fill panels with weights; takes the three of them.
    """
    kept = None if k.train else getattr(k.frame, "kept", None)
    if kept is None or not kept.holds(w):
        return None

    def make() -> tuple[np.ndarray, ParallelTask]:
        work = Work(w.dtype)
        panels = aligned(room * w.itemsize).view(w.dtype)
        add(work, w, panels)
        return panels, work.task()

    return kept.get(w, label, room * w.itemsize, make)


def _packing(
    w: Any, sizes: tuple[int, ...], places: np.ndarray, shape: tuple[int, ...], overlap: bool
) -> tuple[np.ndarray, ParallelTask]:
    """Panels of weights and the task that fills them; `sizes`: outs and inner, and their steps."""
    work = Work(w.dtype)
    panels = aligned(int(np.prod(shape)) * w.itemsize).view(w.dtype).reshape(shape)
    add_packing(work, w, sizes, places, panels, overlap=overlap)
    return panels, work.task()
