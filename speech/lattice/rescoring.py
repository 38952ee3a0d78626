"""Lattices with the costs of another language model.

Source: Kaldi's `latbin/lattice-lmrescore.cc`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...kaldi.lattices.determinize import DeterminiseOptions
from ...kaldi.lattices.lattice import CompactLattice
from ...kaldi.lattices.phone_determinize import determinized
from ..language_model.automaton import LanguageModel
from .composition import composed

_AS_THEY_ARE = DeterminiseOptions(max_mem=0, phone_determinize=False)


def rescored(
    lattice: CompactLattice, model: LanguageModel, scale: float = 1.0
) -> CompactLattice | None:
    """The lattice with the costs of a model's best ways added to its graph costs.

    Args:
        scale: of the model's costs. Graph costs are divided by it, and multiplied after, so that
            the best way counts where the costs are subtracted, too; 0: nothing changes.

    Returns:
        A path for each sequence of words; None where the model knows none of them.

    Raises:
        ShapeError: the lattice has a loop.
    """
    if not scale:
        return lattice
    scaled = lattice.scaled(1 / scale)
    # A recurrent model tells histories apart by the way that comes first: by Kaldi's order of arcs.
    arcs = [sorted(group, key=lambda arc: arc.label) for group in scaled.arcs]
    made = composed(replace(scaled, arcs=arcs), model)
    if not made.states:
        return None
    result = determinized(made, math.inf, None, _AS_THEY_ARE)
    return result.lattice.scaled(scale)
