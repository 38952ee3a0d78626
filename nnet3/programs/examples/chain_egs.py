"""Kaldi's programs for chain examples: made, normalized, copied, merged, shuffled, drawn from.

Source: Kaldi's `chainbin/nnet3-chain-get-egs.cc`, `nnet3-chain-e2e-get-egs.cc`,
`chain-make-num-fst-e2e.cc`,
`nnet3-chain-normalize-egs.cc`, `nnet3-chain-copy-egs.cc`, `nnet3-chain-merge-egs.cc`,
`nnet3-chain-shuffle-egs.cc`, `nnet3-chain-subset-egs.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.transition_model import TransitionModel, Transitions
from ....kaldi.fst.algorithms.acceptors import Matcher, compose
from ....kaldi.fst.fst import Fst
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ...chain.examples import NnetChainExample
from ...chain.supervisions.chunks import SupervisionSplitter, normalized, scaled
from ...chain.supervisions.supervision import Supervision
from ...chain.supervisions.unconstrained import unconstrained
from ...egs import chain_changes as egs
from ...egs.chain_end_to_end import (
    allowed_length,
    graph_supervision,
    pdf_fst,
    whole_example,
)
from ...egs.chain_generate import chain_examples
from ...egs.generate import IvectorSource
from ...egs.merging import MinibatchRule
from ...egs.splitting import Chunk
from ..base.graphs import open_fst
from ..base.options import COMPRESS, SRAND, errors_tell, shown
from ..base.program import Option, program
from ..base.saving import fail_unless
from .egs import (
    COPYING,
    Copier,
    copy_examples,
    merge_to,
    merging_options,
    shuffle_program,
    subset_program,
)
from .get_egs import CUTTING, NAN, Getter, ivector_options

KIND = "chain_example"
_FST_SCALE = Option("normalization-fst-scale", 1.0, "Factor for the weights of that FST")


@program(
    "nnet3-chain-get-egs",
    "Make chain examples from features and supervision. Without <normalization-fst> they are not"
    " ready for training: nnet3-chain-normalize-egs makes them so.",
    (
        "[<normalization-fst>]",
        "<features-rspecifier>",
        "<chain-supervision-rspecifier>",
        "<egs-wspecifier>",
    ),
    *CUTTING,
    *ivector_options(),
    SRAND,
    NAN,
    COMPRESS,
    Option(
        "supervision-length-tolerance",
        1,
        "How much the supervision may differ in frames from its weights and from features",
    ),
    Option("deriv-weights-rspecifier", "", "Vectors of factors for the gradient of each frame"),
    _FST_SCALE,
    Option(
        "transition-model",
        "",
        "Transition model, for unconstrained examples of supervision with transition-ids",
    ),
    Option("long-key", False, "Let keys tell the context and length of each chunk"),
)
def nnet3_chain_get_egs(
    options: SimpleNamespace, graph: str, features: str, supervision: str, output: str
) -> None:
    if graph and options.normalization_fst_scale <= 0:
        raise FormatError("--normalization-fst-scale must be positive")
    options.targets_length_tolerance = options.supervision_length_tolerance
    getter = _ChunkGetter(options, graph)
    getter.run(features, RandomAccessTable(supervision, "supervision"), output)


class _ChainGetter(Getter):
    """Makes chain examples."""

    kind = KIND

    def __init__(self, options: SimpleNamespace, graph: str) -> None:
        super().__init__(options)
        self._graph: Matcher | None = None
        if graph:
            self._graph = Matcher(scaled(open_fst(graph), options.normalization_fst_scale))

    def normalized(self, supervision: Supervision, where: str) -> Supervision:
        """The supervision with the normalization FST's weights; unchanged if that does not fit."""
        weighted = normalized(supervision, self._graph) if self._graph is not None else supervision
        if weighted is None:
            self.program.warn(
                f"For {where}, FST was empty after composing with normalization FST. This should"
                " be extremely rare (a few per corpus, at most)"
            )
        return weighted or supervision


