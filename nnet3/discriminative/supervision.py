"""The supervision of discriminative examples: a reference alignment, and a lattice of what competes
with it.

Source: Kaldi's `nnet3/discriminative-supervision.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...framework.base.errors import ShapeError
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.lattices.acceptors import concatenated, depth_sorted
from ...kaldi.lattices.lattice import CompactLattice
from ...kaldi.lattices.lattice_io import read_lattice, write_lattice
from ...kaldi.lattices.operations import state_times

_DIGITS = 7  # of costs in text: Kaldi prints examples so, and lattices with 6


@dataclass(eq=False)
class DiscriminativeSupervision:
    """Reference and lattice of some sequences of frames, all of one length.

    Attributes:
        weight: of the objective.
        num_sequences: how many sequences; row t * num_sequences + s of the network's output is
            frame t of sequence s, but alignment and lattice hold one sequence after the other.
        frames_per_sequence: frames (after subsampling) of each.
        alignment: the transition-id of each frame in the reference, int32.
        lattice: a plain one, sorted. Its graph costs count; acoustic costs are computed again.
    """

    weight: float
    num_sequences: int
    frames_per_sequence: int
    alignment: np.ndarray
    lattice: CompactLattice

    label_dim = None
    """How many pdfs there are: transition-ids do not tell."""

    @classmethod
    def of_utterance(
        cls, alignment: np.ndarray, lattice: CompactLattice
    ) -> DiscriminativeSupervision:
        """The supervision of a whole utterance.

        Raises:
            ShapeError: alignment or lattice is empty, the lattice has a loop or paths of several
                lengths, or the two differ in length.
        """
        if not len(alignment) or lattice.start < 0:
            raise ShapeError(f"the {'lattice' if len(alignment) else 'alignment'} is empty")
        result = cls(1.0, 1, len(alignment), alignment, depth_sorted(lattice))
        result.check()
        return result

    @classmethod
    def read(cls, reader: Reader) -> DiscriminativeSupervision:
        """Read one.

        Raises:
            FormatError: the bytes are something else, are cut off, or sizes do not agree.
        """
        start = reader.offset
        reader.expect_token("<DiscriminativeSupervision>")
        reader.expect_token("<Weight>")
        weight = reader.read_float()
        reader.expect_token("<NumSequences>")
        sequences = reader.read_int32()
        reader.expect_token("<FramesPerSeq>")
        frames = reader.read_int32()
        if min(sequences, frames) <= 0:
            raise reader.error(f"{sequences} sequences of {frames} frames cannot stand here", start)
        reader.expect_token("<NumAli>")
        alignment = reader.read_int_vector()
        reader.expect_token("<DenLat>")
        lattice = read_lattice(reader)
        reader.expect_token("</DiscriminativeSupervision>")
        try:
            result = cls(weight, sequences, frames, alignment, depth_sorted(lattice))
            result.check()
        except ShapeError as error:
            raise reader.error(str(error), start) from error
        return result

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        writer.write_token("<DiscriminativeSupervision>")
        writer.write_token("<Weight>")
        writer.write_float(self.weight)
        writer.write_token("<NumSequences>")
        writer.write_int32(self.num_sequences)
        writer.write_token("<FramesPerSeq>")
        writer.write_int32(self.frames_per_sequence)
        writer.write_token("<NumAli>")
        writer.write_int_vector(self.alignment)
        writer.write_token("<DenLat>")
        write_lattice(writer, self.lattice, digits=_DIGITS)
        writer.write_token("</DiscriminativeSupervision>")

    def check(self) -> None:
        """Refuse an alignment or a lattice of another length than the frames.

        Raises:
            ShapeError: it is so, or paths of the lattice differ in length.
        """
        if len(self.alignment) != self.rows:
            raise ShapeError(f"an alignment of {len(self.alignment)} frames, where {self.rows} are")
        _, frames = state_times(self.lattice)
        if frames != self.rows:
            raise ShapeError(f"a lattice of {frames} frames with an alignment of {self.rows}")

    @property
    def rows(self) -> int:
        """Rows of the network's output that it speaks about."""
        return self.num_sequences * self.frames_per_sequence

    @property
    def row_of_frame(self) -> np.ndarray:
        """The row of the network's output that each frame of the alignment is, [frames]."""
        frame = np.arange(self.rows)
        frames = self.frames_per_sequence
        return frame % frames * self.num_sequences + frame // frames


def merge_supervision(parts: Sequence[DiscriminativeSupervision]) -> DiscriminativeSupervision:
    """The supervision of all sequences of `parts`, one after the other.

    Raises:
        ShapeError: weights or lengths differ.
    """
    first = parts[0]
    for part in parts[1:]:
        for name in ("weight", "frames_per_sequence"):
            ours, theirs = getattr(first, name), getattr(part, name)
            if ours != theirs:
                raise ShapeError(f"supervisions with {name} {ours} and {theirs} cannot be merged")
    return replace(
        first,
        num_sequences=sum(part.num_sequences for part in parts),
        alignment=np.concatenate([part.alignment for part in parts]),
        lattice=concatenated([part.lattice for part in parts]),
    )
