"""nnet3-latgen-faster and its forms: by threads, in full minibatches, as streams, other graphs.

Models of Gaussians decode in the same way.

Source: Kaldi's `nnet3bin/nnet3-latgen-*.cc`, `decoder/decoder-wrappers.cc`,
`nnet3/nnet-batch-compute.cc`, `gmmbin/gmm-latgen-faster-parallel.cc`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from ....framework.base.errors import FormatError, RunError
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.fst import Fst
from ....kaldi.lattices.lattice import CompactLattice
from ....kaldi.lattices.plain import from_raw, to_lattice
from ....kaldi.lattices.raw_lattice import RawLattice
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter
from ....nnet3 import LoopedComputer, LoopedOptions
from ....nnet3.inference.batches import BatchComputer, BatchOptions
from ....nnet3.inference.chunks import ChunkComputer, UtteranceComputer
from ....nnet3.inference.pieces import Utterance
from ....nnet3.programs.base.options import DEBUG, GPU, chosen_place, errors_tell
from ....nnet3.programs.base.passes import chosen_passes, optimization_options
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ....nnet3.programs.compute import (
    IVECTORS,
    Utterances,
    chunk_options,
    chunked,
    tell_batches,
    tell_chunk,
)
from ...fst.grammar_graph import GrammarGraph, SearchGraph
from ...fst.graph import StaticGraph
from ...search.decoder import BestPath, Decoder
from ...search.options import DECODING_SCALE
from ...search.raw_lattice import raw_lattice
from ...trees.gaussian_models import GaussianModel
from .acoustic_model import (
    AcousticModel,
    KnownTransitions,
    SpokenWords,
    checked_fst,
    read_composed,
    read_graph,
    with_graphs,
)
from .decoder_options import DECODER, SYMBOLS, determinize_options, search_options
from .whole_lattices import determinized_lattice

_Result = TypeVar("_Result")
_LATTICES = "<features-rspecifier>", "<lattice-wspecifier>"
_OUTPUTS = *_LATTICES, "[<words-wspecifier>]", "[<alignments-wspecifier>]"
_FILES = "<nnet-in>", "<fst-in|fsts-rspecifier>", *_OUTPUTS
_PARTIAL = Option(
    "allow-partial", False, "Also write what was found where no final state was reached"
)
_SCALED = "Factor for log-likelihoods"
_DECODING = (
    *DECODER,
    *IVECTORS,
    SYMBOLS,
    _PARTIAL,
    GPU,
    *DEBUG,
    *optimization_options(),
)
_CHUNKS = chunk_options(DECODING_SCALE)
_STREAMS = options_of(LoopedOptions(acoustic_scale=DECODING_SCALE))
_THREADS = Option("num-threads", 1, "Utterances that are searched at once")
_PARALLEL = (
    _THREADS,
    Option(
        "num-threads-total",
        0,
        "Utterances that may wait for those before them, and these (<= 0: 20 more than"
        " --num-threads)",
    ),
)
_MORE_WAITING = 20


@program(
    "nnet3-latgen-faster",
    "Generate lattices using nnet3 neural net model.",
    _FILES,
    *_CHUNKS,
    *_DECODING,
)
def nnet3_latgen_faster(options: SimpleNamespace, *files: str) -> None:
    _by_chunks(options, *files)


@program(
    "nnet3-latgen-faster-parallel",
    "Generate lattices using nnet3 neural net model, searched by several threads.",
    _FILES,
    *_CHUNKS,
    *_DECODING,
    *_PARALLEL,
)
def nnet3_latgen_faster_parallel(options: SimpleNamespace, *files: str) -> None:
    _by_chunks(options, *files)


@program(
    "nnet3-latgen-faster-looped",
    "Generate lattices using nnet3 neural net model, each frame computed once, as online decoding"
    " does.",
    _FILES,
    *_STREAMS,
    *_DECODING,
)
def nnet3_latgen_faster_looped(options: SimpleNamespace, *files: str) -> None:
    _by_streams(options, *files)


@program(
    "nnet3-latgen-faster-looped-parallel",
    "Generate lattices using nnet3 neural net model, each frame computed once, as online decoding"
    " does, and searched by several threads.",
    _FILES,
    *_STREAMS,
    *_DECODING,
    *_PARALLEL,
)
def nnet3_latgen_faster_looped_parallel(options: SimpleNamespace, *files: str) -> None:
    _by_streams(options, *files)


@program(
    "nnet3-latgen-faster-batch",
    "Generate lattices using nnet3 neural net model, chunks of many utterances at once, in full"
    " minibatches.",
    ("<nnet-in>", "<fst-in>", *_LATTICES),
    *chunk_options(DECODING_SCALE, BatchOptions),
    *_DECODING,
    _THREADS,
)
def nnet3_latgen_faster_batch(
    options: SimpleNamespace, model: str, graph: str, features: str, lattices: str
) -> None:
    _refuse_tables(graph)
    cut = chunked(options, BatchOptions)
    acoustic, computer = _opened(options, model, BatchComputer, cut)
    try:
        _decode(options, acoustic, computer, _read(acoustic, graph), features, lattices)
    finally:
        tell_batches(options, computer)


@program(
    "nnet3-latgen-faster-lookahead",
    "Generate lattices using nnet3 neural net model and standalone HCL.fst and G.fst, which are"
    " composed with look-ahead as the search goes.",
    ("<nnet-in>", "<hcl-fst-in>", "<g-fst-in>", "<disambig-syms>", *_OUTPUTS),
    *_CHUNKS,
    *_DECODING,
)
def nnet3_latgen_faster_lookahead(
    options: SimpleNamespace,
    model: str,
    first: str,
    grammar: str,
    symbols: str,
    features: str,
    *outputs: str,
) -> None:
    _refuse_tables(first)
    acoustic, computer = _in_chunks(options, model)
    graph = acoustic.checked(read_composed(first, grammar, symbols), first)
    _decode(options, acoustic, computer, graph, features, *outputs)


@program(
    "nnet3-latgen-grammar",
    "Generate lattices using nnet3 neural net model, and the graphs of a grammar, which call each"
    " other (a file of Kaldi's make-grammar-fst).",
    ("<nnet-in>", "<grammar-fst-in>", *_OUTPUTS),
    *_CHUNKS,
    *_DECODING,
)
def nnet3_latgen_grammar(
    options: SimpleNamespace, model: str, grammar: str, features: str, *outputs: str
) -> None:
    acoustic, computer = _in_chunks(options, model)
    graph = acoustic.checked(GrammarGraph.read(open_reader(grammar)), grammar)
    _decode(options, acoustic, computer, graph, features, *outputs)


def _by_chunks(
    options: SimpleNamespace, model: str, graphs: str, features: str, *outputs: str
) -> None:
    acoustic, computer = _in_chunks(options, model)
    _decode(options, acoustic, computer, _read(acoustic, graphs), features, *outputs)


def _by_streams(
    options: SimpleNamespace, model: str, graphs: str, features: str, *outputs: str
) -> None:
    cut = from_values(LoopedOptions, vars(options))
    acoustic, computer = _opened(options, model, LoopedComputer, cut)
    _decode(options, acoustic, computer, _read(acoustic, graphs), features, *outputs)


def _mapped(
    options: SimpleNamespace, model: str, graphs: str, loglikes: str, *outputs: str
) -> None:
    search_options(options)
    transitions = KnownTransitions.of(TransitionModel.read_from(open_reader(model)), model)
    graph = _read(transitions, graphs)
    given = _Given(options.acoustic_scale, lambda matrix: matrix)
    _decode(options, transitions, given, graph, loglikes, *outputs)


def _by_gaussians(
    options: SimpleNamespace, model: str, graphs: str, features: str, *outputs: str
) -> None:
    search_options(options)
    gaussians = GaussianModel.read(open_reader(model))
    transitions = KnownTransitions.of(gaussians.transitions, model)
    graph = _read(transitions, graphs)
    prune = options.log_sum_exp_prune
    given = _Given(options.acoustic_scale, lambda matrix: gaussians.log_likelihoods(matrix, prune))
    _decode(options, transitions, given, graph, features, *outputs)


class _Given:
    """Gives log-likelihoods of a table or of Gaussians, where others run a network."""

    def __init__(self, scale: float, loglikes: Callable[[np.ndarray], np.ndarray]) -> None:
        self._scale = np.float32(scale)
        self._loglikes = loglikes

    def compute_all(self, utterances: Iterable[Utterance]) -> Iterator[tuple[str, np.ndarray]]:
        """Key and scaled log-likelihoods of each utterance."""
        for utterance in utterances:
            with errors_tell(utterance.key):
                loglikes = self._loglikes(utterance.features)
            yield utterance.key, loglikes * self._scale


_LOGLIKES = (
    "<trans-model-in>",
    "<fst-in|fsts-rspecifier>",
    "<loglikes-rspecifier>",
    *_OUTPUTS[1:],
)
_GIVEN = (*DECODER, SYMBOLS, _PARTIAL, Option("acoustic-scale", DECODING_SCALE, _SCALED))


@program(
    "latgen-faster-mapped",
    "Generate lattices of log-likelihoods, matrices with a column for each pdf.",
    _LOGLIKES,
    *_GIVEN,
)
def latgen_faster_mapped(options: SimpleNamespace, *files: str) -> None:
    _mapped(options, *files)


@program(
    "latgen-faster-mapped-parallel",
    "Generate lattices of log-likelihoods, matrices with a column for each pdf, searched by several"
    " threads.",
    _LOGLIKES,
    *_GIVEN,
    *_PARALLEL,
)
def latgen_faster_mapped_parallel(options: SimpleNamespace, *files: str) -> None:
    _mapped(options, *files)


_MIXTURES = (
    *_GIVEN,
    Option(
        "log-sum-exp-prune",
        0.0,
        "Leave out Gaussians so far below the best one of a pdf (if > 0)",
    ),
)


@program(
    "gmm-latgen-faster",
    "Generate lattices using a model of Gaussian mixtures.",
    ("<model-in>", *_FILES[1:]),
    *_MIXTURES,
)
def gmm_latgen_faster(options: SimpleNamespace, *files: str) -> None:
    _by_gaussians(options, *files)


@program(
    "gmm-latgen-faster-parallel",
    "Generate lattices using a model of Gaussian mixtures, searched by several threads.",
    ("<model-in>", *_FILES[1:]),
    *_MIXTURES,
    *_PARALLEL,
)
def gmm_latgen_faster_parallel(options: SimpleNamespace, *files: str) -> None:
    _by_gaussians(options, *files)


def _opened(
    options: SimpleNamespace, model: str, kind: type[Any], cut: Any
) -> tuple[AcousticModel, Any]:
    """The acoustic model, and a computer of that kind for it."""
    search_options(options)  # wrong values are refused before anything is read
    acoustic = AcousticModel.read(model)
    how = True, chosen_place(options.use_gpu), chosen_passes(options)
    with errors_tell(model):
        return acoustic, kind(acoustic.network, cut, *how)


def _in_chunks(options: SimpleNamespace, model: str) -> tuple[AcousticModel, ChunkComputer]:
    acoustic, computer = _opened(options, model, ChunkComputer, chunked(options))
    tell_chunk(options, computer)
    return acoustic, computer


def _refuse_tables(graph: str) -> None:
    if is_specifier(graph):
        raise FormatError(f"{graph}: a table of graphs; one graph is wanted here")


def _read(acoustic: KnownTransitions, graphs: str) -> SearchGraph | str:
    """The graph of all utterances, or the table that has one for each."""
    if is_specifier(graphs):
        return graphs
    return acoustic.checked(read_graph(graphs), graphs)


def _decode(
    options: SimpleNamespace,
    acoustic: KnownTransitions,
    computer: UtteranceComputer | _Given,
    graphs: SearchGraph | str,
    features: str,
    lattices: str,
    words: str = "",
    alignments: str = "",
) -> None:
    """Decode all utterances and write the results.

    Args:
        graphs: the graph of all, or the table that has one for each.
    """
    threads, most = _threads(options)
    start = time.perf_counter()
    inputs = Utterances(options, features)
    items = _computed(acoustic, computer, graphs, features, inputs)
    with contextlib.ExitStack() as stack:
        outputs = _Outputs(options, stack, lattices, words, alignments)
        decoding = _Decoding(options, acoustic)
        for decoded in _in_order(decoding.decoded, items, threads, most):
            decoding.count(decoded)
            if decoded is not None:
                outputs.write(decoded)
    decoding.tell((time.perf_counter() - start) * threads, inputs.failed)


def _threads(options: SimpleNamespace) -> tuple[int, int]:
    """Threads that search, and how many utterances may be held at once."""
    threads = getattr(options, "num_threads", 1)
    total = getattr(options, "num_threads_total", 0)
    if threads < 1 or 0 < total < threads:
        raise FormatError(
            f"--num-threads={threads}, --num-threads-total={total}: at least 1 thread is wanted,"
            " and no more than in total"
        )
    return threads, total if total > 0 else threads + _MORE_WAITING


def _computed(
    acoustic: KnownTransitions,
    computer: UtteranceComputer | _Given,
    graphs: SearchGraph | str,
    features: str,
    inputs: Utterances,
) -> Iterator[tuple[str, SearchGraph, np.ndarray]]:
    """Key, graph and log-likelihoods of each utterance; see `_decode`."""
    if not isinstance(graphs, str):
        for key, matrix in computer.compute_all(inputs):
            yield key, graphs, matrix
        return
    waiting: list[StaticGraph] = []

    def static(key: str, fst: Fst) -> StaticGraph:
        return StaticGraph.of(checked_fst(fst, f"{graphs}: {key}"))

    absent = "Not decoding utterance {} because no features available."
    pairs = with_graphs(inputs, graphs, features, absent, static, waiting)
    for key, matrix in computer.compute_all(pairs):
        yield key, acoustic.checked(waiting.pop(0), f"{graphs}: {key}"), matrix


def _in_order(
    work: Callable[..., _Result], items: Iterable[tuple[Any, ...]], threads: int, most: int
) -> Iterator[_Result]:
    """The results of work on items, in their order; `most` are there at once."""
    if threads == 1:
        yield from itertools.starmap(work, items)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(pool.submit(copy_context().run, work, *item))
            if len(waiting) == most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass
class _Decoded:
    """The best path and the lattice of an utterance."""

    key: str
    best: BestPath
    lattice: CompactLattice


class _Outputs:
    """The tables that are written, and the words that are printed."""

    def __init__(
        self,
        options: SimpleNamespace,
        stack: contextlib.ExitStack,
        lattices: str,
        words: str,
        alignments: str,
    ) -> None:
        self._spoken = SpokenWords(options.word_symbol_table)
        kind = "compact_lattice" if options.determinize_lattice else "lattice"
        self._lattices = stack.enter_context(TableWriter(lattices, kind))
        self._integers = [
            stack.enter_context(TableWriter(name, "int_vector")) if name else None
            for name in (words, alignments)
        ]

    def write(self, decoded: _Decoded) -> None:
        """Write the lattice, words and alignment of an utterance."""
        key, best = decoded.key, decoded.best
        self._spoken.tell(key, best.words.tolist())
        for writer, values in zip(self._integers, (best.words, best.transition_ids), strict=True):
            if writer is not None:
                writer.write(key, values)
        self._lattices.write(key, decoded.lattice)


class _Decoding:
    """Decodes utterances, and counts."""

    def __init__(self, options: SimpleNamespace, model: KnownTransitions) -> None:
        self._options = options
        self._model = model
        self._program = options.program
        self._search = search_options(options)
        self._passes = determinize_options(options)
        self._idle: list[tuple[SearchGraph, Decoder]] = []  # of the graph of all utterances
        self._done = self._failed = self._frames = 0
        self._likelihood = 0.0

    def decoded(self, key: str, graph: SearchGraph, loglikes: np.ndarray) -> _Decoded | None:
        """Decode an utterance, in any thread; None: it has failed, and a warning says why."""
        decoder = self._decoder(graph)
        found = self._searched(key, decoder, loglikes)
        self._idle.append((graph, decoder))
        if found is None:
            return None
        best, raw = found
        warn = self._program.warn
        if not best.final:
            if not self._options.allow_partial:
                warn(
                    f"Not producing output for utterance {key} since no final-state reached and"
                    " --allow-partial=false."
                )
                return None
            warn(f"Outputting partial output for utterance {key} since no final-state reached")
        lattice = self._lattice(key, raw)
        if scale := float(np.float32(self._options.acoustic_scale)):
            lattice = lattice.scaled(1.0, 1.0 / scale)
        return _Decoded(key, best, lattice)

    def _decoder(self, graph: SearchGraph) -> Decoder:
        """A decoder over a graph, which may have searched it before."""
        with contextlib.suppress(IndexError):
            known, decoder = self._idle.pop()
            if known is graph:
                decoder.reset()
                return decoder
        return Decoder(graph, self._model.pdfs, self._search, outputs=self._model.ids.num_pdfs)

    def _searched(
        self, key: str, decoder: Decoder, loglikes: np.ndarray
    ) -> tuple[BestPath, RawLattice] | None:
        try:
            with errors_tell(key):
                decoder.accept(loglikes)
                decoder.finalize()
                return decoder.best_path(), raw_lattice(decoder)
        except RunError as error:
            self._program.warn(f"Failed to decode utterance with id {key}")
            self._program.warn(str(error))
            return None

    def _lattice(self, key: str, raw: RawLattice) -> CompactLattice:
        if not self._options.determinize_lattice:
            return to_lattice(from_raw(raw).plain())
        beam, starts = self._search.lattice_beam, self._model.starts
        lattice, complete = determinized_lattice(
            raw, beam, starts, self._passes, self._program.warn
        )
        if not complete:
            self._program.warn(
                f"Determinization finished earlier than the beam for utterance {key}"
            )
        return lattice

    def count(self, decoded: _Decoded | None) -> None:
        """Count an utterance."""
        if decoded is None:
            self._failed += 1
            return
        best = decoded.best
        key, frames = decoded.key, len(best.transition_ids)
        program = self._program
        likelihood = -(best.graph_cost + best.acoustic_cost)
        program.log(
            f"Log-like per frame for utterance {key} is {likelihood / frames:g} over {frames}"
            " frames."
        )
        program.vlog(2, f"Cost for utterance {key} is {best.graph_cost:g} + {best.acoustic_cost:g}")
        self._likelihood += likelihood
        self._frames += frames
        self._done += 1

    def tell(self, seconds: float, failed: int) -> None:
        """Log the counts; no output at all is a failure.

        Args:
            seconds: of all threads. failed: utterances that were not decoded.
        """
        log = self._program.log
        frames = self._frames * getattr(self._options, "frame_subsampling_factor", 1)
        factor = seconds * 100 / frames if frames else math.inf
        log(f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {factor:g}")
        log(f"Done {self._done} utterances, failed for {failed + self._failed}")
        mean = self._likelihood / self._frames if self._frames else math.nan
        log(f"Overall log-likelihood per frame is {mean:g} over {self._frames} frames.")
        fail_unless(self._done)
