"""Kaldi's programs for training examples: made, copied, merged, shuffled, drawn from.

Source: Kaldi's `nnet3bin/nnet3-get-egs.cc`, `nnet3-get-egs-dense-targets.cc`,
`nnet3-xvector-get-egs.cc`, `nnet3-copy-egs.cc`, `nnet3-merge-egs.cc`, `nnet3-shuffle-egs.cc`,
`nnet3-subset-egs.cc`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from ..framework.errors import FormatError, OpscopeError, ShapeError
from ..nnet3.egs import generate, selecting
from ..nnet3.egs.merging import ExampleMerger, MinibatchRule
from ..nnet3.egs.rows import is_finite
from ..nnet3.egs.splitting import ExampleGenerationOptions, UtteranceSplitter
from ..nnet3.examples import NnetExample
from ..nnet3.streams import open_reader
from ..nnet3.tables import RandomAccessTable, TableWriter, read_table
from .cli_nnet3_options import UNUSED, shown
from .cli_nnet3_program import Option, program

_SRAND = Option("srand", 0, "Seed for random number generator")
_CUTTING = (
    Option("left-context", 0, "Frames of input before those with labels"),
    Option("right-context", 0, "Frames of input behind those with labels"),
    Option("left-context-initial", -1, "If >= 0, the same at the start of an utterance"),
    Option("right-context-final", -1, "If >= 0, the same at the end of an utterance"),
    Option(
        "num-frames",
        "1",
        "Frames with labels in an example: the principal number, then others that may be used for"
        " the rest of an utterance, e.g. 40,25,50; -1 = whole utterances",
    ),
    Option("num-frames-overlap", 0, "Frames that neighbouring examples share, about"),
    Option("frame-subsampling-factor", 1, "Input frames for one frame of labels"),
)
_GETTING = (
    *_CUTTING,
    _SRAND,
    Option("compress", True, "Compress features that are not compressed yet"),
    Option("ivectors", "", "The same as --online-ivectors"),
    Option("online-ivectors", "", "Rspecifier of iVectors, as matrices"),
    Option("online-ivector-period", 1, "Frames between two of these iVectors"),
    Option("length-tolerance", 100, "How much features and iVectors may differ in frames"),
    Option("targets-length-tolerance", 2, "How much features and targets may differ in frames"),
    Option("skip-nan", False, "Pass over utterances with NaN or infinity, in place of refusing"),
)


def _generator(options: SimpleNamespace) -> np.random.Generator:
    return np.random.default_rng(options.srand & 0xFFFFFFFF)


class _Getter:
    """What nnet3-get-egs and nnet3-get-egs-dense-targets have in common."""

    def __init__(self, options: SimpleNamespace) -> None:
        self.options, self.program, self.failed, self.written = options, options.program, 0, 0
        cutting = ExampleGenerationOptions(
            ExampleGenerationOptions.parse_frames(options.num_frames),
            options.left_context,
            options.right_context,
            options.left_context_initial,
            options.right_context_final,
            options.num_frames_overlap,
            options.frame_subsampling_factor,
        )
        self.rng = _generator(options)
        self.splitter = UtteranceSplitter(cutting, self.rng)
        name = options.online_ivectors or options.ivectors
        self.ivectors = RandomAccessTable(name, "matrix") if name else None
        if name and options.online_ivector_period < 1:
            raise FormatError("--online-ivector-period must be positive")

    def run(
        self, features: str, kind: str, targets: str, output: str, make: Callable[[Any], Any]
    ) -> None:
        """Go through features; `make` turns an utterance's targets into those of examples."""
        options = self.options
        table = RandomAccessTable(targets, kind)
        with TableWriter(output, "example") as writer:
            for key, matrix in shown(read_table(features, "general_matrix"), "cut", "utterances"):
                if key not in table:
                    self.fail(f"No targets for key {key}")
                    continue
                given = table[key]
                rows, tolerance = matrix.shape[0], options.targets_length_tolerance
                if not self.splitter.lengths_match(rows, len(given), tolerance):
                    self.fail(f"{key} has {rows} frames and {len(given)} targets")
                    continue
                if not is_finite(matrix):
                    self._refuse(f"{key}: the features hold NaN or infinity")
                    continue
                source = self._ivectors_of(key, rows)
                if self.ivectors is not None and source is None:
                    continue
                before = self.written
                try:
                    made = generate.examples(
                        key, matrix, make(given), self.splitter, source, options.compress
                    )
                    for name, example in made:
                        writer.write(name, example)
                        self.written += 1
                except ShapeError as error:
                    raise ShapeError(f"{key}: {error}") from error
                if self.written == before:
                    self.program.warn(
                        f"Not producing egs for utterance {key} because it is too short: {rows}"
                        " frames."
                    )
        if self.failed:
            self.program.warn(f"{self.failed} utterances had errors and could not be processed.")
        self.splitter.report(self.program.log)
        if not self.written:
            raise click.exceptions.Exit(1)

    def _ivectors_of(self, key: str, rows: int) -> generate.IvectorSource | None:
        if self.ivectors is None:
            return None
        matrix, period = self.ivectors.get(key), self.options.online_ivector_period
        if matrix is None:
            self.fail(f"No iVectors for utterance {key}")
            return None
        tolerance = self.options.length_tolerance
        if not len(matrix) or abs(rows - len(matrix) * period) > tolerance:
            self.fail(
                f"{key}: length difference between feats {rows} and iVectors {len(matrix)} exceeds"
                f" tolerance {tolerance}"
            )
            return None
        return generate.IvectorSource(matrix, period, self.rng)

    def _refuse(self, message: str) -> None:
        if not self.options.skip_nan:
            raise FormatError(f"{message}; --skip-nan passes over such utterances")
        self.fail(message)

    def fail(self, message: str) -> None:
        """Note an utterance without examples."""
        self.program.warn(message)
        self.failed += 1


