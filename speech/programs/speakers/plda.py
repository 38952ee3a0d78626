"""Kaldi's programs for LDA and PLDA of vectors of speakers.

Source: Kaldi's `ivectorbin/` of these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import click
import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.files.matrix_io import is_number
from ....kaldi.tables.streams import open_output, open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ....nnet3.programs.base.options import BINARY, errors_tell
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless, save, write_model
from ....nnet3.programs.base.speakers import BySpeaker
from ...speakers.lda import principal_axes, speaker_lda
from ...speakers.plda import AdaptOptions, Plda, PldaOptions, estimate_plda
from ...speakers.trials import equal_error_rate

_TRIALS = 1 << 16  # that are scored at once
_WHOLE = 0.001  # of the variance, that may be missing where no PCA is wanted


@program(
    "ivector-compute-lda",
    "Make an LDA matrix of vectors of speakers, with offsets that move the mean to 0.",
    ("<ivector-rspecifier>", "<utt2spk-rspecifier>", "<lda-matrix-out>"),
    BINARY,
    Option("dim", 100, "Elements of vectors after LDA"),
    Option(
        "total-covariance-factor",
        0.0,
        "0: the covariance within speakers becomes 1; 1: the one of all vectors; or between",
    ),
    Option("covariance-floor", 1e-6, "Least eigenvalue of it, in terms of the greatest"),
)
def ivector_compute_lda(options: SimpleNamespace, source: str, utt2spk: str, output: str) -> None:
    log, warn = options.program.log, options.program.warn
    speaker_of = RandomAccessTable(utt2spk, "token")
    numbers: dict[str, int] = {}
    vectors: dict[str, np.ndarray] = {}
    speakers: list[int] = []
    failed = 0
    for key, vector in read_table(source, "vector"):
        speaker = speaker_of.get(key)
        if key in vectors or speaker is None:
            what = "comes twice" if key in vectors else "has no speaker"
            warn(f"{key} {what}, it is passed over")
            failed += 1
            continue
        vectors[key] = vector
        speakers.append(numbers.setdefault(speaker, len(numbers)))
    log(f"Read {len(vectors)} utterances, {failed} with errors.")
    if not vectors:
        raise FormatError(f"{source}: there are no vectors")
    with errors_tell(source):
        matrix, values = speaker_lda(
            _rows(vectors.values()),
            np.array(speakers),
            options.dim,
            options.total_covariance_factor,
            options.covariance_floor,
        )
    log(f"Variances between speakers after projecting are {' '.join(f'{v:g}' for v in values)}")
    writer = Writer(options.binary)
    writer.write_matrix(matrix)
    save(writer, output)
    log(f"Wrote LDA transform to {output}")


def _rows(vectors: Iterable[np.ndarray]) -> np.ndarray:
    rows = list(vectors)
    if len({len(row) for row in rows}) > 1:
        raise FormatError("vectors have different numbers of elements")
    return np.stack(rows)


@program(
    "ivector-compute-plda",
    "Estimate PLDA of vectors of speakers.",
    ("<spk2utt-rspecifier>", "<ivector-rspecifier>", "<plda-out>"),
    BINARY,
    Option("num-em-iters", 10, "Iterations of expectation and maximization"),
)
def ivector_compute_plda(options: SimpleNamespace, speakers: str, source: str, output: str) -> None:
    program = options.program
    warning = "No iVector present in input for utterance"
    known = BySpeaker(options, speakers, source, "vector", warning)
    groups = []
    failed = 0
    for speaker, utterances in known:
        vectors = [vector for _, vector in utterances]
        if not vectors:
            program.warn(f"No vector of speaker {speaker}")
            failed += 1
            continue
        with errors_tell(f"{source}: {speaker}"):
            groups.append(_rows(vectors))
    program.log(
        f"Accumulated stats from {len(groups)} speakers ({failed} with no utterances), consisting"
        f" of {sum(map(len, groups))} utterances ({known.missing} absent from input)."
    )
    with errors_tell(source):
        plda = estimate_plda(groups, options.num_em_iters, program.log)
    write_model(plda, output, options.binary)


@program(
    "ivector-copy-plda",
    "Copy PLDA, with more covariance within speakers if asked for.",
    ("<plda-in>", "<plda-out>"),
    BINARY,
    Option("smoothing", 0.0, "Factor of the covariance between speakers that is added within"),
    *options_of(PldaOptions),
)
def ivector_copy_plda(options: SimpleNamespace, source: str, output: str) -> None:
    plda = Plda.read(open_reader(source))
    if options.smoothing:
        plda = plda.smoothed(options.smoothing)
    write_model(plda, output, options.binary)


@program(
    "ivector-adapt-plda",
    "Adapt PLDA to vectors of other conditions, whose speakers are not known.",
    ("<plda-in>", "<ivectors-rspecifier>", "<plda-out>"),
    BINARY,
    *options_of(AdaptOptions),
)
def ivector_adapt_plda(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    plda = Plda.read(open_reader(model))
    vectors = [vector for _, vector in read_table(source, "vector")]
    with errors_tell(source):
        rows = _rows(vectors) if vectors else np.empty((0, plda.dim))
        plda = plda.adapted(rows, from_values(AdaptOptions, vars(options)))
    write_model(plda, output, options.binary)
    options.program.log(f"Adapted PLDA to {len(vectors)} vectors.")


@program(
    "ivector-plda-scoring",
    "Log-likelihood ratios of trials: lines of a speaker, who has vectors' mean, and an utterance.",
    (
        *("<plda>", "<train-ivector-rspecifier>", "<test-ivector-rspecifier>"),
        *("<trials-rxfilename>", "<scores-wxfilename>"),
    ),
    Option("num-utts", "", "Rspecifier of the number of utterances of each speaker; else 1"),
    *options_of(PldaOptions),
)
def ivector_plda_scoring(
    options: SimpleNamespace, model: str, train: str, test: str, trials: str, output: str
) -> None:
    log = options.program.log
    plda = Plda.read(open_reader(model))
    numbers = RandomAccessTable(options.num_utts, "int") if options.num_utts else None
    settings = from_values(PldaOptions, vars(options))
    enrolled = _Vectors(options, plda, settings, train, numbers)
    tested = _Vectors(options, plda, settings, test, None)
    total = squares = 0.0
    done = failed = 0
    with open_output(output) as file:
        for pairs in _trials(trials):
            known = [pair for pair in pairs if enrolled.knows(pair[0]) and tested.knows(pair[1])]
            failed += len(pairs) - len(known)
            if not known:
                continue
            rows = np.array([(enrolled.places[a], tested.places[b]) for a, b in known])
            scores = plda.ratios(
                enrolled.rows[rows[:, 0]],
                enrolled.counts[rows[:, 0], None],
                tested.rows[rows[:, 1]],
            ).astype(np.float32)
            lines = zip(known, scores.tolist(), strict=True)
            text = "".join(f"{a} {b} {score:.7g}\n" for (a, b), score in lines)
            file.write(text.encode("utf-8", "surrogateescape"))
            done += len(known)
            total += float(scores.sum(dtype=np.float64))
            squares += float((scores.astype(np.float64) ** 2).sum())
    if done:
        mean = total / done
        deviation = np.sqrt(max(squares / done - mean * mean, 0.0))
        log(f"Mean score was {mean:g}, standard deviation was {deviation:g}")
    log(f"Processed {done} trials, {failed} had errors.")
    fail_unless(done)


class _Vectors:
    """Vectors of a table, moved to the space of PLDA, and how many each is the mean of."""

    def __init__(
        self,
        options: SimpleNamespace,
        plda: Plda,
        settings: PldaOptions,
        source: str,
        numbers: RandomAccessTable | None,
    ) -> None:
        self._program = options.program
        self._source = source
        self.places: dict[str, int] = {}
        vectors, counts = [], []
        for key, vector in read_table(source, "vector"):
            count = 1 if numbers is None else numbers.get(key)
            if count is None:
                self._program.warn(f"Number of utterances not given for speaker {key}")
                continue
            if key in self.places or count < 1:
                raise FormatError(f"{source}: {key} comes twice, or is the mean of {count} vectors")
            self.places[key] = len(vectors)
            vectors.append(vector)
            counts.append(count)
        if not vectors:
            raise FormatError(f"{source}: there are no vectors")
        self.counts = np.array(counts, np.float64)
        with errors_tell(source):
            rows, factors = plda.transformed(_rows(vectors), self.counts, settings)
        self.rows = rows.astype(np.float32)
        self._program.log(
            f"Read {len(vectors)} vectors of {source}; average renormalization scale was"
            f" {factors.mean():g}"
        )

    def knows(self, key: str) -> bool:
        """Whether there is a vector of this key; a warning says that there is none."""
        known = key in self.places
        if not known:
            self._program.warn(f"Key {key} not present in {self._source}.")
        return known


def _trials(name: str) -> Iterator[list[tuple[str, str]]]:
    """Pairs of keys of the lines of a file, some at a time.

    Raises:
        FormatError: a line has other than two words.
    """
    reader = open_reader(name)
    pairs: list[tuple[str, str]] = []
    while reader.offset < reader.size:
        start = reader.offset
        words = reader.read_line().split()
        if len(words) != 2:
            raise reader.error("two keys were expected on the line", start)
        pairs.append((words[0], words[1]))
        if len(pairs) == _TRIALS:
            yield pairs
            pairs = []
    yield pairs


@program(
    "ivector-plda-scoring-dense",
    "Log-likelihood ratios of all pairs of segments of a recording, for diarization.",
    ("<plda>", "<reco2utt>", "<ivectors-rspecifier>", "<scores-wspecifier>"),
    Option("target-energy", 0.5, "Part of the variance of a recording that PCA keeps; 1: no PCA"),
    *options_of(PldaOptions),
)
def ivector_plda_scoring_dense(
    options: SimpleNamespace, model: str, recordings: str, source: str, output: str
) -> None:
    program = options.program
    plda = Plda.read(open_reader(model))
    settings = from_values(PldaOptions, vars(options))
    table = RandomAccessTable(source, "vector")
    failed = 0
    with TableWriter(output, "matrix") as writer:
        for recording, keys in read_table(recordings, "token_vector"):
            if not keys:
                program.warn(f"Recording {recording} has no segments")
                failed += 1
                continue
            with errors_tell(f"{source}: {recording}"):
                rows, model_of = _rows([table[key] for key in keys]), plda
                if abs(1.0 - options.target_energy) > _WHOLE:
                    axes = principal_axes(rows, options.target_energy)
                    rows, model_of = rows @ axes.T, plda.projected(axes)
                moved = model_of.transformed(rows, 1, settings)[0]
            writer.write(recording, np.stack([model_of.ratios(row, 1, moved) for row in moved]))
        done = writer.count
    program.log(f"Processed {done} recordings, {failed} had errors.")
    fail_unless(done)


@program(
    "compute-eer",
    "Print the equal error rate, in percent, of lines of a score and `target` or `nontarget`.",
    ("<scores-in>",),
)
def compute_eer(options: SimpleNamespace, source: str) -> None:
    reader = open_reader(source)
    scores: dict[str, list[float]] = {"target": [], "nontarget": []}
    while reader.offset < reader.size:
        start = reader.offset
        words = reader.read_line().split()
        score = words[0].encode("utf-8", "surrogateescape") if words else b""
        if len(words) != 2 or words[1] not in scores or not is_number(score):
            raise reader.error("a score and target or nontarget were expected on the line", start)
        scores[words[1]].append(float(words[0]))
    with errors_tell(source):
        rate, threshold = equal_error_rate(scores["target"], scores["nontarget"])
    options.program.log(f"Equal error rate is {100 * rate:g}%, at threshold {threshold:g}")
    click.echo(f"{100 * rate:.4g}", nl=False)
