"""Lattices as programs write them: of all frames, determinized with Kaldi's options.

Source: `DeterminizeLatticePhonePrunedWrapper` in Kaldi's `lat/determinize-lattice-pruned.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....kaldi.lattices.determinize import DeterminiseOptions
from ....kaldi.lattices.lattice import CompactLattice, joined, split, top_sorted
from ....kaldi.lattices.phone_determinize import determinized
from ....kaldi.lattices.plain import LatticeColumns, from_raw, to_lattice
from ....kaldi.lattices.raw_lattice import RawLattice


def determinized_lattice(
    raw: RawLattice | LatticeColumns,
    beam: float,
    starts: Sequence[int],
    options: DeterminiseOptions,
    warn: Callable[[str], None],
) -> tuple[CompactLattice, bool]:
    """A lattice of words, and whether it has all paths within the beam.

    Args:
        starts: from `phone_starts`. warn: called when nothing is determinized.

    Raises:
        OpscopeError: as `determinized`.
    """
    if options.word_determinize:
        result = determinized(raw, beam, starts, options)
        return result.lattice, result.complete
    if options.phone_determinize:  # Kaldi minimizes after the other pass alone
        result = determinized(raw, beam, starts, replace(options, minimize=False))
        return joined(top_sorted(split(result.lattice))), result.complete
    warn(
        "Both --phone-determinize and --word-determinize are set to false, copying lattice without"
        " determinization."
    )
    columns = from_raw(raw) if isinstance(raw, RawLattice) else raw
    return joined(to_lattice(columns.plain())), True
