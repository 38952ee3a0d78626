"""Kaldi's programs for training examples: copied, merged, shuffled, drawn from, changed.

Source: Kaldi's `nnet3bin/nnet3-copy-egs.cc`, `nnet3-merge-egs.cc`, `nnet3-shuffle-egs.cc`,
`nnet3-subset-egs.cc`, `nnet3-egs-augment-image.cc`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.values import whole_number
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ...egs import selecting
from ...egs.augment import AugmentationOptions, augmented
from ...egs.merging import ExampleMerger, MinibatchRule
from ...training.progress import Log
from ..base.options import SRAND, UNUSED, errors_tell, shown
from ..base.program import KaldiCommand, Option, from_values, options_of, program
from ..base.saving import fail_unless
from ..base.table_copies import write_table

SPREADING = (
    Option("random", False, "Write to outputs drawn at random"),
    Option("frame-shift", 0, "Frames by which times are later, after the choice of frames"),
    Option("keep-proportion", 1.0, "Share of examples that is kept; above 1: copies of each"),
)
COPYING = (
    *SPREADING,
    Option("left-context", -1, "If >= 0, cut the left context down to this"),
    Option("right-context", -1, "If >= 0, cut the right context down to this"),
    Option("weights", "", "Rspecifier of factors for the targets, by the examples' keys"),
    Option("outputs", "", "Rspecifier of names for the output, by the examples' keys"),
)

_MOST_COPIES = 1000  # of one example


def merging_options(size: str) -> Iterator[Option]:
    """Options of the programs that merge examples; `size`: the default of --minibatch-size."""
    yield Option("compress", False, "Compress the merged features")
    yield Option(
        "minibatch-size",
        size,
        "Examples in a minibatch: a number, or numbers and ranges, e.g. 16:32,64,128, of which all"
        " but the largest are for the end; or SIZE=.../SIZE=... by the size of examples",
    )
    yield Option("measure-output-frames", "deprecated", UNUSED)
    yield Option("discard-partial-minibatches", "deprecated", UNUSED)
    yield Option(
        "multilingual-eg",
        False,
        "With chain examples: name the output 'output-LANG' after the ?lang=LANG of the key",
    )


def generator(options: SimpleNamespace) -> np.random.Generator:
    return np.random.default_rng(options.srand & 0xFFFFFFFF)


@contextlib.contextmanager
def writers(names: Sequence[str], kind: str = "example") -> Iterator[list[TableWriter]]:
    """Writers of tables, all closed at the end."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(TableWriter(name, kind)) for name in names]


@program(
    "nnet3-copy-egs",
    "Copy examples, to one archive after the other where there are several; frames may be chosen"
    " and context cut.",
    ("<egs-rspecifier>", "<egs-wspecifier>..."),
    SRAND,
    *COPYING,
    Option("frame", "", "Choose one frame of each example: its number, or 'random'"),
)
def nnet3_copy_egs(options: SimpleNamespace, source: str, *outputs: str) -> None:
    copy_examples(Copier(options), source, outputs)


def copy_examples(copier: Copier, source: str, outputs: Sequence[str]) -> None:
    """Copy a table of examples to others, each changed by the copier.

    Raises:
        OpscopeError: what the copier raises, with the example's key in front.
    """
    options = copier.options
    if not 0 <= options.keep_proportion <= _MOST_COPIES:
        raise FormatError(f"--keep-proportion must be a number from 0 to {_MOST_COPIES}")
    read = written = failed = 0
    with writers(outputs, copier.kind) as opened:
        for key, example in shown(read_table(source, copier.kind), "copy", "examples"):
            read += 1
            with errors_tell(f"{source}: {key}"):
                changed = copier.annotate(key, example)
                if changed is None:
                    failed += 1
                    continue
                for _ in range(copier.count()):
                    chosen = copier.select(changed)
                    if chosen is None:
                        continue
                    place = int(copier.rng.integers(1 << 31)) if options.random else written
                    opened[place % len(opened)].write(key, chosen)
                    written += 1
    options.program.log(
        f"Read {read} neural-network training examples, wrote {written}, {failed} examples had"
        " errors."
    )
    fail_unless(written)