@program(
    "nnet3-get-egs",
    "Make training examples from features and posteriors of classes.",
    ("<features-rspecifier>", "<pdf-post-rspecifier>", "<egs-out>"),
    *_GETTING,
    Option("num-pdfs", -1, "Number of classes"),
)
def nnet3_get_egs(options: SimpleNamespace, features: str, posteriors: str, output: str) -> None:
    if options.num_pdfs <= 0:
        raise FormatError("--num-pdfs is required, and positive")
    factor = options.frame_subsampling_factor
    _Getter(options).run(
        features,
        "posterior",
        posteriors,
        output,
        lambda post: generate.posterior_targets(post, options.num_pdfs, factor),
    )


@program(
    "nnet3-get-egs-dense-targets",
    "Make training examples from features and matrices of targets.",
    ("<features-rspecifier>", "<targets-rspecifier>", "<egs-out>"),
    *_GETTING,
    Option("num-targets", -1, "Columns that targets must have, if given"),
)
def nnet3_get_egs_dense_targets(
    options: SimpleNamespace, features: str, targets: str, output: str
) -> None:
    factor = options.frame_subsampling_factor

    def make(matrix: np.ndarray) -> Any:
        if options.num_targets >= 0 and matrix.shape[1] != options.num_targets:
            raise ShapeError(
                f"targets of {matrix.shape[1]} columns, but --num-targets={options.num_targets}"
            )
        return generate.dense_targets(matrix, factor)

    _Getter(options).run(features, "matrix", targets, output, make)


