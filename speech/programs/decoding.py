"""nnet3-latgen-faster.

Source: Kaldi's `nnet3bin/nnet3-latgen-faster.cc`, `decoder/decoder-wrappers.cc`.
"""

from __future__ import annotations

import contextlib
import math
import time
from types import SimpleNamespace

import numpy as np

from ...framework.base.errors import RunError
from ...kaldi.fst.fst import Fst
from ...kaldi.lattices.lattice import CompactLattice
from ...kaldi.lattices.plain import from_raw, to_lattice
from ...kaldi.lattices.raw_lattice import RawLattice
from ...kaldi.tables.specifiers import is_specifier
from ...kaldi.tables.tables import TableWriter
from ...nnet3.inference.chunks import ChunkComputer
from ...nnet3.programs.base.options import DEBUG, GPU, chosen_place, errors_tell
from ...nnet3.programs.base.passes import chosen_passes, optimization_options
from ...nnet3.programs.base.program import Option, program
from ...nnet3.programs.base.saving import fail_unless
from ...nnet3.programs.compute import IVECTORS, Utterances, chunk_options, chunked, tell_chunk
from ..fst.graph import StaticGraph
from ..search.decoder import BestPath, Decoder
from ..search.options import DECODING_SCALE
from ..search.raw_lattice import raw_lattice
from .acoustic_model import AcousticModel, SpokenWords, checked_fst, read_graph, with_graphs
from .decoder_options import DECODER, SYMBOLS, determinize_options, search_options
from .whole_lattices import determinized_lattice


@program(
    "nnet3-latgen-faster",
    "Generate lattices using nnet3 neural net model.",
    (
        "<nnet-in>",
        "<fst-in|fsts-rspecifier>",
        "<features-rspecifier>",
        "<lattice-wspecifier>",
        "[<words-wspecifier>]",
        "[<alignments-wspecifier>]",
    ),
    *chunk_options(DECODING_SCALE),
    *DECODER,
    *IVECTORS,
    SYMBOLS,
    Option("allow-partial", False, "Write what was found where no final state was reached, too"),
    GPU,
    *DEBUG,
    *optimization_options(),
)
def nnet3_latgen_faster(
    options: SimpleNamespace,
    model: str,
    graphs: str,
    features: str,
    lattices: str,
    words: str,
    alignments: str,
) -> None:
    search_options(options)  # wrong values are refused before anything is read
    acoustic = AcousticModel.read(model)
    how = True, chosen_place(options.use_gpu), chosen_passes(options)
    with errors_tell(model):
        computer = ChunkComputer(acoustic.network, chunked(options), *how)
    tell_chunk(options, computer)
    spoken = SpokenWords(options.word_symbol_table)
    one = None if is_specifier(graphs) else acoustic.checked(read_graph(graphs), graphs)
    start = time.perf_counter()
    inputs = Utterances(options, features)
    with contextlib.ExitStack() as stack:
        outputs = _Outputs(options, stack, lattices, words, alignments)
        decoding = _Decoding(options, acoustic, spoken, outputs)
        if one is not None:
            decoder = decoding.decoder(one)
            for key, matrix in computer.compute_all(inputs):
                decoder.reset()
                decoding.utterance(key, decoder, matrix)
        else:
            waiting: list[StaticGraph] = []

            def static(key: str, fst: Fst) -> StaticGraph:
                return StaticGraph.of(checked_fst(fst, f"{graphs}: {key}"))

            absent = "Not decoding utterance {} because no features available."
            pairs = with_graphs(inputs, graphs, features, absent, static, waiting)
            for key, matrix in computer.compute_all(pairs):
                graph = acoustic.checked(waiting.pop(0), f"{graphs}: {key}")
                decoding.utterance(key, decoding.decoder(graph), matrix)
    decoding.tell(time.perf_counter() - start, inputs.failed)


class _Outputs:
    """The tables that are written."""

    def __init__(
        self,
        options: SimpleNamespace,
        stack: contextlib.ExitStack,
        lattices: str,
        words: str,
        alignments: str,
    ) -> None:
        kind = "compact_lattice" if options.determinize_lattice else "lattice"
        self._lattices = stack.enter_context(TableWriter(lattices, kind))
        self._integers = [
            stack.enter_context(TableWriter(name, "int_vector")) if name else None
            for name in (words, alignments)
        ]

    def write(self, key: str, lattice: CompactLattice, best: BestPath) -> None:
        """Write the lattice, words and alignment of an utterance."""
        for writer, values in zip(self._integers, (best.words, best.transition_ids), strict=True):
            if writer is not None:
                writer.write(key, values)
        self._lattices.write(key, lattice)


class _Decoding:
    """Decodes utterances, and counts."""

    def __init__(
        self, options: SimpleNamespace, model: AcousticModel, spoken: SpokenWords, outputs: _Outputs
    ) -> None:
        self._options = options
        self._model = model
        self._spoken = spoken
        self._outputs = outputs
        self._program = options.program
        self._search = search_options(options)
        self._passes = determinize_options(options)
        self._done = self._failed = self._frames = 0
        self._likelihood = 0.0

    def decoder(self, graph: StaticGraph) -> Decoder:
        """A decoder over a graph."""
        outputs = self._model.ids.num_pdfs
        return Decoder(graph, self._model.pdfs, self._search, outputs=outputs)

    def utterance(self, key: str, decoder: Decoder, loglikes: np.ndarray) -> None:
        """Decode an utterance and write the result."""
        warn = self._program.warn
        try:
            with errors_tell(key):
                decoder.accept(loglikes)
                decoder.finalize()
                best = decoder.best_path()
                raw = raw_lattice(decoder)
        except RunError as error:
            warn(f"Failed to decode utterance with id {key}")
            warn(str(error))
            self._failed += 1
            return
        if not best.final:
            if not self._options.allow_partial:
                warn(
                    f"Not producing output for utterance {key} since no final-state reached and"
                    " --allow-partial=false."
                )
                self._failed += 1
                return
            warn(f"Outputting partial output for utterance {key} since no final-state reached")
        self._spoken.tell(key, best.words.tolist())
        lattice = self._lattice(key, raw)
        if scale := float(np.float32(self._options.acoustic_scale)):
            lattice = lattice.scaled(1.0, 1.0 / scale)
        self._outputs.write(key, lattice, best)
        self._count(key, best)

    def _lattice(self, key: str, raw: RawLattice) -> CompactLattice:
        if not self._options.determinize_lattice:
            return to_lattice(from_raw(raw))
        beam, starts = self._search.lattice_beam, self._model.starts
        lattice, complete = determinized_lattice(
            raw, beam, starts, self._passes, self._program.warn
        )
        if not complete:
            self._program.warn(
                f"Determinization finished earlier than the beam for utterance {key}"
            )
        return lattice

    def _count(self, key: str, best: BestPath) -> None:
        frames = len(best.transition_ids)
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
            failed: utterances that were not decoded.
        """
        log = self._program.log
        frames = self._frames * self._options.frame_subsampling_factor
        factor = seconds * 100 / frames if frames else math.inf
        log(f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {factor:g}")
        log(f"Done {self._done} utterances, failed for {failed + self._failed}")
        mean = self._likelihood / self._frames if self._frames else math.nan
        log(f"Overall log-likelihood per frame is {mean:g} over {self._frames} frames.")
        fail_unless(self._done)
