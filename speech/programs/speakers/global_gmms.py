"""Kaldi's programs that make, estimate and copy single mixtures of Gaussians.

Source: Kaldi's `gmmbin/gmm-global-*.cc` and `fgmmbin/fgmm-global-*.cc` of these names.
"""

from __future__ import annotations

from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import read_table
from ....nnet3.programs.base.options import BINARY, errors_tell, shown
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import write_model
from ....nnet3.training.progress import ratio
from ...ivector.full_gmm import FullGmm
from ...ivector.gmm import DiagGmm, Gmm
from ...ivector.gmm_start import drawn_frames, started, trained
from ...ivector.gmm_training import (
    DiagGmmOptions,
    FullGmmOptions,
    GmmOptions,
    GmmStats,
    estimated,
    update_flags,
)
from ...ivector.kaldi_random import KaldiRandom

UPDATE = Option("update-flags", "mvw", "Parameters that are updated: letters of mvw")
_ESTIMATING = (
    ("<model-in>", "<stats-in>", "<model-out>"),
    BINARY,
    UPDATE,
    Option("mix-up", 0, "Number of Gaussians to grow to; 0: none is added"),
    Option("perturb-factor", 0.01, "Move means of new Gaussians by this fraction of a deviation"),
)
_SUMMING = ("<stats-out>", "<stats-in>..."), BINARY
_COPYING = ("<model-in>", "<model-out>"), BINARY


@program(
    "gmm-global-init-from-feats",
    "Make a mixture of diagonal Gaussians, and train it on frames that are kept in memory.",
    ("<feature-rspecifier>", "<model-out>"),
    BINARY,
    Option("num-gauss", 100, "Number of Gaussians"),
    Option("num-gauss-init", 0, "Number to begin with, if above 0 and below --num-gauss"),
    Option("num-iters", 50, "Iterations of training"),
    Option("num-frames", 200000, "Most frames in memory, chosen at random"),
    Option("srand", 0, "Seed for random number generator"),
    Option("num-threads", 4, "Taken for compatibility; NumPy's threads compute"),
    *options_of(DiagGmmOptions),
)
def gmm_global_init_from_feats(options: SimpleNamespace, source: str, output: str) -> None:
    log = options.program.log
    for name in ("num_gauss", "num_frames"):
        if getattr(options, name) < 1:
            raise FormatError(f"--{name.replace('_', '-')} must be positive")
    random = KaldiRandom(options.srand)
    log(f"Reading features (will keep {options.num_frames} frames.)")
    matrices = (matrix for _, matrix in shown(read_table(source, "matrix"), "read", "utterances"))
    with errors_tell(source):
        features, seen = drawn_frames(matrices, options.num_frames, random)
        first = options.num_gauss_init
        first = first if 0 < first < options.num_gauss else options.num_gauss
        gmm = started(features, first, random)
    if seen < options.num_frames:
        options.program.warn(
            f"Number of frames read {seen} was less than target number {options.num_frames}, using"
            " all we read."
        )
    log(
        f"Kept {len(features)} out of {seen} input frames = {100 * len(features) / seen:g}%."
        f" Initialized GMM means from random frames to {first} Gaussians."
    )
    settings = from_values(DiagGmmOptions, vars(options))
    gmm = trained(features, gmm, options.num_gauss, options.num_iters, settings, random, log)
    write_model(gmm, output, options.binary)
    log(f"Wrote model to {output}")


@program(
    "gmm-global-est",
    "Estimate a mixture of diagonal Gaussians of statistics.",
    *_ESTIMATING,
    *options_of(DiagGmmOptions),
)
def gmm_global_est(options: SimpleNamespace, model: str, stats: str, output: str) -> None:
    settings = from_values(DiagGmmOptions, vars(options))
    _estimate(options, DiagGmm.read(open_reader(model)), settings, stats, output)


@program(
    "fgmm-global-est",
    "Estimate a mixture of full Gaussians of statistics.",
    *_ESTIMATING,
    *options_of(FullGmmOptions),
)
def fgmm_global_est(options: SimpleNamespace, model: str, stats: str, output: str) -> None:
    settings = from_values(FullGmmOptions, vars(options))
    _estimate(options, FullGmm.read(open_reader(model)), settings, stats, output)


def _estimate(
    options: SimpleNamespace, gmm: Gmm, settings: GmmOptions, source: str, output: str
) -> None:
    log = options.program.log
    stats = GmmStats.read(open_reader(source), isinstance(gmm, FullGmm))
    with errors_tell(source):
        gmm, gain = estimated(gmm, stats, settings, update_flags(options.update_flags))
    count = float(stats.counts.sum())
    log(
        f"Overall objective function improvement is {ratio(gain, count):g} per frame over {count:g}"
        " frames."
    )
    if options.mix_up > len(gmm.weights):
        gmm = gmm.split(options.mix_up, options.perturb_factor, KaldiRandom())
    elif options.mix_up:
        options.program.warn(
            f"There are {len(gmm.weights)} Gaussians: --mix-up={options.mix_up} adds none"
        )
    write_model(gmm, output, options.binary)
    log(f"Written model to {output}")


@program("gmm-global-sum-accs", "Add statistics for mixtures of diagonal Gaussians.", *_SUMMING)
def gmm_global_sum_accs(options: SimpleNamespace, output: str, *files: str) -> None:
    _sum(options, output, files, full=False)


@program("fgmm-global-sum-accs", "Add statistics for mixtures of full Gaussians.", *_SUMMING)
def fgmm_global_sum_accs(options: SimpleNamespace, output: str, *files: str) -> None:
    _sum(options, output, files, full=True)


def _sum(options: SimpleNamespace, output: str, files: tuple[str, ...], full: bool) -> None:
    first, *others = files
    stats = GmmStats.read(open_reader(first), full)
    for name in others:
        with errors_tell(name):
            stats.merge(GmmStats.read(open_reader(name), full))
    write_model(stats, output, options.binary)
    options.program.log(f"Written stats to {output}")


@program("gmm-global-copy", "Copy a mixture of diagonal Gaussians.", *_COPYING)
def gmm_global_copy(options: SimpleNamespace, model: str, output: str) -> None:
    _write(options, DiagGmm.read(open_reader(model)), output)


@program("fgmm-global-copy", "Copy a mixture of full Gaussians.", *_COPYING)
def fgmm_global_copy(options: SimpleNamespace, model: str, output: str) -> None:
    _write(options, FullGmm.read(open_reader(model)), output)


@program("gmm-global-to-fgmm", "Write diagonal Gaussians as full ones.", *_COPYING)
def gmm_global_to_fgmm(options: SimpleNamespace, model: str, output: str) -> None:
    _write(options, FullGmm.of_diagonal(DiagGmm.read(open_reader(model))), output)


@program("fgmm-global-to-gmm", "Write full Gaussians as diagonal ones.", *_COPYING)
def fgmm_global_to_gmm(options: SimpleNamespace, model: str, output: str) -> None:
    _write(options, FullGmm.read(open_reader(model)).diagonal(), output)


def _write(options: SimpleNamespace, gmm: Gmm, output: str) -> None:
    write_model(gmm, output, options.binary)
    options.program.log(f"Written model to {output}")