class _ChunkGetter(_ChainGetter):
    """Makes chain examples of chunks, with supervision from alignments or lattices."""

    def __init__(self, options: SimpleNamespace, graph: str) -> None:
        super().__init__(options, graph)
        self._transitions: TransitionModel | None = None
        if options.transition_model:
            self._transitions = TransitionModel.read_from(open_reader(options.transition_model))
        name = options.deriv_weights_rspecifier
        self._weights = RandomAccessTable(name, "vector") if name else None

    def count(self, targets: Supervision) -> int:
        """See `Getter`."""
        return targets.frames_per_sequence

    def examples(
        self, key: str, matrix: Any, targets: Supervision, ivectors: IvectorSource | None
    ) -> Iterator[tuple[str, NnetChainExample]]:
        """See `Getter`."""
        weights = None
        if self._weights is not None:
            weights = self._weights.get(key)
            if weights is None:
                self.fail(f"No deriv weights for utterance {key}")
                return
            frames = targets.frames_per_sequence
            if abs(len(weights) - frames) > self.options.supervision_length_tolerance:
                self.fail(f"{key} has {len(weights)} deriv weights and {frames} output frames")
                return

        parts = SupervisionSplitter(targets)
        factor = self.splitter.options.frame_subsampling_factor

        def part(chunk: Chunk) -> Supervision:
            supervision = parts.part(chunk.first // factor, chunk.frames // factor)
            if self._transitions is not None:
                supervision = unconstrained(supervision, self._transitions, self.rng)
            last = chunk.first + chunk.frames
            where = f"utterance {key}, feature frames {chunk.first} to {last}"
            return self.normalized(supervision, where)

        yield from chain_examples(
            key,
            matrix,
            # Features may be a little longer than the supervision, which must not be left.
            min(matrix.shape[0], targets.frames_per_sequence * factor),
            self.splitter,
            part,
            weights,
            ivectors,
            compress=self.options.compress,
            long_key=self.options.long_key,
        )


@program(
    "nnet3-chain-e2e-get-egs",
    "Make chain examples of whole utterances, with training graphs as supervision (flat start).",
    (
        "[<normalization-fst>]",
        "<features-rspecifier>",
        "<fst-rspecifier>",
        "<trans-model>",
        "<egs-wspecifier>",
    ),
    *CUTTING,
    *ivector_options(),
    SRAND,
    NAN,
    COMPRESS,
)
def nnet3_chain_e2e_get_egs(
    options: SimpleNamespace, graph: str, features: str, fsts: str, model: str, output: str
) -> None:
    options.normalization_fst_scale = 1.0
    transitions = TransitionModel.read_from(open_reader(model)).transitions()
    getter = _WholeGetter(options, graph, transitions)
    getter.run(features, RandomAccessTable(fsts, "fst"), output)


class _WholeGetter(_ChainGetter):
    """Makes chain examples of whole utterances."""

    def __init__(self, options: SimpleNamespace, graph: str, transitions: Transitions) -> None:
        super().__init__(options, graph)
        self._transitions = transitions

    def count(self, targets: Fst) -> None:
        """See `Getter`."""

    def examples(
        self, key: str, matrix: Any, targets: Fst, ivectors: IvectorSource | None
    ) -> Iterator[tuple[str, NnetChainExample]]:
        """See `Getter`."""
        cutting = self.splitter.options
        rows = matrix.shape[0]
        frames = allowed_length(rows, cutting)
        if frames != rows:
            self.program.warn(f"utterance {key} has {rows} frames; it is made to have {frames}")
        count = -(-frames // cutting.frame_subsampling_factor)
        try:
            supervision = graph_supervision(targets, self._transitions, count)
        except ShapeError as error:
            self.fail(f"For utterance {key}: {error}")
            return
        supervision = self.normalized(supervision, f"utterance {key}")
        compress = self.options.compress
        yield key, whole_example(matrix, supervision, cutting, frames, ivectors, compress)


@program(
    "chain-make-num-fst-e2e",
    "Turn training graphs, of transition-ids, into acceptors of pdfs counted from 1, with the"
    " weights of the normalization FST.",
    ("<model>", "<normalization-fst>", "<transition-fst-rspecifier>", "<pdf-fst-wspecifier>"),
)
def chain_make_num_fst_e2e(
    options: SimpleNamespace, model: str, graph: str, source: str, output: str
) -> None:
    transitions = TransitionModel.read_from(open_reader(model)).transitions()
    weights = Matcher(open_fst(graph))
    with TableWriter(output, "fst") as writer:
        for key, fst in shown(read_table(source, "fst"), "convert", "FSTs"):
            with errors_tell(f"{source}: {key}"):
                weighted = compose(pdf_fst(fst, transitions), weights)
            if not weighted.states:
                options.program.warn(f"{key}: no path is left with the normalization FST")
            writer.write(key, weighted)
        done = writer.count
    options.program.log(
        f"Converted {done} Fsts with transition-id to Fsts with pdf-id and normalized."
    )
    fail_unless(done)


@program(
    "nnet3-chain-normalize-egs",
    "Add the weights of the normalization FST to chain examples that were made without.",
    ("<normalization-fst>", "<egs-rspecifier>", "<egs-wspecifier>"),
    _FST_SCALE,
)
def nnet3_chain_normalize_egs(
    options: SimpleNamespace, graph: str, source: str, output: str
) -> None:
    if options.normalization_fst_scale < 0:
        raise FormatError("--normalization-fst-scale must not be negative")
    fst = Matcher(scaled(open_fst(graph), options.normalization_fst_scale))
    written = failed = 0
    with TableWriter(output, KIND) as writer:
        for key, example in shown(read_table(source, KIND), "normalize", "examples"):
            if len(example.outputs) != 1:
                raise FormatError(f"{source}: {key}: {len(example.outputs)} outputs in place of 1")
            old = example.outputs[0]
            with errors_tell(f"{source}: {key}"):
                supervision = normalized(old.supervision, fst)
            if supervision is None:
                options.program.warn(
                    f"For example {key}, FST was empty after composing with normalization FST."
                    " This should be extremely rare (a few per corpus, at most)"
                )
                failed += 1
                continue
            weighted = NnetChainExample(example.inputs, [replace(old, supervision=supervision)])
            writer.write(key, weighted)
            written += 1
    options.program.log(f"Added normalization to {written} egs; had errors on {failed}")
    fail_unless(written)


@program(
    "nnet3-chain-copy-egs",
    "Copy chain examples, to one archive after the other where there are several; context may be"
    " cut.",
    ("<egs-rspecifier>", "<egs-wspecifier>..."),
    SRAND,
    *COPYING,
)
def nnet3_chain_copy_egs(options: SimpleNamespace, source: str, *outputs: str) -> None:
    copy_examples(_ChainCopier(options), source, outputs)


class _ChainCopier(Copier):
    """Changes one chain example as the options of nnet3-chain-copy-egs ask."""

    kind = KIND

    def scaled(self, example: NnetChainExample, weight: float) -> NnetChainExample:
        """See `Copier`."""
        return egs.scaled_output(example, weight)

    def select(self, example: NnetChainExample) -> NnetChainExample:
        """See `Copier`."""
        options = self.options
        example = egs.shifted(example, options.frame_shift)
        if options.left_context != -1 or options.right_context != -1:
            example = egs.selected(example, options.left_context, options.right_context)
        return egs.renamed_output(example, self.name) if self.name else example


@program(
    "nnet3-chain-merge-egs",
    "Merge chain examples of the same structure into minibatches.",
    ("<egs-rspecifier>", "<egs-wspecifier>"),
    *merging_options("64"),
)
def nnet3_chain_merge_egs(options: SimpleNamespace, source: str, output: str) -> None:
    rule = MinibatchRule(options.minibatch_size)
    merger = egs.ChainExampleMerger(rule, options.compress, options.multilingual_eg)
    entries = shown(read_table(source, KIND), "merge", "examples")
    accepted = (merger.accepted(key, example) for key, example in entries)
    merge_to(merger, accepted, output, KIND, options.program.log)


nnet3_chain_shuffle_egs = shuffle_program("nnet3-chain-shuffle-egs", "chain examples", KIND)
nnet3_chain_subset_egs = subset_program("nnet3-chain-subset-egs", "chain examples", KIND)
