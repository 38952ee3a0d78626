"""Phonetic decision trees: which outputs of a network the states of phones have.

With a tree and a topology of HMMs goes a transition model, as Kaldi makes it for new models.
Formats and order: Kaldi's `tree/event-map.cc`, `tree/context-dep.cc`, `hmm/transition-model.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.python.cached import cached_property
from ...framework.base.untrusted.limits import check_limit
from .kaldi_io import Reader, Writer
from .transition_model import HmmState, TransitionModel, read_topology

PDF_CLASS = -1
"""The key that is no place in the window of phones."""
_DEEPEST = 200
_NO_PDF = -1


@dataclass(frozen=True)
class Leaf:
    """An output."""

    answer: int


@dataclass(frozen=True)
class Table:
    """A subtree for each value of a key; None where there is none."""

    key: int
    children: tuple[EventMap | None, ...]


@dataclass(frozen=True)
class Split:
    """One subtree for some values of a key, another for all others."""

    key: int
    values: frozenset[int]
    yes: EventMap
    no: EventMap


EventMap: TypeAlias = Leaf | Table | Split


def answers(tree: EventMap | None, known: Mapping[int, int]) -> set[int]:
    """All outputs that a tree may give where only some keys are known."""
    if tree is None:
        return set()
    if isinstance(tree, Leaf):
        return {tree.answer}
    value = known.get(tree.key)
    if isinstance(tree, Split):
        if value is not None:
            return answers(tree.yes if value in tree.values else tree.no, known)
        return answers(tree.yes, known) | answers(tree.no, known)
    if value is None:
        return set().union(*(answers(child, known) for child in tree.children))
    return answers(tree.children[value], known) if 0 <= value < len(tree.children) else set()


def _keys(tree: EventMap | None) -> set[int]:
    """All keys that a tree asks about."""
    keys: set[int] = set()
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Table):
            keys.add(part.key)
            waiting += part.children
        elif isinstance(part, Split):
            keys.add(part.key)
            waiting += (part.yes, part.no)
    return keys


def children(tree: Table | Split) -> tuple[EventMap | None, ...]:
    """The subtrees of a question."""
    return tree.children if isinstance(tree, Table) else (tree.yes, tree.no)


def with_leaves(tree: EventMap, new: Callable[[int], EventMap]) -> EventMap:
    """A tree in which each leaf is what `new` makes of its answer."""
    done: list[EventMap | None] = []
    waiting: list[tuple[EventMap | None, bool]] = [(tree, False)]
    while waiting:
        part, below = waiting.pop()
        if part is None or isinstance(part, Leaf):
            done.append(part and new(part.answer))
        elif not below:
            waiting.append((part, True))
            waiting += [(child, False) for child in reversed(children(part))]
        else:
            first = len(done) - len(children(part))
            changed = tuple(done[first:])
            del done[first:]
            if isinstance(part, Table):
                done.append(Table(part.key, changed))
            else:
                yes, no = changed
                assert yes is not None and no is not None  # as they were
                done.append(Split(part.key, part.values, yes, no))
    (changed_tree,) = done
    assert changed_tree is not None
    return changed_tree


@dataclass(frozen=True)
class ContextDependency:
    """A tree with its window of phones.

    Attributes:
        width: phones in the window. central: the place of the phone whose output is wanted.
        tree: its keys are places in the window, and -1, the class of the output.
    """

    width: int
    central: int
    tree: EventMap

    @classmethod
    def read(cls, reader: Reader) -> ContextDependency:
        """Read a tree, from its opening token on.

        Raises:
            FormatError: it is damaged.
        """
        reader.expect_token("ContextDependency")
        start = reader.offset
        width, central = reader.read_int32(), reader.read_int32()
        if not 0 <= central < width:
            raise reader.error(f"place {central} in a window of {width} phones", start)
        try:
            check_limit("context", width, "the window of phones of a decision tree")
        except FormatError as error:
            raise reader.error(str(error), start) from None
        if reader.expect_token("ToLength", "ToPdf") == "ToLength":
            _read_map(reader, 0)  # old files say how many classes a phone has
            reader.expect_token("ToPdf")
        tree = _read_map(reader, 0)
        reader.expect_token("EndContextDependency")
        if tree is None:
            raise reader.error("an empty tree", start)
        return cls(width, central, tree)

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does, opening and closing token included."""
        writer.write_token("ContextDependency")
        writer.write_int32(self.width)
        writer.write_int32(self.central)
        writer.write_token("ToPdf")
        _write_map(writer, self.tree)
        writer.write_token("EndContextDependency")

    @property
    def num_pdfs(self) -> int:
        """How many outputs there are."""
        return max(answers(self.tree, {}), default=-1) + 1

    def outputs(self, window: Mapping[int, int], pdf_class: int) -> set[int]:
        """The outputs of a class of states in a window that may be known in part."""
        return answers(self.tree, {**window, PDF_CLASS: pdf_class})

    def pairs(
        self,
        phones: list[int],
        window: dict[int, int],
        forward: int,
        self_loop: int,
        tried: list[int] | None = None,
    ) -> set[tuple[int, int]]:
        """Outputs of a state and of its self-loop that occur together; -1 where there is none.

        Args:
            tried: a count of the windows that were tried so far, which continues here.

        Raises:
            FormatError: there are too many windows.
        """
        ahead = self.outputs(window, forward)
        if self_loop < 0:
            return {(pdf, _NO_PDF) for pdf in ahead}
        stay = self.outputs(window, self_loop)
        open_places = [place for place in self.asked if place not in window]
        if min(len(ahead), len(stay)) == 1 or not open_places:
            return {(one, other) for one in ahead for other in stay}
        place = min(open_places, key=lambda place: abs(place - self.central))
        tried = [0] if tried is None else tried
        pairs: set[tuple[int, int]] = set()
        for phone in (0, *phones):  # 0: the window goes beyond the utterance
            tried[0] += 1
            check_limit("alternatives", tried[0], "the windows of phones of the decision tree")
            pairs |= self.pairs(phones, {**window, place: phone}, forward, self_loop, tried)
        return pairs

    @cached_property
    def asked(self) -> list[int]:
        """The places of the window that the tree asks about."""
        return sorted(key for key in _keys(self.tree) if 0 <= key < self.width)


