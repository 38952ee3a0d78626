"""Kaldi's programs that begin acoustic models of Gaussians, with their trees.

Source: Kaldi's `gmmbin/gmm-init-mono.cc`, `gmm-init-biphone.cc`, `gmm-init-model.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.context_dependency import ContextDependency, new_transition_model
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.files.transition_model import read_topology
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import read_table
from ....nnet3.programs.base.options import BINARY
from ....nnet3.programs.base.program import Option, program
from ....nnet3.programs.base.saving import save, write_model
from ...ivector.gmm import DiagGmm
from ...ivector.kaldi_random import KaldiRandom
from ...trees.gaussian_models import (
    GaussianModel,
    of_features,
    of_leaves,
    of_old_model,
    perturbed,
    single,
)
from ...trees.gaussians import sums_by
from ...trees.questions import check_disjoint, read_phone_sets
from ...trees.statistics import TreeStats, leaves
from ...trees.stubs import PhoneCounts, biphone_tree, monophone_tree, pdf_classes
from .trees import integers

_FILES = ("<topology-in>", "<dim>", "<model-out>", "<tree-out>")
_SHARED = Option("shared-phones", "", "File of lines of phones that share their pdfs")
_MOST_COLUMNS = 10000
_FEW_FRAMES = 100


def _dimension(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < _MOST_COLUMNS:
        raise FormatError(f"{text} is no number of columns of features")
    return int(text)


def _sets(path: str, phones: list[int]) -> list[list[int]]:
    """The sets of phones that share pdfs: of a file, or each phone by itself."""
    if not path:
        return [[phone] for phone in phones]
    sets = read_phone_sets(path)
    check_disjoint(sets, path)
    return sets


def _write(
    options: SimpleNamespace,
    topology: str,
    tree: ContextDependency,
    mixtures: list[DiagGmm],
    model: str,
    tree_out: str,
) -> None:
    transitions = new_transition_model(tree, open_reader(topology))
    write_model(GaussianModel(transitions, mixtures), model, options.binary)
    write_model(tree, tree_out, options.binary)


@program(
    "gmm-init-mono",
    "Make a monophone model with a Gaussian for each pdf, all alike, and its tree.",
    _FILES,
    BINARY,
    Option("train-feats", "", "Rspecifier of features whose mean and variance the Gaussians have"),
    _SHARED,
    Option("perturb-factor", 0.0, "Move means at random by this fraction of the deviation"),
)
def gmm_init_mono(
    options: SimpleNamespace, topology: str, dim: str, model: str, tree_out: str
) -> None:
    columns = _dimension(dim)
    phones, entry_of, entries = read_topology(open_reader(topology))
    tree = monophone_tree(
        _sets(options.shared_phones, phones), pdf_classes(phones, entry_of, entries)
    )
    if options.train_feats:
        gmm = of_features(
            (value for _, value in read_table(options.train_feats, "matrix")), columns
        )
    else:
        gmm = single(np.ones(columns), np.ones(columns))
    mixtures = [gmm] * tree.num_pdfs
    if options.perturb_factor:
        random = KaldiRandom()
        mixtures = [perturbed(gmm, options.perturb_factor, random) for _ in mixtures]
    _write(options, topology, tree, mixtures, model, tree_out)


@program(
    "gmm-init-biphone",
    "Make a model whose tree has outputs for all pairs of phones, for end-to-end training.",
    _FILES,
    BINARY,
    _SHARED,
    Option("ci-phones", "", "Phones without context: integers between colons"),
    Option("phone-counts", "", "File of lines: a phone or a pair of phones, and how often it is"),
    Option("min-biphone-count", 100, "Least count of a pair that has pdfs of its own"),
    Option("min-monophone-count", 20, "Count above which rare pairs share pdfs by right phone"),
)
def gmm_init_biphone(
    options: SimpleNamespace, topology: str, dim: str, model: str, tree_out: str
) -> None:
    columns = _dimension(dim)
    phones, entry_of, entries = read_topology(open_reader(topology))
    classes = pdf_classes(phones, entry_of, entries)
    if any(count not in (1, 2) for count in classes.values()) or 1 not in classes:
        raise FormatError(f"{topology}: a phone 1, and 1 or 2 classes of outputs a phone")
    alone = integers(options.ci_phones, "ci-phones", 1)
    counts = None
    if options.phone_counts:
        counts = PhoneCounts.read(
            options.phone_counts, options.min_monophone_count, options.min_biphone_count
        )
        options.program.log("Loaded mono/bi phone counts.")
    sets = [
        left
        for each in _sets(options.shared_phones, phones)
        if (left := [phone for phone in each if phone not in alone])
    ]
    tree = biphone_tree(sets, alone, classes[1], counts)
    options.program.log(f"Num PDFs: {tree.num_pdfs}")
    mixtures = [single(np.ones(columns), np.ones(columns))] * tree.num_pdfs
    _write(options, topology, tree, mixtures, model, tree_out)


@program(
    "gmm-init-model",
    "Make a model with a Gaussian for each leaf of a tree, of its statistics; or with the mixtures"
    " of an old model that fit best.",
    ("<tree-in>", "<tree-stats-in>", "<topo-file>", "<model-out>", "[<old-tree>]", "[<old-model>]"),
    BINARY,
    Option("write-occs", "", "Where to write how many frames each pdf has"),
    Option("var-floor", 0.01, "Least variance of the Gaussians"),
)
def gmm_init_model(
    options: SimpleNamespace,
    tree_in: str,
    source: str,
    topology: str,
    model: str,
    old_tree: str,
    old_model: str,
) -> None:
    program = options.program
    tree = ContextDependency.read(open_reader(tree_in))
    stats = TreeStats.read(open_reader(source))
    program.log(f"Number of separate statistics is {len(stats.events)}")
    transitions = new_transition_model(tree, open_reader(topology))
    occupied = sums_by(leaves(tree.tree, stats), stats.counts[:, None], tree.num_pdfs)[:, 0]
    for pdf in np.flatnonzero(occupied < _FEW_FRAMES).tolist():
        phones = sorted({row[0] for row in transitions.tuples.tolist() if pdf in row[2:]})
        program.warn(
            f"Very small count for state {pdf}: {occupied[pdf]:.6g}; corresponding phone list:"
            f" {' '.join(map(str, phones))}"
        )
    if old_tree and not old_model:
        raise FormatError("an old tree wants its model: <old-tree> <old-model>")
    if old_tree:
        old = GaussianModel.read(open_reader(old_model))
        mixtures = of_old_model(
            tree,
            stats,
            options.var_floor,
            ContextDependency.read(open_reader(old_tree)),
            old.mixtures,
        )
    else:
        mixtures = of_leaves(tree, stats, options.var_floor)
    if options.write_occs:
        writer = Writer(options.binary)
        writer.write_vector(occupied.astype(np.float32))
        save(writer, options.write_occs)
    write_model(GaussianModel(transitions, mixtures), model, options.binary)
    program.log("Wrote model.")
