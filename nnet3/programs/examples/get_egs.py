"""Kaldi's programs that make training examples of features and targets.

Source: Kaldi's `nnet3bin/nnet3-get-egs.cc`, `nnet3-get-egs-dense-targets.cc`,
`nnet3-get-egs-simple.cc`, `nnet3-xvector-get-egs.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.sparse import GeneralMatrix
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ...egs import generate
from ...egs.rows import example_io, is_finite
from ...egs.splitting import ExampleGenerationOptions, UtteranceSplitter
from ...files.examples import NnetExample
from ..base.options import COMPRESS, SRAND, shown
from ..base.program import Option, from_values, options_of, program
from ..base.saving import fail_unless
from .egs import generator, writers

CUTTING = (
    *options_of(ExampleGenerationOptions),
    Option(
        "num-frames",
        "1",
        "Frames with labels in an example: the principal number, then others that may be used for"
        " the rest of an utterance, e.g. 40,25,50; -1 = whole utterances",
    ),
)
NAN = Option("skip-nan", False, "Pass over utterances with NaN or infinity, in place of refusing")


def ivector_options() -> Iterator[Option]:
    """Options that say where iVectors come from."""
    yield Option("ivectors", "", "The same as --online-ivectors")
    yield Option("online-ivectors", "", "Rspecifier of iVectors, as matrices")
    yield Option("online-ivector-period", 1, "Frames between two of these iVectors")
    yield Option("length-tolerance", 100, "How much features and iVectors may differ in frames")


GETTING = (
    *CUTTING,
    SRAND,
    COMPRESS,
    *ivector_options(),
    Option("targets-length-tolerance", 2, "How much features and targets may differ in frames"),
    NAN,
)


class RandomTargets(Protocol):
    """Targets of utterances by key, as `RandomAccessTable` gives them."""

    def __contains__(self, key: str) -> bool: ...

    def __getitem__(self, key: str) -> Any: ...


class Getter:
    """Makes examples of features and targets; the base of the programs that do so.

    Attributes:
        kind: of the examples.
    """

    kind = "example"

    def __init__(self, options: SimpleNamespace) -> None:
        self.options = options
        self.program = options.program
        self.failed = 0
        self.written = 0
        frames = ExampleGenerationOptions.parse_frames(options.num_frames)
        cutting = from_values(ExampleGenerationOptions, vars(options), num_frames=frames)
        self.rng = generator(options)
        self.splitter = UtteranceSplitter(cutting, self.rng)
        name = options.online_ivectors or options.ivectors
        self.ivectors = RandomAccessTable(name, "matrix") if name else None
        if name and options.online_ivector_period < 1:
            raise FormatError("--online-ivector-period must be positive")

    def run(
        self,
        features: str,
        table: RandomTargets,
        output: str,
        make: Callable[[Any], Any] = lambda target: target,
    ) -> None:
        """Go through features; `make` turns an utterance's targets into targets of examples."""
        with TableWriter(output, self.kind) as writer:
            for key, matrix in shown(read_table(features, "general_matrix"), "cut", "utterances"):
                if key not in table:
                    self.fail(f"No targets for key {key}")
                    continue
                target = table[key]
                rows = matrix.shape[0]
                count = self.count(target)
                if count is not None and not self._match(rows, count):
                    self.fail(f"{key} has {rows} frames and {count} targets")
                    continue
                source = self._ivectors_of(key, rows)
                if self.ivectors is not None and source is None:
                    continue
                matrices = {"features": matrix, "targets": target}
                if source is not None:
                    matrices["iVectors"] = source.matrix
                if not self._all_finite(key, matrices):
                    continue
                before = self.written + self.failed
                try:
                    for name, example in self.examples(key, matrix, make(target), source):
                        writer.write(name, example)
                        self.written += 1
                except ShapeError as error:
                    raise ShapeError(f"{key}: {error}") from error
                if self.written + self.failed == before:
                    self.program.warn(
                        f"Not producing egs for utterance {key} because it is too short: {rows}"
                        " frames."
                    )
        if self.failed:
            self.program.warn(f"{self.failed} utterances had errors and could not be processed.")
        self.splitter.report(self.program.log)
        fail_unless(self.written)

    def count(self, targets: Any) -> int | None:
        """The number of frames of targets; None if any number of features fits."""
        return len(targets)

    def _match(self, rows: int, count: int) -> bool:
        tolerance = self.options.targets_length_tolerance
        return self.splitter.lengths_match(rows, count, tolerance)

    def examples(
        self, key: str, matrix: Any, targets: Any, ivectors: generate.IvectorSource | None
    ) -> Iterator[tuple[str, Any]]:
        """The examples of an utterance, with their keys."""
        compress = self.options.compress
        return generate.examples(key, matrix, targets, self.splitter, ivectors, compress)

    def _ivectors_of(self, key: str, rows: int) -> generate.IvectorSource | None:
        if self.ivectors is None:
            return None
        matrix = self.ivectors.get(key)
        period = self.options.online_ivector_period
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

    def _all_finite(self, key: str, held: dict[str, Any]) -> bool:
        """Whether there is no NaN and no infinity in the matrices of an utterance.

        Raises:
            FormatError: there is, and such utterances are not to be passed over.
        """
        for what, matrix in held.items():
            if isinstance(matrix, GeneralMatrix) and not is_finite(matrix):
                message = f"{key}: the {what} hold NaN or infinity"
                if not self.options.skip_nan:
                    raise FormatError(f"{message}; --skip-nan passes over such utterances")
                self.fail(message)
                return False
        return True

    def fail(self, message: str) -> None:
        """Note an utterance without examples."""
        self.program.warn(message)
        self.failed += 1


