"""Supervisions of chunks, cut out of an utterance's lattice.

Source: `DiscriminativeSupervisionSplitter` in Kaldi's `nnet3/discriminative-supervision.cc`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import AttributeTypeError, ShapeError
from ...framework.base.options.option_fields import option
from ...kaldi.lattices.acceptors import (
    depth_sorted,
    determinized_acceptor,
    projected,
    reversed_lattice,
)
from ...kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight, renumbered, single
from ...kaldi.lattices.operations import connected, state_times, without_epsilons
from ...kaldi.lattices.paths import log_sums
from .supervision import DiscriminativeSupervision


@dataclass(frozen=True)
class SplitOptions:
    """Kaldi's SplitDiscriminativeSupervisionOptions.

    Attributes:
        acoustic_scale: with which the paths before and after a chunk are weighed, as in training.
    """

    collapse_transition_ids: bool = option(
        True, "Leave one transition-id for each pdf of a frame in the lattice; not for MPFE"
    )
    determinize: bool = option(True, "Determinize the lattices of chunks")
    minimize: bool = option(True, "Minimize the lattices of chunks as well")
    acoustic_scale: float = option(0.1, "Factor for acoustic log-likelihoods, as in training")

    def __post_init__(self) -> None:
        if self.acoustic_scale == 0:
            raise AttributeTypeError("acoustic-scale must not be 0")


class DiscriminativeSplitter:
    """Cuts chunks out of the supervision of one utterance.

    Args:
        options: how lattices of chunks are made.
        supervision: of the utterance.
        pdfs: the pdf of each transition-id.

    Raises:
        ShapeError: it is the supervision of several, or the lattice has a transition-id that the
            model lacks.
    """

    def __init__(
        self, options: SplitOptions, supervision: DiscriminativeSupervision, pdfs: np.ndarray
    ) -> None:
        if supervision.num_sequences != 1:
            raise ShapeError("only the supervision of one utterance can be cut")
        self._options = options
        self._supervision = supervision
        self._pdfs = pdfs.tolist()
        self._check_ids(supervision)
        self._scale = single(options.acoustic_scale)  # Kaldi's is float32: ties depend on rounding
        lattice = connected(supervision.lattice).scaled(acoustic=self._scale)
        times, _ = state_times(lattice)
        order = sorted(range(lattice.states), key=lambda state: (times[state], state))
        self._lattice = renumbered(lattice, order)
        self._times = [times[state] for state in order]
        self._alpha, self._beta = log_sums(self._lattice)

    def _check_ids(self, supervision: DiscriminativeSupervision) -> None:
        most = len(self._pdfs) - 1
        ids = [number for g in supervision.lattice.arcs for arc in g for number in arc.weight.ids]
        for number in (*ids, *supervision.alignment.tolist()):
            if not 0 < number <= most:
                raise ShapeError(
                    f"{number} is no transition-id of the model, which has 1 to {most}: do lattices"
                    " and alignments belong to it?"
                )

    def part(self, first: int, frames: int, normalize: bool) -> DiscriminativeSupervision:
        """The supervision of some frames.

        Args:
            normalize: whether the sum over all paths of the lattice becomes 1.

        Raises:
            ShapeError: there are no such frames.
        """
        whole = self._supervision
        last = first + frames
        if not 0 <= first < last <= whole.frames_per_sequence:
            raise ShapeError(f"frames {first} to {last - 1} of {whole.frames_per_sequence}")
        lattice = self._finished(self._range(first, last, normalize))
        alignment = whole.alignment[first:last]
        result = DiscriminativeSupervision(whole.weight, 1, frames, alignment, lattice)
        result.check()
        return result

    def _range(self, first: int, last: int, normalize: bool) -> CompactLattice:
        """The paths through some frames; what comes before and after them becomes graph costs."""
        begin, end = bisect_left(self._times, first), bisect_left(self._times, last)
        whole = self._beta[0] if normalize else 0.0
        part = CompactLattice(0)
        for _ in range(end - begin + 2):
            part.add_state()
        stop = end - begin + 1
        part.final[stop] = ONE
        for state in range(begin, end):
            here = state - begin + 1
            if self._times[state] == first:
                part.arcs[0].append(Arc(0, Weight(single(whole - self._alpha[state])), here))
            for label, weight, target in self._lattice.arcs[state]:
                if target >= end:
                    weight = weight._replace(graph=single(weight.graph - self._beta[target]))
                    part.arcs[here].append(Arc(label, weight, stop))
                else:
                    part.arcs[here].append(Arc(label, weight, target - begin + 1))
        return part

    def _finished(self, part: CompactLattice) -> CompactLattice:
        options = self._options
        part = without_epsilons(projected(part))
        if options.collapse_transition_ids:
            part = self._collapsed(part)
        if options.determinize and not options.minimize:
            part = determinized_acceptor(part)
        elif options.determinize:
            for _ in range(2):  # as Brzozowski minimizes
                part = determinized_acceptor(reversed_lattice(part))
            part = without_epsilons(part)
        return depth_sorted(part).scaled(acoustic=single(1 / self._scale))

    def _collapsed(self, part: CompactLattice) -> CompactLattice:
        """With the transition-id for each pdf that its frame had first.

        Frames are looked up by numbers of states in the whole lattice, as Kaldi does it, though
        the part's numbers differ. Pdfs stay what they are, so the objective is the same.
        """
        known: dict[tuple[int, int], int] = {}
        arcs = []
        for state, group in enumerate(part.arcs):
            new = []
            for label, weight, target in group:
                number = known.setdefault((self._times[state], self._pdfs[label]), label)
                new.append(Arc(number, weight._replace(ids=(number,)), target))
            arcs.append(new)
        return CompactLattice(part.start, arcs, part.final)
