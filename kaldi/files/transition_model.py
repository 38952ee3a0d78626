"""Transition models: from binary to text and back, and their transitions by number.

A transition model says which HMM states a phone has (its topology), which output of the network
belongs to each, and how likely each transition is. Format: Kaldi's `hmm/transition-model.cc` and
`hmm/hmm-topology.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import FormatError
from .kaldi_io import Reader, Writer

_NO_PDF = -1
_WIDTHS = {"<Triples>": 3, "<Tuples>": 4}


@dataclass
class HmmState:
    """A state: the classes of its output and of its self-loop (-1: none), and its transitions
    as (state, probability)."""

    forward: int = _NO_PDF
    self_loop: int = _NO_PDF
    transitions: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Transitions:
    """The transitions of a model; number 0 is none.

    Attributes:
        state: the transition state that each leaves, from 1 on; int64. pdf: its output, int64.
        is_loop: whether it goes back to its state, bool.
    """

    state: np.ndarray
    pdf: np.ndarray
    is_loop: np.ndarray

    @property
    def num_pdfs(self) -> int:
        """How many outputs there are."""
        return int(self.pdf.max(initial=-1)) + 1


@dataclass
class TransitionModel:
    """A transition model as files hold it.

    Attributes:
        phones: in rising order.
        entry_of: for each phone number the entry it belongs to, or -1.
        entries: the states of each topology.
        opening: `<Triples>`, or `<Tuples>` where self-loops have outputs of their own.
        tuples: int32, a row for each transition state: phone, HMM state, output, and with
            `<Tuples>` the output of the self-loop.
        log_probs: float32, of each transition.
    """

    phones: list[int]
    entry_of: list[int]
    entries: list[list[HmmState]]
    opening: str
    tuples: np.ndarray
    log_probs: np.ndarray

    @property
    def is_hmm(self) -> bool:
        """Whether no self-loop has an output of its own."""
        return all(s.forward == s.self_loop for states in self.entries for s in states)

    @classmethod
    def read_from(cls, reader: Reader) -> TransitionModel:
        """Read it from its opening token on.

        Raises:
            FormatError: it is damaged.
        """
        reader.expect_token("<TransitionModel>")
        phones, entry_of, entries = read_topology(reader)
        opening = reader.expect_token(*_WIDTHS)
        width = _WIDTHS[opening]
        count = _read_count(reader, 2)
        values = [reader.read_int32() for _ in range(count * width)]
        reader.expect_token("</" + opening[1:])
        reader.expect_token("<LogProbs>")
        log_probs = reader.read_vector(np.float32)
        reader.expect_token("</LogProbs>")
        reader.expect_token("</TransitionModel>")
        tuples = np.array(values, np.int32).reshape(count, width)
        return cls(phones, entry_of, entries, opening, tuples, log_probs)

    def transitions(self) -> Transitions:
        """All transitions, by their number (transition-id).

        Raises:
            FormatError: the topology has no such phone or state.
        """
        state = [0]
        pdf = [-1]
        loop = [False]
        for number, (phone, place, *pdfs) in enumerate(self.tuples.tolist(), 1):
            entry = self.entry_of[phone] if 0 <= phone < len(self.entry_of) else -1
            if not 0 <= entry < len(self.entries) or not 0 <= place < len(self.entries[entry]):
                raise FormatError(f"no state {place} of phone {phone} in the topology")
            for target, _ in self.entries[entry][place].transitions:
                state.append(number)
                loop.append(target == place)
                pdf.append(pdfs[-1] if loop[-1] else pdfs[0])
        return Transitions(np.array(state), np.array(pdf), np.array(loop))

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does, opening and closing token included."""
        end = "" if writer.binary else "\n"
        _tokens(writer, end, "<TransitionModel>", "<Topology>")
        if writer.binary:
            self._write_binary_topology(writer)
        else:
            self._write_text_topology(writer)
        _tokens(writer, end, "</Topology>")
        writer.write_token(self.opening)
        writer.write_int32(len(self.tuples))
        writer.write_raw(end)
        for row in self.tuples.tolist():
            for value in row:
                writer.write_int32(value)
            writer.write_raw(end)
        _tokens(writer, end, "</" + self.opening[1:], "<LogProbs>")
        writer.write_vector(self.log_probs)
        _tokens(writer, end, "</LogProbs>", "</TransitionModel>")

    def _write_binary_topology(self, writer: Writer) -> None:
        writer.write_int_vector(np.array(self.phones, np.int32))
        writer.write_int_vector(np.array(self.entry_of, np.int32))
        if not self.is_hmm:
            writer.write_int32(-1)
        writer.write_int32(len(self.entries))
        for states in self.entries:
            writer.write_int32(len(states))
            for state in states:
                writer.write_int32(state.forward)
                if not self.is_hmm:
                    writer.write_int32(state.self_loop)
                writer.write_int32(len(state.transitions))
                _write_transitions(writer, state)

    def _write_text_topology(self, writer: Writer) -> None:
        for number, states in enumerate(self.entries):
            phones = [str(p) for p, entry in enumerate(self.entry_of) if entry == number]
            _tokens(writer, "\n", "<TopologyEntry>", "<ForPhones>")
            writer.write_raw("".join(f"{phone} " for phone in phones) + "\n")
            _tokens(writer, "\n", "</ForPhones>")
            for i, state in enumerate(states):
                writer.write_token("<State>")
                writer.write_int32(i)
                if state.forward != _NO_PDF:
                    writer.write_token("<PdfClass>" if self.is_hmm else "<ForwardPdfClass>")
                    writer.write_int32(state.forward)
                    if not self.is_hmm:
                        writer.write_token("<SelfLoopPdfClass>")
                        writer.write_int32(state.self_loop)
                _write_transitions(writer, state)
                _tokens(writer, "\n", "</State>")
            _tokens(writer, "\n", "</TopologyEntry>")


