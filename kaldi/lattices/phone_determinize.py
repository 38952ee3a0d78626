"""From the lattice of a search to a compact one: determinized with phones, then with words.

The first pass makes phones labels beside the words. Its result has the words' paths still more than
once, but its sets of states are small; with words alone they may grow without bound.

Source: `DeterminizeLatticePhonePruned` in Kaldi's `lat/determinize-lattice-pruned.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ..files.transition_model import TransitionModel
from . import compiled
from .determinize import DeterminiseOptions, determinize
from .lattice import NO_PATH, CompactLattice
from .minimize import minimized, strings_pushed, weights_pushed
from .plain import LatticeColumns, PlainLattice, from_lattice, from_raw, to_lattice
from .raw_lattice import RawLattice


class Determinized(NamedTuple):
    """A lattice, the beam that it was made with, and whether it is the one that was asked for."""

    lattice: CompactLattice
    beam: float
    complete: bool


def phone_starts(model: TransitionModel) -> list[int]:
    """Of each transition-id the phone that begins with it; 0 for others."""
    known = model.transitions()
    rows = [(0, -1), *((phone, place) for phone, place, *_ in model.tuples.tolist())]
    begun = [phone if not place else 0 for phone, place in rows]
    pairs = zip(known.state.tolist(), known.is_loop.tolist(), strict=True)
    return [0 if loop else begun[state] for state, loop in pairs]


def determinized(
    lattice: RawLattice | CompactLattice | LatticeColumns,
    beam: float,
    starts: Sequence[int] | np.ndarray | None = None,
    options: DeterminiseOptions | None = None,
    warn: Callable[[str], None] | None = None,
) -> Determinized:
    """For each sequence of words the best path, of those within `beam` of the best one.

    Args:
        lattice: of a search, as an object or as columns, or a compact one.
        beam: infinity keeps everything.
        starts: from `phone_starts`, for the pass with phones.
        options: passes and limits.
        warn: called when a limit left less than was asked for.

    Raises:
        OpscopeError: the beam is not above 0, or a pass with phones is wanted without `starts`.
        ShapeError: the lattice is empty or has a loop, or a transition-id or label that is none.
    """
    options = options or DeterminiseOptions()
    if options.phone_determinize and starts is None:
        raise OpscopeError("a pass with phones needs phone_starts(model), or turn it off")
    if not beam > 0 and (options.phone_determinize or options.word_determinize):
        raise OpscopeError(f"a beam of {beam} for a lattice: a number above 0 is wanted")
    if isinstance(lattice, RawLattice):
        lattice = from_raw(lattice)
    elif isinstance(lattice, CompactLattice):
        lattice = from_lattice(lattice).columns()
    made = compiled.determinized(lattice, beam, starts, options)
    if made is None:
        made = _by_python(lattice.plain(), beam, starts, options)
    compact, reached, complete = made
    if options.minimize:
        compact = minimized(weights_pushed(strings_pushed(compact)), options.delta)
    if not complete and warn is not None:
        warn(
            f"the lattice was determinized with a beam of {reached:.4g} in place of {beam:g}: more"
            f" would need more than max_mem={options.max_mem} or max_arcs={options.max_arcs}"
        )
    return Determinized(compact, reached, complete)


def _by_python(
    plain: PlainLattice,
    beam: float,
    starts: Sequence[int] | np.ndarray | None,
    options: DeterminiseOptions,
) -> Determinized:
    """What `compiled.determinized` does in C."""
    if plain.rest()[0] == math.inf:
        raise ShapeError(NO_PATH)
    reached = beam
    complete = True
    end_ids: list[tuple[int, ...]] | None = None
    if options.phone_determinize and starts is not None:
        with_phones, base = _with_phones(plain, starts)
        result = determinize(with_phones, beam, options)
        plain = _without_phones(result.lattice, result.end_ids, base)
        reached = min(reached, result.beam)
        complete = result.complete
    if options.word_determinize:
        result = determinize(plain, beam, options)
        plain, end_ids = result.lattice, result.end_ids
        reached = min(reached, result.beam)
        complete = complete and result.complete
    return Determinized(to_lattice(plain, end_ids), reached, complete)


def _with_phones(
    plain: PlainLattice, starts: Sequence[int] | np.ndarray
) -> tuple[PlainLattice, int]:
    """With phones as labels where they begin, and the number that was added to them.

    An arc that has a word already gets a second one after it.
    """
    labels = [arc[0] for group in plain.arcs for arc in group]
    base = max(labels, default=0) + 1
    late: dict[int, list[tuple[int, int]]] = {}  # places of words whose phones need an arc
    phones: dict[tuple[int, int], int] = {}
    for state, group in enumerate(plain.arcs):
        for place, (label, target, ids, _, _) in enumerate(group):
            number = ids[0] if ids else 0
            if number >= len(starts):
                raise ShapeError(
                    f"{number} is no transition-id: the model has 1 to {len(starts) - 1}"
                )
            if state and starts[number]:
                phones[state, place] = base + int(starts[number])
                if label:
                    late.setdefault(target, []).append((state, place))
    result = PlainLattice()
    number = [0] * len(plain.arcs)
    extra = {}
    for state in range(len(plain.arcs)):
        for key in late.get(state, ()):
            extra[key] = result.add_state()
        number[state] = result.add_state()
        result.final[number[state]] = plain.final[state]
    for state, group in enumerate(plain.arcs):
        for place, (label, target, ids, cost, graph) in enumerate(group):
            here, there = number[state], number[target]
            phone = phones.get((state, place), 0)
            if phone and label:
                between = extra[state, place]
                result.arcs[between].append((phone, there, (), 0.0, 0.0))
                there = between
            result.arcs[here].append((label or phone, there, ids, cost, graph))
    return result, base


def _without_phones(plain: PlainLattice, end_ids: list[tuple[int, ...]], base: int) -> PlainLattice:
    """With words only as labels; ids of ending go to arcs to a last state."""
    result = PlainLattice(
        [[(a[0] if a[0] < base else 0, *a[1:]) for a in group] for group in plain.arcs],
        list(plain.final),
    )
    last = -1
    for state, ids in enumerate(end_ids):
        end = plain.final[state]
        if ids and end is not None:
            if last < 0:
                last = result.add_state()
                result.final[last] = (0.0, 0.0)
            result.arcs[state].append((0, last, ids, *end))
            result.final[state] = None
    return result
