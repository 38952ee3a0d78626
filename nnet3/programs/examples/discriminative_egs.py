"""Kaldi's programs for discriminative examples: made, copied, merged, shuffled, drawn from.

Source: Kaldi's `nnet3bin/nnet3-discriminative-get-egs.cc`, `nnet3-discriminative-copy-egs.cc`,
`nnet3-discriminative-merge-egs.cc`, `nnet3-discriminative-shuffle-egs.cc`,
`nnet3-discriminative-subset-egs.cc`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.lattices.lattice import CompactLattice
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable, read_table
from ...chain.examples import NnetChainExample
from ...discriminative.examples import NnetDiscriminativeExample
from ...discriminative.splitting import DiscriminativeSplitter, SplitOptions
from ...discriminative.supervision import DiscriminativeSupervision
from ...egs import chain_changes as egs
from ...egs.chain_generate import chain_examples
from ...egs.generate import IvectorSource
from ...egs.merging import MinibatchRule
from ...egs.splitting import Chunk
from ..base.options import COMPRESS, SRAND, UNUSED, shown
from ..base.program import Option, from_values, options_of, program
from .egs import (
    SPREADING,
    Copier,
    copy_examples,
    merge_to,
    merging_options,
    shuffle_program,
    subset_program,
)
from .get_egs import CUTTING, Getter, ivector_options

KIND = "discriminative_example"


@program(
    "nnet3-discriminative-get-egs",
    "Make discriminative examples from features, lattices and alignments.",
    (
        "<model>",
        "<features-rspecifier>",
        "<denominator-lattice-rspecifier>",
        "<numerator-alignment-rspecifier>",
        "<egs-wspecifier>",
    ),
    *CUTTING,
    *ivector_options(),
    COMPRESS,
    *options_of(SplitOptions),
    Option("remove-output-symbols", True, UNUSED),
    Option("remove-epsilons", True, UNUSED),
)
def nnet3_discriminative_get_egs(
    options: SimpleNamespace, model: str, features: str, lattices: str, alignments: str, output: str
) -> None:
    options.srand = options.targets_length_tolerance = 0
    options.skip_nan = False
    transitions = TransitionModel.read_from(open_reader(model)).transitions()
    getter = _Getter(options, transitions.pdf)
    getter.run(features, _References(lattices, alignments), output)


class _References:
    """Lattices and alignments of utterances, by key."""

    def __init__(self, lattices: str, alignments: str) -> None:
        self._lattices = RandomAccessTable(lattices, "lattice")
        self._alignments = RandomAccessTable(alignments, "int_vector")

    def __contains__(self, key: str) -> bool:
        return key in self._lattices and key in self._alignments

    def __getitem__(self, key: str) -> tuple[np.ndarray, CompactLattice]:
        return self._alignments[key], self._lattices[key]


class _Getter(Getter):
    """Makes discriminative examples."""

    kind = KIND

    def __init__(self, options: SimpleNamespace, pdfs: np.ndarray) -> None:
        super().__init__(options)
        self._pdfs = pdfs
        self._cutting = from_values(SplitOptions, vars(options))

    def count(self, targets: tuple[np.ndarray, CompactLattice]) -> int:
        """See `Getter`."""
        return len(targets[0])

    def examples(
        self, key: str, matrix: Any, targets: Any, ivectors: IvectorSource | None
    ) -> Iterator[tuple[str, NnetChainExample]]:
        """See `Getter`."""
        supervision = DiscriminativeSupervision.of_utterance(*targets)
        parts = DiscriminativeSplitter(self._cutting, supervision, self._pdfs)
        factor = self.splitter.options.frame_subsampling_factor
        numbers = itertools.count()

        def part(chunk: Chunk) -> DiscriminativeSupervision:
            normalize = next(numbers) > 0  # of the first chunk the sum stays, as in Kaldi
            return parts.part(chunk.first // factor, chunk.frames // factor, normalize)

        yield from chain_examples(
            key,
            matrix,
            matrix.shape[0],
            self.splitter,
            part,
            ivectors=ivectors,
            compress=self.options.compress,
            kind=NnetDiscriminativeExample,
        )


@program(
    "nnet3-discriminative-copy-egs",
    "Copy discriminative examples, to one archive after the other where there are several.",
    ("<egs-rspecifier>", "<egs-wspecifier>..."),
    SRAND,
    *SPREADING,
)
def nnet3_discriminative_copy_egs(options: SimpleNamespace, source: str, *outputs: str) -> None:
    options.weights = options.outputs = ""
    copy_examples(_Copier(options), source, outputs)


class _Copier(Copier):
    """Changes one discriminative example as the options of nnet3-discriminative-copy-egs ask."""

    kind = KIND

    def select(self, example: NnetChainExample) -> NnetChainExample:
        """See `Copier`."""
        return egs.shifted(example, self.options.frame_shift)


@program(
    "nnet3-discriminative-merge-egs",
    "Merge discriminative examples of the same structure into minibatches.",
    ("<egs-rspecifier>", "<egs-wspecifier>"),
    *merging_options("64"),
)
def nnet3_discriminative_merge_egs(options: SimpleNamespace, source: str, output: str) -> None:
    merger = egs.ChainExampleMerger(MinibatchRule(options.minibatch_size), options.compress)
    entries = shown(read_table(source, KIND), "merge", "examples")
    merge_to(merger, (example for _, example in entries), output, KIND, options.program.log)


nnet3_discriminative_shuffle_egs = shuffle_program(
    "nnet3-discriminative-shuffle-egs", "discriminative examples", KIND
)
nnet3_discriminative_subset_egs = subset_program(
    "nnet3-discriminative-subset-egs", "discriminative examples", KIND
)