def _read_map(reader: Reader, depth: int) -> EventMap | None:
    """A subtree, or None where the file has none."""
    if depth > _DEEPEST:
        raise reader.error(f"a tree of more than {_DEEPEST} levels")
    kind = reader.expect_token("NULL", "CE", "TE", "SE")
    if kind == "NULL":
        return None
    if kind == "CE":
        return Leaf(reader.read_int32())
    key = reader.read_int32()
    if kind == "TE":
        size = _read_size(reader)
        reader.expect_token("(")
        children = tuple(_read_map(reader, depth + 1) for _ in range(size))
        reader.expect_token(")")
        return Table(key, children)
    values = frozenset(reader.read_int_vector().tolist())
    start = reader.offset
    reader.expect_token("{")
    yes, no = _read_map(reader, depth + 1), _read_map(reader, depth + 1)
    reader.expect_token("}")
    if yes is None or no is None:
        raise reader.error("a split wants two subtrees", start)
    return Split(key, values, yes, no)


def _write_map(writer: Writer, tree: EventMap) -> None:
    end = "" if writer.binary else "\n"
    waiting: list[EventMap | None | str] = [tree]  # a string closes a question
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            writer.write_token(part)
            writer.write_raw(end)
        elif part is None:
            writer.write_token("NULL")
        elif isinstance(part, Leaf):
            writer.write_token("CE")
            writer.write_int32(part.answer)
        else:
            is_table = isinstance(part, Table)
            writer.write_token("TE" if is_table else "SE")
            writer.write_int32(part.key)
            if isinstance(part, Table):
                writer.write_int(len(part.children), signed=False)
            else:
                writer.write_int_vector(np.array(sorted(part.values), np.int32))
            writer.write_token("(" if is_table else "{")
            waiting += [")" if is_table else "}", *reversed(children(part))]


def _read_size(reader: Reader) -> int:
    """The size of a table, which is stored without a sign."""
    start = reader.offset
    if reader.binary:
        data = reader.read_bytes(5)
        size = int.from_bytes(data[1:], "little")
        if data[0] not in (4, 256 - 4):
            raise reader.error("the size of a table was expected here", start)
    else:
        size = reader.read_int32()
    if not 0 <= size <= reader.remaining():
        raise reader.error(f"a table of {size} subtrees cannot follow here", start)
    return size


def new_transition_model(tree: ContextDependency, topology: Reader) -> TransitionModel:
    """The transition model of a tree and a topology, with the topology's probabilities.

    Args:
        topology: stands before `<Topology>`.

    Raises:
        FormatError: the topology is damaged, or the tree has no outputs for one of its phones.
    """
    phones, entry_of, entries = read_topology(topology)
    is_hmm = all(s.forward == s.self_loop for states in entries for s in states)
    rows: set[tuple[int, ...]] = set()
    tried = [0]
    for phone in phones:
        window = {tree.central: phone}
        for number, state in enumerate(entries[entry_of[phone]]):
            if state.forward == _NO_PDF:
                continue
            if is_hmm:
                outputs = {(pdf,) for pdf in tree.outputs(window, state.forward)}
            else:
                outputs = tree.pairs(phones, window, state.forward, state.self_loop, tried)
            if not outputs:
                raise FormatError(f"the tree has no output for state {number} of phone {phone}")
            rows |= {(phone, number, *pair) for pair in outputs}
    tuples = sorted(rows)
    log_probs = [0.0, *_log_probs(tuples, entry_of, entries)]
    return TransitionModel(
        phones,
        entry_of,
        entries,
        "<Triples>" if is_hmm else "<Tuples>",
        np.array(tuples, np.int32),
        np.array(log_probs, np.float32),
    )


def _log_probs(
    tuples: list[tuple[int, ...]], entry_of: list[int], entries: list[list[HmmState]]
) -> Iterator[float]:
    """The logarithm of the probability of each transition, in the order of its number."""
    for phone, number, *_ in tuples:
        for _, probability in entries[entry_of[phone]][number].transitions:
            if not probability > 0:
                raise FormatError(f"a transition of phone {phone} has probability {probability}")
            yield float(np.log(np.float32(probability)))
