"""Determinization in C, where there is the native library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import DTYPES, bind
from ...native.constants import NO_MEMORY, BadLattice
from .determinize import (
    ARC_BYTES,
    ELEMENT_BYTES,
    LEAST_ROOM,
    STRING_BYTES,
    DeterminiseOptions,
)
from .lattice import NO_PATH, Arc, CompactLattice, Weight
from .plain import LatticeColumns

_ARC = DTYPES["LatticeArc"]


def determinized(
    lattice: LatticeColumns,
    beam: float,
    starts: Sequence[int] | np.ndarray | None,
    options: DeterminiseOptions,
) -> tuple[CompactLattice, float, bool] | None:
    """A lattice determinized by the passes of `options`, the beam that was reached, and whether no
    limit ended it early; None: there is no native library.

    Args:
        starts: see `phone_determinize.determinized`, where the others are checked.

    Raises:
        ShapeError: the lattice is empty or has a loop, or a transition-id or an arc that is none.
    """
    library = native.load("lattices")
    if library is None:
        return None
    phones = options.phone_determinize and starts is not None
    begins = np.ascontiguousarray(starts, np.int32) if phones else None
    names = (
        "source",
        "target",
        "label",
        "id",
        "cost",
        "graph",
        "final",
        "final_cost",
        "final_graph",
    )
    block = bind(
        library,
        "lattice_determinized",
        states=lattice.states,
        count=len(lattice.source),
        finals=len(lattice.final),
        ids=0 if begins is None else len(begins),
        starts=begins,
        unsorted=not lattice.is_sorted,
        words=options.word_determinize,
        beam=beam,
        delta=options.delta,
        retry_cutoff=options.retry_cutoff,
        max_mem=options.max_mem,
        max_arcs=options.max_arcs,
        arc_bytes=ARC_BYTES,
        element_bytes=ELEMENT_BYTES,
        string_bytes=STRING_BYTES,
        least_room=LEAST_ROOM,
        **{name: np.ascontiguousarray(getattr(lattice, name)) for name in names},
    )
    block.run()
    result = block.struct
    if result.status:
        raise _failure(result.status, result.wrong, lattice, result.ids)
    try:
        arrays = _room(result.made_states, result.made_count + result.made_ends, result.made_ids)
    except MemoryError:
        _take(library, result.made, _room(0, 0, 0))  # which frees what was made
        raise
    _take(library, result.made, arrays)
    compact = _compact(*arrays, result.made_count)
    return compact, result.beam, not result.incomplete


def _room(states: int, count: int, ids: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for the begins of states, for arcs and ends, and for ids."""
    return np.empty(states + 1, np.int64), np.empty(count, _ARC), np.empty(ids, np.int32)


def _take(library: native.Library, made: int, arrays: Sequence[np.ndarray]) -> None:
    """Copy as much of what was made as there is room for, and free it."""
    begin, arcs, ids = arrays
    sizes = {"states": len(begin) - 1, "count": len(arcs), "ids": len(ids)}
    bind(library, "lattice_copy", made=made, begin=begin, arcs=arcs, id=ids, **sizes).run()


def _compact(begin: np.ndarray, arcs: np.ndarray, ids: np.ndarray, count: int) -> CompactLattice:
    """The lattice of arrays: arcs, then ends, whose targets are their states."""
    begins, numbers = begin.tolist(), ids.tolist()
    made: list[Arc] = []
    at = 0
    columns = (arcs[name].tolist() for name in ("label", "graph", "acoustic", "length", "target"))
    for label, graph, acoustic, length, target in zip(*columns, strict=True):
        weight = Weight(graph, acoustic, tuple(numbers[at : at + length]))
        made.append(Arc(label, weight, target))
        at += length
    lattice = CompactLattice(
        0 if len(begins) > 1 else -1,
        [made[first:last] for first, last in zip(begins, begins[1:], strict=False)],
        [None] * (len(begins) - 1),
    )
    for _, weight, state in made[count:]:
        lattice.final[state] = weight
    return lattice


def _failure(status: int, wrong: int, lattice: LatticeColumns, ids: int) -> Exception:
    """Why a lattice is refused, as native/constants.py has it; `wrong` is the place."""
    if status == NO_MEMORY:
        return MemoryError("a lattice")
    if status == BadLattice.EMPTY:
        return ShapeError(NO_PATH)
    if status == BadLattice.LOOP:
        return ShapeError("the lattice has a loop")
    if status == BadLattice.NO_ID:
        number = lattice.id[wrong]
        return ShapeError(f"{number} is no transition-id: the model has 1 to {ids - 1}")
    assert status == BadLattice.BAD_ARC
    if wrong >= len(lattice.source):
        state = lattice.final[wrong - len(lattice.source)]
        return ShapeError(f"state {state} of the lattice is final, of {lattice.states}")
    return ShapeError(
        f"arc {wrong} of the lattice leads from state {lattice.source[wrong]} to"
        f" {lattice.target[wrong]}, of {lattice.states}, with label {lattice.label[wrong]}: arcs"
        " must lead to states of greater numbers, and labels count from 0"
    )
