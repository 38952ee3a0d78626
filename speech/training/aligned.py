"""The second pass: alignments by the flat start's model, a tree by clustering, examples of chunks.

Source: Kaldi's `steps/nnet3/align.sh`, `steps/nnet3/chain/build_tree.sh`, `get_egs.sh`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from ...framework.base.errors import ShapeError
from ...kaldi.files.context_dependency import ContextDependency, new_transition_model
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.phone_segments import PhoneSplitter
from ...kaldi.files.sparse import to_dense
from ...kaldi.files.transition_model import TransitionModel, read_topology
from ...kaldi.fst.algorithms.acceptors import Matcher
from ...kaldi.tables.tables import TableWriter, read_table
from ...nnet3.chain.graphs.phone_graphs import Tolerances, alignment_graph
from ...nnet3.chain.supervisions.chunks import SupervisionSplitter, normalized
from ...nnet3.chain.supervisions.supervision import Supervision
from ...nnet3.chain.supervisions.supervision_maker import SupervisionMaker
from ...nnet3.egs.chain_generate import chain_examples
from ...nnet3.egs.generate import IvectorSource
from ...nnet3.egs.splitting import Chunk, ExampleGenerationOptions, UtteranceSplitter
from ...nnet3.inference.chunks import ChunkComputer
from ...nnet3.inference.pieces import ChunkOptions, Utterance
from ...nnet3.network.nnet import Nnet
from ...nnet3.programs.base.options import shown as progress
from ...nnet3.training.progress import Log
from ..features.transforms import deltas
from ..fst.graph import Graph
from ..fst.graph_folder import read_labels
from ..ivector.kaldi_random import c_rand
from ..search.alignment import best_alignment
from ..trees.building import GrowingOptions, Told, build_tree
from ..trees.questions import (
    clustered_questions,
    questions_of,
    read_phone_sets,
    sums_of_sets,
)
from ..trees.statistics import TreeAccumulator, TreeStats
from ..trees.stubs import Roots, pdf_classes
from . import chain
from .options import SUBSAMPLING
from .preparing import Inputs, read_inputs

_ALIGNMENTS = "ali.ark"
_BEAMS = (20.0, 200.0)
_WIDTH, _CENTRAL = 2, 1  # the window of the tree: a phone and the one before it
_CEPSTRA = 13  # that the tree is grown of, with their deltas; higher ones tell phones apart little
_VARIANCE_FLOOR = 0.01
_TOLERANCES = Tolerances(left=2, right=2)
"""Frames of the network's output by which a phone may stand beside its alignment."""


def computer_of(network: str) -> ChunkComputer:
    """Computes the log-likelihoods of a file of a network."""
    return ChunkComputer(network, ChunkOptions(frame_subsampling_factor=SUBSAMPLING), priors=True)


def write_alignments(
    graph_of: Callable[[str], Graph],
    computer: ChunkComputer,
    pdfs: np.ndarray,
    features: str,
    folder: str,
    log: Log,
) -> None:
    """Write `ali.ark`: the transition-ids of each copy of an utterance, for each output frame.

    The graphs of a flat start have no probabilities of transitions: in a chain topology all are the
    same, so that paths through as many frames differ by nothing.

    Args:
        graph_of: the graph of the text of a copy, by the key of this. computer: of the network.
        pdfs: output of each transition-id. features: folder of `write_features`.

    Raises:
        ShapeError: no utterance can be aligned. SaveError: a file cannot be written.
    """
    inputs = (
        Utterance(each.key, to_dense(each.features), None, each.ivectors, each.period)
        for each in read_inputs(features)
    )
    failed = 0
    with TableWriter(f"ark:{os.path.join(folder, _ALIGNMENTS)}", "int_vector") as writer:
        for key, loglikes in progress(computer.compute_all(inputs), "align", "utterances"):
            best = best_alignment(graph_of(key), pdfs, loglikes, _BEAMS)
            if best.final:
                writer.write(key, best.transition_ids)
            else:
                log(f"{key}: no path of its text fits into {len(loglikes)} frames")
                failed += 1
        done = writer.count
    if not done:
        raise ShapeError("no utterance can be aligned with its text")
    log(f"{done} utterances are aligned with their texts, {failed} cannot be")


def phones_of(alignments: str, model: TransitionModel) -> Iterator[np.ndarray]:
    """The phones of each alignment, in the order of the table."""
    splitter = PhoneSplitter(model)
    for _, ids in read_table(f"ark:{os.path.join(alignments, _ALIGNMENTS)}", "int_vector"):
        yield splitter.split(ids).phones


def _with_alignments(
    features: str, alignments: str, vectors: str = ""
) -> Iterator[tuple[Inputs, np.ndarray]]:
    """Inputs and alignment of each copy that has one; both tables have one order."""
    aligned = read_table(f"ark:{os.path.join(alignments, _ALIGNMENTS)}", "int_vector")
    wanted = next(aligned, None)
    for inputs in read_inputs(features, vectors):
        if wanted is not None and inputs.key == wanted[0]:
            yield inputs, wanted[1]
            wanted = next(aligned, None)


# The tree


