"""Kaldi's programs for features that its training scripts call: normalized, measured.

Source: Kaldi's `featbin/apply-cmvn.cc`, `feat-to-dim.cc`, `feat-to-len.cc`, `transform/cmvn.cc`,
`nnet3bin/cuda-compiled.cc`, `nnet3bin/cuda-gpu-available.cc`.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from ...framework.base.backend import GPUPlace, gpu_present, on_device
from ...framework.base.errors import DeviceError, FormatError, ShapeError
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.tables.specifiers import is_specifier
from ...kaldi.tables.streams import open_reader
from ...kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from .base.options import errors_tell, shown
from .base.program import Option, program
from .base.saving import fail_unless, save
from .base.table_copies import write_table

_LEAST_COUNT = 1.0
_LEAST_VARIANCE = 1e-20
_TOLERANCE = 1e-2


@program(
    "apply-cmvn",
    "Normalize features by the mean, and if wanted the variance, that statistics give for each"
    " utterance, of each speaker, or of all.",
    ("<cmvn-stats>", "<feats-rspecifier>", "<feats-wspecifier>"),
    Option("utt2spk", "", "Rspecifier of the speakers of utterances; then statistics are theirs"),
    Option("norm-vars", False, "Normalize variances"),
    Option("norm-means", True, "Normalize means; without it features are copied as they are"),
    Option("skip-dims", "", "Dimensions that are left alone, with ':' between"),
    Option("reverse", False, "Give normalized features the mean and variance of the statistics"),
)
def apply_cmvn(options: SimpleNamespace, stats: str, source: str, output: str) -> None:
    if options.norm_vars and not options.norm_means:
        raise FormatError("--norm-vars=true wants --norm-means=true")
    log = options.program.log
    if not options.norm_means:
        kind = "general_matrix"
        done = write_table(output, kind, shown(read_table(source, kind), "copy", "utterances"))
        log(f"Copied {done} utterances.")
        return fail_unless(done)
    normalizer = _Normalizer(options, stats)
    failed = 0
    with TableWriter(output, "matrix") as writer:
        for key, matrix in shown(read_table(source, "matrix"), "normalize", "utterances"):
            with errors_tell(f"{source}: {key}"):
                terms = normalizer.terms(key, matrix.shape[1])
            if terms is None:
                failed += 1
                continue
            scale, offset = terms
            writer.write(key, matrix + offset if scale is None else matrix * scale + offset)
        done = writer.count
    what = "mean and variance" if options.norm_vars else "mean"
    log(f"Applied cepstral {what} normalization to {done} utterances, errors on {failed}")
    return fail_unless(done)


class _Normalizer:
    """Knows the statistics of utterances."""

    def __init__(self, options: SimpleNamespace, stats: str) -> None:
        self._options = options
        self._all = None
        self._table = None
        if is_specifier(stats):
            self._table = RandomAccessTable(stats, "double_matrix", utt2spk=options.utt2spk)
        elif options.utt2spk:
            raise FormatError(f"--utt2spk wants a table of statistics, not the file {stats}")
        else:
            self._all = open_reader(stats).read_matrix(np.float64)
        skipped = dimensions(options.skip_dims)
        self._terms = CmvnTerms(options.norm_vars, skipped, options.reverse)

    def terms(self, key: str, dim: int) -> tuple[np.ndarray | None, np.ndarray] | None:
        """What features of an utterance are multiplied with, if they are, and what is added:
        float32, [dim]. None where there are no statistics.

        Raises:
            ShapeError, FormatError: the statistics do not fit.
        """
        if self._table is None:
            stats = self._all
        elif key not in self._table:
            self._options.program.warn(
                f"No normalization statistics available for key {key}, producing no output for"
                " this utterance"
            )
            return None
        else:
            stats = self._table[key]
        return self._terms.of(np.array(stats), dim)


@dataclass(frozen=True)
class CmvnTerms:
    """How statistics normalize features.

    Attributes:
        variances: variances are normalized as well as means.
        skipped: dimensions that are left alone.
        reverse: features get the mean and variance of the statistics.
    """

    variances: bool
    skipped: Sequence[int] = ()
    reverse: bool = False

    def of(self, stats: np.ndarray, dim: int) -> tuple[np.ndarray | None, np.ndarray]:
        """What features of `dim` columns are multiplied with, if they are, and what is added:
        float32, [dim].

        Args:
            stats: [2, dim + 1], of which skipped dimensions are overwritten.

        Raises:
            ShapeError, FormatError: the statistics do not fit.
        """
        if stats.shape not in ((1, dim + 1), (2, dim + 1)):
            raise ShapeError(
                f"statistics {list(stats.shape)} for features of {dim} columns: want [2, {dim + 1}]"
            )
        if len(stats) == 1 and (self.variances or self.skipped):
            raise ShapeError("the statistics have no row of squares, which variances need")
        count = stats[0, dim]
        for skipped in self.skipped:
            if not 0 <= skipped < dim:
                raise FormatError(f"--skip-dims: there is no dimension {skipped} of {dim}")
            stats[:, skipped] = 0.0, count
        if not count >= _LEAST_COUNT:
            raise FormatError(f"statistics of {count:g} frames are not enough to normalize by")
        mean = stats[0, :dim] / count
        if not self.variances:
            return None, _single(mean if self.reverse else -1.0 / count * stats[0, :dim])
        variance = np.maximum(stats[1, :dim] / count - mean * mean, _LEAST_VARIANCE)
        if self.reverse:
            return _single(np.sqrt(variance)), _single(mean)
        scale = 1.0 / np.sqrt(variance)
        if not np.isfinite(scale).all():
            raise FormatError("the statistics hold NaN or infinity")
        return _single(scale), _single(-(mean * scale))


def _single(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)


def dimensions(text: str) -> list[int]:
    """The numbers of `--skip-dims`.

    Raises:
        FormatError: there is something else.
    """
    try:
        return [int(word) for word in text.split(":")] if text else []
    except ValueError:
        raise FormatError(f"--skip-dims={text}: want numbers with ':' between") from None


@program(
    "feat-to-dim",
    "Print how many columns the first feature matrix of a table has, or write those of all.",
    ("<feat-rspecifier>", "<out>"),
)
def feat_to_dim(options: SimpleNamespace, source: str, output: str) -> None:
    _measure(source, output, 1)


@program(
    "feat-to-len",
    "Write how many frames each feature matrix of a table has, or print their sum.",
    ("<feat-rspecifier>", "[<out>]"),
)
def feat_to_len(options: SimpleNamespace, source: str, output: str) -> None:
    if output:
        _measure(source, output, 0)
        return
    frames = sum(matrix.shape[0] for _, matrix in read_table(source, "general_matrix"))
    click.echo(str(frames))


def _measure(source: str, output: str, axis: int) -> None:
    """Write the sizes of matrices along an axis: a table of them, or that of the first."""
    matrices: Any = read_table(source, "general_matrix")
    if is_specifier(output):
        write_table(output, "int", ((key, matrix.shape[axis]) for key, matrix in matrices))
        return
    for _, matrix in matrices:
        writer = Writer(binary=False)
        writer.write_raw(f"{matrix.shape[axis]}\n")
        save(writer, output)
        return
    raise FormatError(f"{source}: no features in it")


@program("cuda-compiled", "Succeed if there is a GPU to compute on.", ())
def cuda_compiled(options: SimpleNamespace) -> None:
    fail_unless(gpu_present())


@program("cuda-gpu-available", "Succeed if there is a GPU, and it computes.", ())
def cuda_gpu_available(options: SimpleNamespace) -> None:
    log = options.program.log
    log(f"### IS CUDA GPU AVAILABLE? '{socket.gethostname()}' ###")
    place = GPUPlace()
    xp = place.xp
    with on_device(place):
        values = xp.exp(xp.zeros((100, 100), np.float32))
        total = float((values / values.sum(axis=1, keepdims=True)).sum())
    if abs(total - 100) > _TOLERANCE:
        raise DeviceError(f"the GPU computes wrong results: 100 rows of softmax add up to {total}")
    log("### Test OK! ###")