def convert(data: bytes, to_binary: bool, *, from_binary: bool) -> bytes:
    """The bytes of a transition model (without the header of a file) in the other form.

    Raises:
        FormatError: they are damaged.
    """
    model = TransitionModel.read_from(Reader(data, name="transition model", binary=from_binary))
    writer = Writer(to_binary, header=False)
    model.write_to(writer)
    return writer.getvalue()


def _tokens(writer: Writer, end: str, *tokens: str) -> None:
    for token in tokens:
        writer.write_token(token)
        writer.write_raw(end)


def _write_transitions(writer: Writer, state: HmmState) -> None:
    for target, probability in state.transitions:
        if not writer.binary:
            writer.write_token("<Transition>")
        writer.write_int32(target)
        writer.write_float(probability)


def _read_count(reader: Reader, least: int) -> int:
    """A number of things that take at least `least` bytes each."""
    start = reader.offset
    count = reader.read_int32()
    if count < 0 or count * least > reader.remaining():
        raise reader.error(f"{count} entries cannot follow here", start)
    return count


def read_topology(reader: Reader) -> tuple[list[int], list[int], list[list[HmmState]]]:
    """A topology, from its opening token on: `phones`, `entry_of`, `entries`.

    Raises:
        FormatError: it is damaged.
    """
    reader.expect_token("<Topology>")
    return _read_binary_topology(reader) if reader.binary else _read_text_topology(reader)


def _read_binary_topology(reader: Reader) -> tuple[list[int], list[int], list[list[HmmState]]]:
    phones = reader.read_int_vector().tolist()
    entry_of = reader.read_int_vector().tolist()
    start = reader.offset
    is_hmm = reader.read_int32() != -1
    if is_hmm:
        reader.offset = start
    entries = []
    for _ in range(_read_count(reader, 5)):
        states = []
        for _ in range(_read_count(reader, 10)):
            forward = reader.read_int32()
            state = HmmState(forward, forward if is_hmm else reader.read_int32())
            for _ in range(_read_count(reader, 10)):
                state.transitions.append((reader.read_int32(), reader.read_float()))
            states.append(state)
        entries.append(states)
    reader.expect_token("</Topology>")
    return phones, entry_of, entries


def _read_text_topology(reader: Reader) -> tuple[list[int], list[int], list[list[HmmState]]]:
    entries: list[list[HmmState]] = []
    entry_by_phone: dict[int, int] = {}
    while reader.expect_token("<TopologyEntry>", "</Topology>") == "<TopologyEntry>":
        reader.expect_token("<ForPhones>")
        while reader.peek_token() != "</ForPhones>":
            start = reader.offset
            phone = reader.read_int32()
            if not 0 < phone <= reader.size or phone in entry_by_phone:
                raise reader.error(f"{phone} is no phone, or is in two entries", start)
            entry_by_phone[phone] = len(entries)
        reader.expect_token("</ForPhones>")
        states: list[HmmState] = []
        while reader.expect_token("<State>", "</TopologyEntry>") == "<State>":
            states.append(_read_text_state(reader, len(states)))
        entries.append(states)
    phones = sorted(entry_by_phone)
    entry_of = [entry_by_phone.get(phone, -1) for phone in range(max(phones, default=-1) + 1)]
    return phones, entry_of, entries


def _read_text_state(reader: Reader, number: int) -> HmmState:
    start = reader.offset
    if reader.read_int32() != number:
        raise reader.error(f"state {number} was expected here", start)
    state = HmmState()
    token = reader.expect_token("<PdfClass>", "<ForwardPdfClass>", "<Transition>", "</State>")
    if token in ("<PdfClass>", "<ForwardPdfClass>"):
        state.forward = state.self_loop = reader.read_int32()
        if token == "<ForwardPdfClass>":
            reader.expect_token("<SelfLoopPdfClass>")
            state.self_loop = reader.read_int32()
        token = reader.expect_token("<Transition>", "</State>")
    while token == "<Transition>":
        state.transitions.append((reader.read_int32(), reader.read_float()))
        token = reader.expect_token("<Transition>", "</State>")
    return state