def write_tree(
    alignments: str, features: str, graphs: str, lang: str, leaves: int, folder: str, log: Log
) -> None:
    """Write what `chain.write_outputs` does, for a tree of alignments.

    Args:
        alignments, features, graphs: folders of `write_alignments`, `write_features`, and of the
            model that aligned. leaves: most outputs.

    Raises:
        FormatError: all phones sound alike. SaveError: a file cannot be written.
    """
    model = chain.read_transitions(graphs)
    alone = read_labels(os.path.join(lang, "phones", "context_indep.int"))
    accumulator = TreeAccumulator(model, _WIDTH, _CENTRAL, alone)
    splitter = PhoneSplitter(model)
    sequences = []
    pairs = _with_alignments(features, alignments)
    for inputs, ids in progress(pairs, "tree", "utterances"):
        rows = deltas(to_dense(inputs.features)[:, :_CEPSTRA])
        accumulator.accumulate(ids, rows[::SUBSAMPLING])
        sequences.append(splitter.split(ids).phones)
    tree = _grown(TreeStats.of(accumulator.rows, _VARIANCE_FLOOR), lang, leaves, log)
    topology = Reader(os.path.join(lang, "topo"), binary=False)
    chain.write_outputs(tree, new_transition_model(tree, topology), sequences, folder, log)


def _grown(stats: TreeStats, lang: str, leaves: int, log: Log) -> ContextDependency:
    """The tree of statistics."""

    def path(name: str) -> str:
        return os.path.join(lang, "phones", f"{name}.int")

    sets = read_phone_sets(path("sets"))
    classes = pdf_classes(*read_topology(Reader(os.path.join(lang, "topo"), binary=False)))
    most = max(classes.values())
    sums = sums_of_sets(stats, sets, range(most), _CENTRAL)
    asked = clustered_questions(sums, sets, stats.floor, c_rand().__next__)
    asked += read_phone_sets(path("extra_questions"))
    tree = build_tree(
        stats,
        Roots.read(path("roots")),
        questions_of(asked, _WIDTH, most, 0),
        classes,
        _CENTRAL,
        GrowingOptions(max_leaves=leaves),
        Told(log, log, log),
    )
    return ContextDependency(_WIDTH, _CENTRAL, tree)


# Examples


def write_chunks(
    alignments: str,
    features: str,
    graphs: str,
    tree: str,
    network: str,
    lengths: str,
    seed: int,
    folder: str,
    log: Log,
    vectors: str = "",
) -> None:
    """Write `train.ark` and `train.scp`: an example for each chunk of an utterance.

    Args:
        alignments, features, graphs: as for `write_tree`. tree: its folder. network: that of
            `0.raw`. lengths: of chunks in frames, the principal one first.
        vectors: the folder of iVectors, where it is not that of the features.

    Raises:
        ShapeError: no utterance is as long as a chunk. SaveError: a file cannot be written.
    """
    left, right = Nnet.read(os.path.join(network, "0.raw")).context()
    cutting = ExampleGenerationOptions(
        ExampleGenerationOptions.parse_frames(lengths),
        left_context=left + max(chain.SHIFTS),
        right_context=right - min(chain.SHIFTS),
        frame_subsampling_factor=SUBSAMPLING,
    )
    splitter = UtteranceSplitter(cutting, seed)
    rng = np.random.default_rng(seed)
    phones = PhoneSplitter(chain.read_transitions(graphs))
    maker = SupervisionMaker(chain.read_tree(tree), chain.read_transitions(tree))
    weights = chain.read_normalization(tree)
    short = lost = 0
    with chain.example_writer(folder) as writer:
        entries = progress(
            _with_alignments(features, alignments, vectors), "examples", "utterances"
        )
        for inputs, ids in entries:
            part = _Parts(phones, maker, weights, ids)
            key, matrix = inputs.key, inputs.features
            ivectors = None
            if inputs.ivectors is not None:
                ivectors = IvectorSource(inputs.ivectors, inputs.period, rng)
            examples = chain_examples(
                key, matrix, matrix.shape[0], splitter, part, ivectors=ivectors
            )
            made = list(examples)
            short += not made
            for name, example in made:
                if example.outputs[0].supervision is None:
                    lost += 1
                else:
                    writer.write(name, example)
        done = writer.count
    splitter.report(log)
    if not done:
        raise ShapeError(f"no utterance is as long as a chunk of {min(cutting.num_frames)} frames")
    log(
        f"{done} examples; {lost} have no supervision, {short} utterances are too short for a chunk"
    )


class _Parts:
    """The supervisions of chunks of an utterance; None where there is none within bounds."""

    def __init__(
        self, phones: PhoneSplitter, maker: SupervisionMaker, weights: Matcher, ids: np.ndarray
    ) -> None:
        segments = phones.split(ids)
        pairs = list(zip(segments.phones.tolist(), segments.frames.tolist(), strict=True))
        known = maker.make(alignment_graph(pairs, _TOLERANCES))
        self._parts = known and SupervisionSplitter(known)
        self._weights = weights

    def __call__(self, chunk: Chunk) -> Supervision | None:
        if self._parts is None:
            return None
        first, count = chunk.first // SUBSAMPLING, chunk.frames // SUBSAMPLING
        return normalized(self._parts.part(first, count), self._weights)
