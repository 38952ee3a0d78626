"""Kaldi's programs that train iVector extractors, and estimate iVectors of utterances.

Source: Kaldi's `ivectorbin/ivector-extractor-*.cc`, `ivectorbin/ivector-extract.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.posterior import Posterior
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ....nnet3.programs.base.options import BINARY, UNUSED, errors_tell, shown
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless, write_model
from ....nnet3.programs.base.speakers import BySpeaker
from ....nnet3.training.progress import ratio
from ...ivector.extractor import IvectorExtractor
from ...ivector.extractor_training import (
    ExtractorAccumulator,
    ExtractorOptions,
    ExtractorStats,
    estimated,
    pairs_of,
)
from ...ivector.full_gmm import FullGmm
from ...ivector.kaldi_random import KaldiRandom

_THREADS = Option("num-threads", 1, UNUSED), Option("num-threads-total", 0, UNUSED)
_SHAPE = (
    Option("ivector-dim", 400, "Dimension of iVectors"),
    Option("num-iters", 2, UNUSED),
    Option("use-weights", True, "Let weights of Gaussians depend on the iVector"),
)


@program(
    "ivector-extractor-init",
    "Begin an iVector extractor around a mixture of full Gaussians.",
    ("<fgmm-in>", "<ivector-extractor-out>"),
    BINARY,
    *_SHAPE,
)
def ivector_extractor_init(options: SimpleNamespace, gmm: str, output: str) -> None:
    if options.ivector_dim < 1:
        raise FormatError(f"--ivector-dim={options.ivector_dim} must be positive")
    extractor = IvectorExtractor.of(
        FullGmm.read(open_reader(gmm)), options.ivector_dim, KaldiRandom(), options.use_weights
    )
    write_model(extractor, output, options.binary)
    options.program.log(
        f"Initialized iVector extractor with iVector dimension {extractor.dim} and wrote it to"
        f" {output}"
    )


@program(
    "ivector-extractor-copy",
    "Copy an iVector extractor.",
    ("<ivector-extractor-in>", "<ivector-extractor-out>"),
    BINARY,
    *_SHAPE,
)
def ivector_extractor_copy(options: SimpleNamespace, source: str, output: str) -> None:
    write_model(IvectorExtractor.read(open_reader(source)), output, options.binary)


@program(
    "ivector-extractor-acc-stats",
    "Accumulate statistics to train an iVector extractor.",
    ("<model-in>", "<feature-rspecifier>", "<posteriors-rspecifier>", "<stats-out>"),
    BINARY,
    Option("update-variances", True, "Also accumulate for the covariances"),
    Option("compute-auxf", True, "Compute the log-likelihood"),
    Option("num-samples-for-weights", 10, "iVectors drawn for each utterance, to train weights"),
    Option("cache-size", 100, "Utterances that are computed at once"),
    *_THREADS,
)
def ivector_extractor_acc_stats(
    options: SimpleNamespace, model: str, source: str, posteriors: str, output: str
) -> None:
    accumulator = ExtractorAccumulator(
        IvectorExtractor.read(open_reader(model)),
        options.update_variances,
        options.compute_auxf,
        options.num_samples_for_weights,
        options.cache_size,
    )
    utterances = _Utterances(options, posteriors)
    frames = 0
    for key, features in shown(read_table(source, "matrix"), "accumulate", "utterances"):
        posterior = utterances.posterior(key, features)
        if posterior is not None:
            with errors_tell(f"{source}: {key}"):
                accumulator.add(features, posterior)
            frames += len(features)
    accumulator.flush()
    options.program.log(
        f"Done {utterances.done} files, {utterances.failed} with errors.  Total frames {frames}"
    )
    write_model(accumulator.stats, output, options.binary)
    options.program.log(f"Wrote stats to {output}")
    fail_unless(utterances.done)


class _Utterances:
    """Posteriors of utterances, and how many there were."""

    def __init__(self, options: SimpleNamespace, posteriors: str) -> None:
        self._program = options.program
        self._table = RandomAccessTable(posteriors, "posterior")
        self.done = self.failed = 0

    def posterior(self, key: str, features: np.ndarray) -> Posterior | None:
        """The posteriors of an utterance; None where there are none for its frames."""
        found = self._table.get(key)
        if found is None:
            self._program.warn(f"No posteriors for utterance {key}")
        elif len(found) != len(features):
            self._program.warn(
                f"Size mismatch between posterior {len(found)} and features {len(features)} for"
                f" utterance {key}"
            )
            found = None
        self.failed += found is None
        self.done += found is not None
        return found


@program(
    "ivector-extractor-sum-accs",
    "Add statistics of iVector extractors.",
    ("<stats-in>...", "<stats-out>"),
    BINARY,
    Option("parallel", False, "Taken for compatibility; inputs are read one after the other"),
)
def ivector_extractor_sum_accs(options: SimpleNamespace, *files: str) -> None:
    first, *others, output = files
    stats = ExtractorStats.read(open_reader(first))
    for name in others:
        with errors_tell(name):
            stats.merge(ExtractorStats.read(open_reader(name)))
    write_model(stats, output, options.binary)
    options.program.log(f"Wrote summed stats to {output}")


@program(
    "ivector-extractor-est",
    "Estimate an iVector extractor of statistics.",
    ("<model-in>", "<stats-in>", "<model-out>"),
    BINARY,
    Option("num-threads", 1, UNUSED),
    *options_of(ExtractorOptions),
)
def ivector_extractor_est(options: SimpleNamespace, model: str, stats: str, output: str) -> None:
    extractor = IvectorExtractor.read(open_reader(model))
    settings = from_values(ExtractorOptions, vars(options))
    with errors_tell(stats):
        read = ExtractorStats.read(open_reader(stats))
        extractor = estimated(extractor, read, settings, options.program.log)
    write_model(extractor, output, options.binary)
    options.program.log(f"Updated model and wrote it to {output}")


@program(
    "ivector-extract",
    "Estimate an iVector for each utterance, or with --spk2utt for each speaker, of features and"
    " posteriors of Gaussians.",
    ("<model-in>", "<feature-rspecifier>", "<posteriors-rspecifier>", "<ivector-wspecifier>"),
    Option("compute-objf-change", True, "Log what iVectors gain"),
    Option("spk2utt", "", "Rspecifier of the utterances of speakers"),
    Option("acoustic-weight", 1.0, "Factor of the posteriors"),
    Option("max-count", 0.0, "Count of frames, scaled, that is scaled down to this; 0: none is"),
    *_THREADS,
)
def ivector_extract(
    options: SimpleNamespace, model: str, source: str, posteriors: str, output: str
) -> None:
    extraction = _Extraction(options, IvectorExtractor.read(open_reader(model)), posteriors)
    with TableWriter(output, "vector") as writer:
        for key, counts, sums in extraction.sums(source):
            writer.write(key, extraction.ivector(key, counts, sums))
        done = writer.count
    extraction.tell(done)


class _Extraction:
    """iVectors of utterances or speakers, and what is logged of them at the end."""

    def __init__(self, options: SimpleNamespace, extractor: IvectorExtractor, posteriors: str):
        self._options = options
        self._extractor = extractor
        self._utterances = _Utterances(options, posteriors)
        self._frames = self._gain = self._norm = 0.0

    def sums(self, source: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Counts of frames and sums of features, by Gaussian, of each utterance or speaker."""
        if not self._options.spk2utt:
            for key, features in shown(read_table(source, "matrix"), "estimate", "utterances"):
                total = self._empty()
                if self._add(source, key, features, total):
                    yield key, *total
            return
        options = self._options
        warning = "No features for utterance"
        speakers = BySpeaker(options, options.spk2utt, source, "matrix", warning)
        for speaker, utterances in speakers:
            total = self._empty()
            added = [self._add(source, *each, total) for each in utterances]
            if any(added) and total[0].sum():
                yield speaker, *total
            else:
                self._options.program.warn(f"No stats accumulated for speaker {speaker}")
        self._utterances.failed += speakers.missing

    def _empty(self) -> tuple[np.ndarray, np.ndarray]:
        count, dim, _ = self._extractor.projections.shape
        return np.zeros(count), np.zeros((count, dim))

    def _add(
        self,
        source: str,
        key: str,
        features: np.ndarray,
        total: tuple[np.ndarray, np.ndarray],
    ) -> bool:
        posterior = self._utterances.posterior(key, features)
        if posterior is None:
            return False
        counts, sums = total
        with errors_tell(f"{source}: {key}"):
            for gaussian, rows, weights in pairs_of(self._extractor, features, posterior):
                counts[gaussian] += weights.sum()
                sums[gaussian] += weights @ rows
        return True

    def ivector(self, key: str, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """The iVector of one, less the offset of the prior: float32, [dim]."""
        options, extractor = self._options, self._extractor
        scale = options.acoustic_weight
        frames = scale * float(counts.sum())
        if 0 < options.max_count < frames:
            shrunk = options.max_count / frames
            options.program.log(
                f"Scaling stats for {key} by scale {shrunk:g} due to --max-count="
                f"{options.max_count:g}"
            )
            scale, frames = scale * shrunk, options.max_count
        counts, sums = scale * counts[None], scale * sums[None]
        terms = extractor.terms(counts, sums)
        ivector = extractor.distribution(counts, terms)[0]
        if options.compute_objf_change:
            default = np.zeros_like(ivector)
            default[:, 0] = extractor.prior_offset
            both = [extractor.objective(counts, sums, terms, each) for each in (default, ivector)]
            gain = float((both[1] - both[0])[0])
            self._gain += gain
            options.program.vlog(
                2, f"Auxf change for {key} was {ratio(gain, frames):g} per frame over {frames:g}"
            )
        ivector[:, 0] -= extractor.prior_offset
        norm = float(np.linalg.norm(ivector))
        options.program.vlog(2, f"Ivector norm for {key} was {norm:g}")
        self._norm += frames * norm
        self._frames += frames
        return ivector[0].astype(np.float32)

    def tell(self, done: int) -> None:
        """Log what was done; no output at all is a failure."""
        log, frames = self._options.program.log, self._frames
        log(
            f"Done {done} iVectors of {self._utterances.done} utterances,"
            f" {self._utterances.failed} with errors.  Total (weighted) frames {frames:g}"
        )
        if self._options.compute_objf_change:
            log(
                "Overall average objective-function change from estimating ivector was"
                f" {ratio(self._gain, frames):g} per frame over {frames:g} (weighted) frames."
            )
        log(f"Average iVector norm (weighted by frames) was {ratio(self._norm, frames):g}")
        fail_unless(done)