@program(
    "nnet3-get-egs",
    "Make training examples from features and posteriors of classes.",
    ("<features-rspecifier>", "<pdf-post-rspecifier>", "<egs-out>"),
    *GETTING,
    Option("num-pdfs", -1, "Number of classes"),
)
def nnet3_get_egs(options: SimpleNamespace, features: str, posteriors: str, output: str) -> None:
    if options.num_pdfs <= 0:
        raise FormatError("--num-pdfs is required, and positive")
    factor = options.frame_subsampling_factor
    Getter(options).run(
        features,
        RandomAccessTable(posteriors, "posterior"),
        output,
        lambda post: generate.posterior_targets(post, options.num_pdfs, factor),
    )


@program(
    "nnet3-get-egs-dense-targets",
    "Make training examples from features and matrices of targets.",
    ("<features-rspecifier>", "<targets-rspecifier>", "<egs-out>"),
    *GETTING,
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

    Getter(options).run(features, RandomAccessTable(targets, "matrix"), output, make)


@program(
    "nnet3-get-egs-simple",
    "Make training examples of whole matrices, such as images: an example for each key of the first"
    " table, whose rows, and those that other tables have for the key, are the times from 0 on.",
    ("<name>=<rspecifier>...", "<egs-wspecifier>"),
)
def nnet3_get_egs_simple(options: SimpleNamespace, *files: str) -> None:
    *given, output = files
    named = [_named_table(text) for text in given]
    kind = "general_matrix"
    others = [(name, RandomAccessTable(source, kind)) for name, source in named[1:]]
    first, source = named[0]
    failed = 0
    with TableWriter(output, "example") as writer:
        for key, matrix in shown(read_table(source, kind), "make", "examples"):
            found = {name: table.get(key) for name, table in others}
            missing = [name for name, other in found.items() if other is None]
            if missing:
                options.program.warn(f"Could not find input for key {key} for io-name={missing[0]}")
                failed += 1
                continue
            io = [example_io(name, each) for name, each in ((first, matrix), *found.items())]
            writer.write(key, NnetExample(io))
        done = writer.count
    if failed:
        options.program.warn(f"{failed} utterances had errors and could not be processed.")
    fail_unless(done)


def _named_table(text: str) -> tuple[str, str]:
    """The two sides of NAME=RSPECIFIER. Raises FormatError: it is something else."""
    name, _, source = text.partition("=")
    if name.split() != [name] or not is_specifier(source):
        raise FormatError(f"{text}: NAME=RSPECIFIER is wanted, such as input=scp:images.scp")
    return name, source


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
    with writers(outputs) as opened:
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
                if chunk.archive >= len(opened):
                    raise FormatError(f"{ranges}: archive {chunk.archive} of {len(opened)}")
                try:
                    example = generate.xvector_example(
                        chunk, matrix, options.num_pdfs, options.compress
                    )
                except ShapeError as error:
                    options.program.warn(f"{key}: {error}")
                    continue
                opened[chunk.archive].write(chunk.key, example)
                written += 1
    options.program.log(
        f"Finished generating examples, successfully processed {done} feature files, wrote"
        f" {written} examples; {failed} files had errors."
    )
    fail_unless(written and failed <= done)
