"""The supervision of chain examples: an FST of the pdf sequences that are allowed.

Source: Kaldi's `chain/chain-supervision.cc`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....framework.base.errors import ShapeError
from ....framework.base.sequence import repeated
from ....kaldi.files.kaldi_io import Reader, Writer
from ....kaldi.fst.files.fst_io import read_fst, write_fst
from ....kaldi.fst.fst import Fst


@dataclass(eq=False)
class Supervision:
    """The allowed label sequences of some sequences of frames, all of one length.

    Attributes:
        weight: of the objective.
        num_sequences: how many sequences; their frames are interleaved in the network's output:
            row t * num_sequences + s is frame t of sequence s.
        frames_per_sequence: frames (after subsampling) of each.
        label_dim: how many pdfs there are; labels of the FSTs are pdfs counted from 1. Label 0,
            which stands for no frame, occurs before normalization only.
        fst: one acyclic acceptor, sorted by time, for the sequences one after the other.
        e2e_fsts: instead of it, one acceptor of any form for each sequence (flat start).
        alignment_pdfs: the pdf of each frame where it is known, int32; may be empty.
    """

    weight: float = 1.0
    num_sequences: int = 1
    frames_per_sequence: int = 0
    label_dim: int = 0
    fst: Fst | None = None
    e2e_fsts: list[Fst] = field(default_factory=list)
    alignment_pdfs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @classmethod
    def read(cls, reader: Reader) -> Supervision:
        """Read one.

        Raises:
            FormatError: the bytes are something else, are cut off, or sizes do not agree.
        """
        start = reader.offset
        reader.expect_token("<Supervision>")
        reader.expect_token("<Weight>")
        weight = reader.read_float()
        numbers = []
        for token in ("<NumSequences>", "<FramesPerSeq>", "<LabelDim>"):
            reader.expect_token(token)
            numbers.append(reader.read_int32())
        if min(numbers) <= 0:
            raise reader.error(f"sequences, frames and labels are {numbers}, not above 0", start)
        result = cls(weight, *numbers)
        reader.expect_token("<End2End>")
        if reader.read_bool():
            reader.expect_token("<Fsts>")
            while reader.peek_token() != "</Fsts>" and len(result.e2e_fsts) < result.num_sequences:
                result.e2e_fsts.append(read_fst(reader))
            reader.expect_token("</Fsts>")
            if len(result.e2e_fsts) != result.num_sequences:
                have = len(result.e2e_fsts)
                want = result.num_sequences
                raise reader.error(f"{have} FSTs for {want} sequences", start)
        else:
            result.fst = read_fst(reader)
        if reader.peek_token() == "<AlignmentPdfs>":
            reader.expect_token("<AlignmentPdfs>")
            result.alignment_pdfs = reader.read_int_vector()
        reader.expect_token("</Supervision>")
        for fst in result.fsts:
            if len(fst.arcs) and not 0 <= fst.ilabel.min() <= fst.ilabel.max() <= result.label_dim:
                raise reader.error(f"a label of the FST is none of 0 to {result.label_dim}", start)
            if fst.start != 0:
                raise reader.error("the FST does not start in state 0", start)
        return result

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        writer.write_token("<Supervision>")
        writer.write_token("<Weight>")
        writer.write_float(self.weight)
        for token, number in (
            ("<NumSequences>", self.num_sequences),
            ("<FramesPerSeq>", self.frames_per_sequence),
            ("<LabelDim>", self.label_dim),
        ):
            writer.write_token(token)
            writer.write_int32(number)
        writer.write_token("<End2End>")
        writer.write_bool(bool(self.e2e_fsts))
        if self.e2e_fsts:
            writer.write_token("<Fsts>")
        for fst in self.fsts:
            write_fst(fst, writer, "compact_acceptor")
        if self.e2e_fsts:
            writer.write_token("</Fsts>")
        if len(self.alignment_pdfs):
            writer.write_token("<AlignmentPdfs>")
            writer.write_int_vector(self.alignment_pdfs)
        writer.write_token("</Supervision>")

    @property
    def fsts(self) -> list[Fst]:
        """The one FST, or the FSTs of all sequences."""
        return [self.fst] if self.fst is not None else self.e2e_fsts

    @property
    def rows(self) -> int:
        """Rows of the network's output that it speaks about."""
        return self.num_sequences * self.frames_per_sequence

    @property
    def total_weight(self) -> float:
        """The weight of all its frames."""
        return self.weight * self.rows


def check_labels(fst: Fst) -> None:
    """Refuse arcs without a frame.

    Raises:
        ShapeError: there are some, so the chain example that holds the FST was not normalized.
    """
    if len(fst.arcs) and fst.ilabel.min() <= 0:
        raise ShapeError(
            "the FST of a supervision has arcs without a label: nnet3-chain-normalize-egs makes"
            " such chain examples ready for training"
        )