@program(
    "nnet3-xvector-get-egs",
    "Make training examples for x-vectors: the chunks of utterances that a ranges file lists.",
    ("<ranges-filename>", "<features-rspecifier>", "<egs-out>..."),
    Option("compress", True, "Compress features"),
    Option("num-pdfs", -1, "Number of speakers"),
)
def nnet3_xvector_get_egs(
    options: SimpleNamespace, ranges: str, features: str, *outputs: str
) -> None:
    if options.num_pdfs <= 0:
        raise FormatError("--num-pdfs is required, and positive")
    reader = open_reader(ranges)
    text = bytes(reader.data[reader.offset :]).decode("utf-8", "surrogateescape")
    wanted = generate.read_ranges(text, reader.name)
    done = written = failed = 0
    with _writers(outputs) as writers:
        for key, matrix in shown(read_table(features, "general_matrix"), "cut", "utterances"):
            if key not in wanted:
                options.program.warn(
                    f"Could not create examples from utterance {key} because it has no entry in the"
                    " ranges input file."
                )
                failed += 1
                continue
            done += 1
            for chunk in wanted[key]:
                if chunk.archive >= len(writers):
                    raise FormatError(f"{ranges}: archive {chunk.archive} of {len(writers)}")
                try:
                    example = generate.xvector_example(
                        chunk, matrix, options.num_pdfs, options.compress
                    )
                except ShapeError as error:
                    options.program.warn(f"{key}: {error}")
                    continue
                writers[chunk.archive].write(chunk.key, example)
                written += 1
    options.program.log(
        f"Finished generating examples, successfully processed {done} feature files, wrote"
        f" {written} examples; {failed} files had errors."
    )
    if not written or failed > done:
        raise click.exceptions.Exit(1)


@contextlib.contextmanager
def _writers(names: Sequence[str]) -> Any:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(TableWriter(name, "example")) for name in names]


@program(
    "nnet3-copy-egs",
    "Copy examples, to one archive after the other where there are several; frames may be chosen"
    " and context cut.",
    ("<egs-rspecifier>", "<egs-wspecifier>..."),
    _SRAND,
    Option("random", False, "Write to outputs drawn at random"),
    Option("frame-shift", 0, "Frames by which times are later, after the choice of frames"),
    Option("keep-proportion", 1.0, "Share of examples that is kept; above 1: copies of each"),
    Option("frame", "", "Choose one frame of each example: its number, or 'random'"),
    Option("left-context", -1, "If >= 0, cut the left context down to this"),
    Option("right-context", -1, "If >= 0, cut the right context down to this"),
    Option("weights", "", "Rspecifier of factors for the targets, by the examples' keys"),
    Option("outputs", "", "Rspecifier of names for the output, by the examples' keys"),
)
def nnet3_copy_egs(options: SimpleNamespace, source: str, *outputs: str) -> None:
    if options.keep_proportion < 0:
        raise FormatError("--keep-proportion must not be negative")
    copier = _Copier(options)
    read = written = failed = 0
    with _writers(outputs) as writers:
        for key, example in shown(read_table(source, "example"), "copy", "examples"):
            read += 1
            try:
                changed = copier.annotate(key, example)
                if changed is None:
                    failed += 1
                    continue
                for _ in range(copier.count()):
                    chosen = copier.select(changed)
                    if chosen is None:
                        continue
                    place = int(copier.rng.integers(1 << 31)) if options.random else written
                    writers[place % len(writers)].write(key, chosen)
                    written += 1
            except OpscopeError as error:
                raise type(error)(f"{source}: {key}: {error}") from error
    options.program.log(
        f"Read {read} neural-network training examples, wrote {written}, {failed} examples had"
        " errors."
    )
    if not written:
        raise click.exceptions.Exit(1)