class Copier:
    """Changes one example as the options of nnet3-copy-egs ask.

    Attributes:
        kind: of the examples.
    """

    kind = "example"

    def __init__(self, options: SimpleNamespace) -> None:
        self.options = options
        self.rng = generator(options)
        self.weights = RandomAccessTable(options.weights, "float") if options.weights else None
        self.names = RandomAccessTable(options.outputs, "token") if options.outputs else None
        frame = getattr(options, "frame", "")
        if frame not in ("", "random"):
            whole_number(frame, "--frame (a number, 'random' or nothing)")

    def annotate(self, key: str, example: Any) -> Any:
        """The example times its weight; None if a table of weights or names lacks its key."""
        warn = self.options.program.warn
        if self.weights is not None:
            if key not in self.weights:
                warn(f"No weight for example key {key}")
                return None
            example = self.scaled(example, self.weights[key])
        if self.names is not None and key not in self.names:
            warn(f"No new output-name for example key {key}")
            return None
        self.name = self.names[key] if self.names is not None else ""
        return example

    def scaled(self, example: Any, weight: float) -> Any:
        """The example with its targets multiplied by a weight."""
        return selecting.scaled_output(example, weight)

    def count(self) -> int:
        """How often to write an example."""
        whole = int(self.options.keep_proportion)
        return whole + bool(self.rng.random() < self.options.keep_proportion - whole)

    def select(self, example: Any) -> Any:
        """The example with the chosen frames and output name; None if it lacks those frames."""
        options = self.options
        chosen = example
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
        return selecting.renamed_output(chosen, self.name) if self.name else chosen


@program(
    "nnet3-merge-egs",
    "Merge examples of the same structure into minibatches.",
    ("<egs-rspecifier>", "<egs-wspecifier>"),
    *merging_options("256"),
)
def nnet3_merge_egs(options: SimpleNamespace, source: str, output: str) -> None:
    merger = ExampleMerger(MinibatchRule(options.minibatch_size), options.compress)
    entries = shown(read_table(source, "example"), "merge", "examples")
    merge_to(merger, (example for _, example in entries), output, "example", options.program.log)


def merge_to(
    merger: ExampleMerger, examples: Iterable[Any], output: str, kind: str, log: Log
) -> None:
    """Write the minibatches that are made of examples."""
    write_table(output, kind, merger.merge(examples))
    merger.report(log)
    fail_unless(merger.minibatches)


def shuffle_program(name: str, examples: str, kind: str) -> KaldiCommand:
    """The program that copies a table of examples in random order.

    Args:
        name: of the program. examples: what its usage message calls them. kind: of the table.
    """

    def shuffle(options: SimpleNamespace, source: str, output: str) -> None:
        entries = shown(read_table(source, kind), "read", "examples")
        shuffled = selecting.shuffle(entries, generator(options), options.buffer_size)
        done = write_table(output, kind, shuffled)
        how = "using a buffer (partial randomization)" if options.buffer_size > 0 else ""
        options.program.log(f"Shuffled order of {done} neural-network training examples {how}")
        fail_unless(done)

    size = "If above 0, hold no more examples than this, and shuffle less well"
    files = "<egs-rspecifier>", "<egs-wspecifier>"
    options = SRAND, Option("buffer-size", 0, size)
    return program(name, f"Copy {examples} in random order.", files, *options)(shuffle)


def subset_program(name: str, examples: str, kind: str) -> KaldiCommand:
    """The program that copies some examples of a table, drawn at random; see `shuffle_program`."""

    def draw(options: SimpleNamespace, source: str, output: str) -> None:
        if options.n < 0:
            raise FormatError("--n must not be negative")
        entries = shown(read_table(source, kind), "read", "examples")
        rng = generator(options)
        chosen, read = selecting.subset(entries, options.n, rng, options.randomize_order)
        write_table(output, kind, chosen)
        options.program.log(
            f"Selected a subset of {len(chosen)} out of {read} neural-network training examples "
        )
        fail_unless(read)

    files = "<egs-rspecifier>", "<egs-wspecifier>"
    options = (
        SRAND,
        Option("n", 1000, "Number of examples to write"),
        Option("randomize-order", True, "Write them in random order"),
    )
    return program(name, f"Draw {examples} at random.", files, *options)(draw)


nnet3_shuffle_egs = shuffle_program("nnet3-shuffle-egs", "examples", "example")
nnet3_subset_egs = subset_program("nnet3-subset-egs", "examples", "example")


@program(
    "nnet3-egs-augment-image",
    "Change the images in examples at random: flipped, shifted, turned.",
    ("<egs-rspecifier>", "<egs-wspecifier>"),
    SRAND,
    *options_of(AugmentationOptions),
)
def nnet3_egs_augment_image(options: SimpleNamespace, source: str, output: str) -> None:
    chosen = from_values(AugmentationOptions, vars(options))
    rng = generator(options)
    with TableWriter(output, "example") as writer:
        for key, example in shown(read_table(source, "example"), "change", "examples"):
            with errors_tell(f"{source}: {key}"):
                writer.write(key, augmented(example, chosen, rng))
        done = writer.count
    options.program.log(f"Perturbed {done} neural-network training images.")
    fail_unless(done)