def state_times(fst: Fst) -> np.ndarray:
    """The frame before which the path is in each state, int32, [states].

    Raises:
        ShapeError: paths to a state have different lengths, a state cannot be reached, the states
            are not sorted by time, or there are arcs without a label.
    """
    check_labels(fst)
    times = np.full(fst.states, -1, np.int32)
    if fst.states:
        times[0] = 0
    begin = fst.begin.tolist()
    first = 0
    while first < fst.states:  # layer by layer: states of one time stand together
        time = times[first]
        later = np.flatnonzero(times[first:] != time)
        last = first + int(later[0]) if len(later) else fst.states
        arcs = slice(begin[first], begin[last])
        following = times[fst.nextstate[arcs]]
        if time < 0 or np.any((following != -1) & (following != time + 1)):
            raise ShapeError("the FST of a supervision is not sorted by time")
        times[fst.nextstate[arcs]] = time + 1
        first = last
    ends = times[~np.isinf(fst.final)]
    if not len(ends) or ends.min() != ends.max() or ends[0] != times[-1]:
        raise ShapeError("the paths of a supervision's FST have different lengths")
    return times


def merge_supervision(parts: Sequence[Supervision]) -> Supervision:
    """The supervision of all sequences of `parts`, one after the other.

    Raises:
        ShapeError: weights, lengths, numbers of pdfs or forms of FSTs differ.
    """
    from ....kaldi.fst.algorithms.epsilons import (
        remove_epsilons,  # training reads what was merged before
    )

    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        for name in ("weight", "frames_per_sequence", "label_dim"):
            ours, theirs = getattr(first, name), getattr(part, name)
            if ours != theirs:
                raise ShapeError(f"supervisions with {name} {ours} and {theirs} cannot be merged")
        if bool(part.e2e_fsts) != bool(first.e2e_fsts):
            raise ShapeError("supervisions cannot be merged if only some are end-to-end")
    count = sum(part.num_sequences for part in parts)
    no_pdfs = np.zeros(0, np.int32)
    if first.e2e_fsts:
        fsts = [fst for part in parts for fst in part.e2e_fsts]
        return replace(first, num_sequences=count, e2e_fsts=fsts, alignment_pdfs=no_pdfs)
    fsts = [remove_epsilons(part.fst) for part in parts if part.fst is not None]
    fst = breadth_first(_concatenate(fsts))
    return replace(first, num_sequences=count, fst=fst, alignment_pdfs=no_pdfs)


def _concatenate(fsts: Sequence[Fst]) -> Fst:
    """One acceptor for a path of each, without epsilons: the final states of one FST get the arcs
    that leave the start of the next, whose start state goes."""
    source, label, weight, nextstate, final = [], [], [], [], []
    offset = 0
    ends = np.zeros(0, np.int64)  # final states of the FST before, and their weights
    end_weights = np.zeros(0, np.float32)
    for number, fst in enumerate(fsts):
        shift = offset - (number > 0)
        arc_source = fst.source()
        inner = arc_source > 0 if number else np.full(len(fst.arcs), True)
        source.append(arc_source[inner] + shift)
        for column, values in ((label, fst.ilabel), (weight, fst.weight)):
            column.append(values[inner])
        nextstate.append(fst.nextstate[inner] + shift)
        leaving = slice(0, int(fst.begin[1])) if number else slice(0, 0)
        width = leaving.stop
        source.append(repeated(ends, width))
        label.append(np.tile(fst.ilabel[leaving], len(ends)))
        weight.append((end_weights[:, None] + fst.weight[leaving]).ravel())
        nextstate.append(np.tile(fst.nextstate[leaving] + shift, len(ends)))
        is_final = ~np.isinf(fst.final)
        ends = np.flatnonzero(is_final) + shift
        end_weights = fst.final[is_final]
        offset = shift + fst.states
    final = np.full(offset, np.inf, np.float32)
    final[ends] = end_weights
    return Fst.of_arcs(
        np.concatenate(source),
        np.concatenate(label),
        np.concatenate(weight),
        np.concatenate(nextstate),
        final,
    )


def breadth_first(fst: Fst) -> Fst:
    """The same FST with its states in the order in which they are met; others are dropped."""
    number = {fst.start: 0}
    queue = deque([fst.start])
    begin, nextstate = fst.begin.tolist(), fst.nextstate.tolist()
    while queue:
        state = queue.popleft()
        for following in nextstate[begin[state] : begin[state + 1]]:
            if following not in number:
                number[following] = len(number)
                queue.append(following)
    order = np.full(fst.states, -1)
    order[list(number)] = list(number.values())
    source = order[fst.source()]
    kept = source >= 0
    final = np.empty(len(number), np.float32)
    final[order[order >= 0]] = fst.final[order >= 0]
    return Fst.of_arcs(
        source[kept],
        fst.ilabel[kept],
        fst.weight[kept],
        order[fst.nextstate[kept]],
        final,
        fst.olabel[kept],
    )