class _Copier:
    """What nnet3-copy-egs does to one example."""

    def __init__(self, options: SimpleNamespace) -> None:
        self.options, self.rng = options, _generator(options)
        self.weights = RandomAccessTable(options.weights, "float") if options.weights else None
        self.names = RandomAccessTable(options.outputs, "token") if options.outputs else None
        if options.frame not in ("", "random") and not options.frame.lstrip("-").isdigit():
            raise FormatError(f"--frame={options.frame} is neither a number nor 'random'")

    def annotate(self, key: str, example: NnetExample) -> NnetExample | None:
        """With its weight and output name; None where the tables lack them."""
        warn = self.options.program.warn
        if self.weights is not None:
            if key not in self.weights:
                warn(f"No weight for example key {key}")
                return None
            example = selecting.scaled_output(example, self.weights[key])
        if self.names is not None and key not in self.names:
            warn(f"No new output-name for example key {key}")
            return None
        self._name = self.names[key] if self.names is not None else ""
        return example

    def count(self) -> int:
        """How often to write an example."""
        whole = int(self.options.keep_proportion)
        return whole + bool(self.rng.random() < self.options.keep_proportion - whole)

    def select(self, example: NnetExample) -> NnetExample | None:
        """With the frames that are wanted; None where they are not there."""
        options, chosen = self.options, example
        if options.frame or options.left_context != -1 or options.right_context != -1:
            frame = None
            if options.frame == "random":
                first, last = selecting.times(example, "output")
                frame = int(self.rng.integers(first, last + 1))
            elif options.frame:
                frame = int(options.frame)
            contexts = options.left_context, options.right_context
            selected = selecting.selected(example, frame, *contexts)
            if selected is None:
                return None
            chosen = selected
        chosen = selecting.shifted(chosen, options.frame_shift)
        return selecting.renamed_output(chosen, self._name) if self._name else chosen


@program(
    "nnet3-merge-egs",
    "Merge examples of the same structure into minibatches.",
    ("<egs-rspecifier>", "<egs-wspecifier>"),
    Option("compress", False, "Compress the merged features"),
    Option(
        "minibatch-size",
        "256",
        "Examples in a minibatch: a number, or numbers and ranges, e.g. 16:32,64,128, of which all"
        " but the largest are for the end; or SIZE=.../SIZE=... by the size of examples",
    ),
    Option("measure-output-frames", "deprecated", UNUSED),
    Option("discard-partial-minibatches", "deprecated", UNUSED),
    Option("multilingual-eg", False, UNUSED),
)
def nnet3_merge_egs(options: SimpleNamespace, source: str, output: str) -> None:
    merger = ExampleMerger(MinibatchRule(options.minibatch_size), options.compress)
    entries = shown(read_table(source, "example"), "merge", "examples")
    with TableWriter(output, "example") as writer:
        for key, merged in merger.merge(example for _, example in entries):
            writer.write(key, merged)
    merger.report(options.program.log)
    if not merger.minibatches:
        raise click.exceptions.Exit(1)


@program(
    "nnet3-shuffle-egs",
    "Copy examples in random order.",
    ("<egs-rspecifier>", "<egs-wspecifier>"),
    _SRAND,
    Option("buffer-size", 0, "If above 0, hold no more examples than this, and shuffle less well"),
)
def nnet3_shuffle_egs(options: SimpleNamespace, source: str, output: str) -> None:
    entries = shown(read_table(source, "example"), "read", "examples")
    with TableWriter(output, "example") as writer:
        for key, example in selecting.shuffle(entries, _generator(options), options.buffer_size):
            writer.write(key, example)
        done = writer.count
    how = "using a buffer (partial randomization)" if options.buffer_size > 0 else ""
    options.program.log(f"Shuffled order of {done} neural-network training examples {how}")
    if not done:
        raise click.exceptions.Exit(1)


@program(
    "nnet3-subset-egs",
    "Draw examples at random.",
    ("<egs-rspecifier>", "<egs-wspecifier>"),
    _SRAND,
    Option("n", 1000, "Number of examples to write"),
    Option("randomize-order", True, "Write them in random order"),
)
def nnet3_subset_egs(options: SimpleNamespace, source: str, output: str) -> None:
    if options.n < 0:
        raise FormatError("--n must not be negative")
    entries = shown(read_table(source, "example"), "read", "examples")
    chosen, read = selecting.subset(
        entries, options.n, _generator(options), options.randomize_order
    )
    with TableWriter(output, "example") as writer:
        for key, example in chosen:
            writer.write(key, example)
    options.program.log(
        f"Selected a subset of {len(chosen)} out of {read} neural-network training examples "
    )
    if not read:
        raise click.exceptions.Exit(1)
