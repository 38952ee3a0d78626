"""What programs that decode read: the acoustic model, the graph, the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import click
import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.python.cached import cached_property
from ....kaldi.files.kaldi_io import Reader
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.files.byte_file import ByteFile
from ....kaldi.fst.fst import Fst
from ....kaldi.lattices.phone_determinize import phone_starts
from ....kaldi.lattices.transition_ids import TransitionIds
from ....kaldi.tables.streams import Files, is_regular, open_reader
from ....kaldi.tables.tables import RandomAccessTable, read_table
from ....nnet3.inference.pieces import Utterance
from ....nnet3.network.model import AmNnetSimple
from ....nnet3.programs.compute import Utterances
from ...fst import graph_cache
from ...fst.grammar_graph import SearchGraph
from ...fst.graph import LookaheadGraph, StaticGraph
from ...fst.graph_folder import composed_graph, graph_fst, read_labels
from ...fst.words import Words

_Graph = TypeVar("_Graph")
_Searched = TypeVar("_Searched", bound=SearchGraph)


@dataclass(frozen=True)
class KnownTransitions:
    """The transition model in a file.

    Attributes:
        name: of the file. ids: phone and output of each transition-id.
        starts: of each transition-id, the phone that begins with it.
    """

    name: str
    ids: TransitionIds
    starts: list[int]

    @classmethod
    def of(cls, model: TransitionModel, name: str) -> KnownTransitions:
        """The transitions of a transition model."""
        return KnownTransitions(name, TransitionIds.of(model), phone_starts(model))

    @cached_property
    def pdfs(self) -> np.ndarray:
        """The output of each transition-id."""
        return np.array(self.ids.pdf)

    @cached_property
    def phones(self) -> np.ndarray:
        """The phone of each transition-id."""
        return np.array(self.ids.phone)

    def checked(self, graph: _Searched, name: str) -> _Searched:
        """The graph, whose input labels are transition-ids of this model.

        Raises:
            FormatError: one is not.
        """
        if graph.largest > self.ids.count:
            raise FormatError(
                f"{name}: the graph has the input label {graph.largest}, {self.name} has"
                f" {self.ids.count} transition-ids: they are of two models"
            )
        return graph


@dataclass(frozen=True)
class AcousticModel(KnownTransitions):
    """An acoustic model in a file, `final.mdl`.

    Attributes:
        network: with its priors.
    """

    network: AmNnetSimple

    @classmethod
    def read(cls, name: str) -> AcousticModel:
        """Read it; the name may be a command.

        Raises:
            FormatError: it is none or damaged.
        """
        network = AmNnetSimple.read_from(open_reader(name))
        reader = Reader(network.transition_model, name=name, binary=network.binary)
        known = KnownTransitions.of(TransitionModel.read_from(reader), name)
        outputs = network.nnet.output_dim("output")
        if outputs != known.ids.num_pdfs:
            raise FormatError(
                f"{name}: the network has {outputs} outputs, its transition model"
                f" {known.ids.num_pdfs}"
            )
        return cls(known.name, known.ids, known.starts, network)


def read_graph(name: str) -> StaticGraph:
    """A decoding graph, `HCLG.fst`: an FST of any type that is read; the name may be a command.

    What a plain file is read to is kept in the cache folder (`OPSCOPE_CACHE`).

    Raises:
        FormatError: the file is something else, is cut or damaged.
    """
    key = graph_cache.key_of([name]) if is_regular(name) else ""
    known = graph_cache.load(key) if key else None
    if known is not None and isinstance(known[0], StaticGraph):
        return known[0]
    graph = StaticGraph.of(graph_fst(ByteFile.open(name) if key else _streamed(name)))
    if key:
        graph_cache.keep(key, graph, None)
    return graph


def read_composed(first: str, grammar: str, symbols: str) -> LookaheadGraph:
    """HCL and G, to be composed with look-ahead: a decoding graph; it is kept as others are.

    Args:
        first, grammar: FSTs, of which the first has reachability data of its output labels.
        symbols: a file of the input labels that are epsilons, one in each line.

    Raises:
        FormatError: a file is something else, is cut or damaged.
    """
    names = first, grammar, symbols
    key = graph_cache.key_of(names) if all(map(is_regular, names)) else ""
    known = graph_cache.load(key) if key else None
    if known is not None and isinstance(known[0], LookaheadGraph):
        return known[0]
    left, right = (
        graph_fst(ByteFile.open(name) if key else _streamed(name)) for name in (first, grammar)
    )
    graph = composed_graph(left, right, read_labels(symbols), first)
    if key:
        graph_cache.keep(key, graph, None)
    return graph


def _streamed(name: str) -> ByteFile:
    reader = Files().reader(name)
    return ByteFile(reader.data[reader.offset :], name)


def checked_fst(fst: Fst, name: str) -> Fst:
    """An FST of a table, which may be empty.

    Raises:
        FormatError: it is.
    """
    if not 0 <= fst.start < fst.states:
        raise FormatError(f"{name}: the graph is empty")
    return fst


def with_graphs(
    inputs: Utterances,
    graphs: str,
    features: str,
    absent: str,
    build: Callable[[str, Fst], _Graph | None],
    waiting: list[_Graph],
) -> Iterator[Utterance]:
    """The utterances of a table of graphs; the graph of each is appended to `waiting`.

    Args:
        absent: what is said of an utterance without features, with `{}` for its key.
        build: builds the graph of an utterance; None where it has reported why there is none.
    """
    table = RandomAccessTable(features, "matrix")
    for key, fst in read_table(graphs, "fst"):
        matrix = table.get(key)
        if matrix is None:
            inputs.fail(absent.format(key))
        elif (graph := build(key, fst)) is not None:
            utterance = inputs.utterance(key, matrix)
            if utterance is not None:
                waiting.append(graph)
                yield utterance


class SpokenWords:
    """Prints the words of utterances to stderr, where there is a table of words.

    Args:
        table: its file; empty: nothing is printed.

    Raises:
        FormatError: it is no table of words.
    """

    def __init__(self, table: str) -> None:
        self._words = Words.read(table) if table else None

    def tell(self, key: str, labels: list[int]) -> None:
        """Print what is said in an utterance.

        Raises:
            FormatError: the table lacks a word.
        """
        if self._words is not None:
            texts = [self._text(label) for label in labels]
            click.echo("".join(f"{text} " for text in (key, *texts)), err=True)

    def _text(self, label: int) -> str:
        words = self._words
        text = words[label] if words is not None and label < len(words) else ""
        if not text:
            raise FormatError(f"Word-id {label} not in symbol table.")
        return text
