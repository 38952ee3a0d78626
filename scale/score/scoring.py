"""A scoring: a list cut into shards, jobs that compute them, and one output of all.

Whatever ends it, the same command continues where it stopped: a shard with an archive that matches
its record is finished, and its record is written last.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from ...framework.base.cpu.cores import usable_cores
from ...framework.base.errors import FormatError, RunError, ShapeError
from ...framework.training.folder_lock import folder_lock
from ...kaldi.tables.specifiers import ReadSpecifier, is_specifier
from ...kaldi.tables.streams import place_in_file
from ..jobs.command import make_runner
from ..jobs.job import Job, JobRunner
from ..jobs.local import LocalRunner
from ..jobs.pool import JobPool, Log
from .folder import Description, Finished, Manifest, ScoreFolder, ShardNote, Written, list_settings
from .listing import Entry, list_entries
from .options import ScoreOptions
from .output import Output
from .progress import Progress
from .scorer import check_columns
from .scorers import model_digest, open_scorer
from .shards import Group, cut_into_shards, grouped

_PROGRAM = __name__.partition(".")[0]


@dataclasses.dataclass(frozen=True)
class Patience:
    """With shards.

    Attributes:
        retries: how often a shard is run again before the scoring gives up.
        minutes: how long one may take from its submission on; 0 = for ever.
    """

    retries: int
    minutes: float


class Scoring:
    """Scores a corpus.

    Args:
        model: path of a model.
        source: `scp:feats.scp`, `ark:feats.ark`, or the name of such a file.
        output: a wspecifier, or a folder.
        shards: how many parts the list is cut into, at most.
        on: where jobs run, as `make_runner` takes it.
        options: how utterances are computed.
        work: the folder for shards, see `Output`.
        patience: with shards that fail, or do not come back.
        words: of the command line that runs a shard: the command and its options.
    """

    def __init__(
        self,
        model: str,
        source: str,
        output: str,
        shards: int,
        on: str,
        options: ScoreOptions,
        work: str,
        patience: Patience,
        words: Sequence[str],
        log: Log,
    ) -> None:
        self._model = model
        self._source = source
        self._output = Output(output, work)
        self._count = shards
        self._on = on
        self._options = options
        self._patience = patience
        self._words = tuple(words)
        self._log = log
        self._folder = ScoreFolder(self._output.work)

    def run(self) -> None:
        """Run it to its end.

        Raises:
            FormatError: the model, the list or an utterance cannot be read.
            ShapeError: an utterance does not fit the model; it and its shard are named.
            SaveError: the folder holds another scoring, or another run works there; or a file
                cannot be written.
            RunError: a shard failed as often as it may, or took too long.
        """
        shards = self._plan()
        digest = model_digest(self._model)
        self._output.check(self._inputs(shards))
        runner = make_runner(self._on, "--on")
        try:
            self._folder.make()
            with folder_lock(self._folder.path):
                self._run(shards, digest, runner)
        finally:
            if (close := getattr(runner, "close", None)) is not None:
                close()

    def _plan(self) -> list[list[Group]]:
        """The shards; the model and every utterance whose size is known are checked."""
        scorer = open_scorer(self._model, self._options)
        entries = list_entries(self._source, scorer.input_dim == 1)
        if not entries:
            raise FormatError(f"{self._source}: there is no utterance to score")
        shards = cut_into_shards(grouped(entries, scorer.rows_together), self._count)
        for number, shard in enumerate(shards, 1):
            for entry in _entries(shard):
                try:
                    check_columns(entry.line.place, entry.rows, entry.columns, scorer.input_dim)
                except ShapeError as error:
                    raise ShapeError(f"shard {number} of {len(shards)}: {error}") from None
        return shards

    def _inputs(self, shards: list[list[Group]]) -> set[str]:
        """The files that are read, but those that commands read."""
        names = {entry.line.name for shard in shards for entry in _entries(shard)}
        places = {place_in_file(name)[0] for name in names if not name.endswith("|")}
        source = self._source
        listed = ReadSpecifier.parse(source).name if is_specifier(source) else source
        return {self._model, listed, *places}

    def _run(self, shards: list[list[Group]], digest: str, runner: JobRunner) -> None:
        settings = self._settings(shards, digest)
        self._folder.check_settings(settings)
        if self._output.is_complete(self._folder.manifest()):
            self._log(f"{self._output.text} is there already, of this model and list")
            self._folder.remove_shards(len(shards))
            return
        for number, shard in enumerate(shards, 1):
            self._folder.describe(number, self._description(shard, len(shards), digest))
        records = [self._folder.finished(number) for number in range(1, len(shards) + 1)]
        self._write_manifest(settings, shards, records)
        try:
            records = self._compute(shards, records, runner)
        except BaseException:
            records = [
                self._folder.finished(number, just_now=True) for number in range(1, len(shards) + 1)
            ]
            self._write_manifest(settings, shards, records)
            raise
        done = [record for record in records if record is not None]
        written = self._output.write(self._folder, done)
        self._write_manifest(settings, shards, records, written)
        if not self._output.keeps_shards:
            self._folder.remove_shards(len(shards))
        self._report(done)

    def _settings(self, shards: list[list[Group]], digest: str) -> dict[str, Any]:
        lines = [
            f"{entry.line.key} {entry.line.name} {entry.line.range} {entry.rows} {entry.columns}"
            for shard in shards
            for entry in _entries(shard)
        ]
        form = "binary" if self._output.binary else "text"
        asked = dataclasses.asdict(self._options)
        listed = list_settings(lines)
        return {"model": digest, "list": listed, "shards": self._count, "form": form, **asked}

    def _description(self, shard: list[Group], count: int, digest: str) -> Description:
        permissive = is_specifier(self._source) and ReadSpecifier.parse(self._source).permissive
        groups = [[dataclasses.astuple(entry.line) for entry in group] for group in shard]
        asked = dataclasses.asdict(self._options)
        return Description(digest, count, asked, permissive, self._output.binary, groups)

    def _write_manifest(
        self,
        settings: dict[str, Any],
        shards: list[list[Group]],
        records: Sequence[Finished | None],
        output: Written | None = None,
    ) -> None:
        listed = []
        for number, (shard, record) in enumerate(zip(shards, records, strict=True), 1):
            entries = _entries(shard)
            rows = sum(entry.rows for entry in entries if entry.rows > 0)
            note = ShardNote(f"scores.{number}.ark", len(entries), rows)
            if record is not None:
                known = {"sha256": record.sha256, "bytes": record.bytes}
                note = dataclasses.replace(note, **known, cpu_seconds=record.cpu_seconds)
            listed.append(note)
        self._folder.write_manifest(Manifest(settings, listed, output))

    # Jobs

    def _compute(
        self,
        shards: list[list[Group]],
        records: list[Finished | None],
        runner: JobRunner,
    ) -> list[Finished | None]:
        """Run the shards that are not finished; returns the records of all."""
        sizes = [len(_entries(shard)) for shard in shards]
        jobs = {number: self._job(number) for number, record in enumerate(records, 1) if not record}
        if not jobs:
            return records
        if isinstance(runner, LocalRunner) and not runner.most:
            runner.most = max(1, usable_cores() // self._options.threads)
        tries = self._patience.retries + 1
        minutes = self._patience.minutes
        pool = JobPool(self._folder.at("jobs"), runner, self._log, tries, minutes)
        for job in jobs.values():
            if pool.is_done(job):  # and yet there is no archive that fits its record
                pool.forget(f"{job.name}.")
        finished = f", {len(shards) - len(jobs)} are finished" if len(jobs) < len(shards) else ""
        parts = f"{len(shards)} shard{'s' if len(shards) > 1 else ''}"
        self._log(f"{sum(sizes)} utterances in {parts}{finished}; on {runner.name}")
        with Progress(self._folder, sizes, jobs, self._log):
            pool.run(list(jobs.values()))
        for number in jobs:
            if failure := self._folder.failure(number):
                raise RunError(failure)
        for number, job in jobs.items():
            records[number - 1] = self._folder.finished(number, just_now=True)
            if records[number - 1] is None:
                raise RunError(f"shard {number} has ended, but has no whole archive; see {job.log}")
        return records

    def _job(self, number: int) -> Job:
        log = self._folder.at("log", f"score.{number}.log")
        words = (*self._words, f"--work={self._folder.path}", f"--worker={number}")
        operands = ("--", self._model, self._source, self._output.text)
        command = (sys.executable, "-P", "-m", _PROGRAM, *words, *operands)
        return Job(f"shard.{number}", command, log)

    def _report(self, records: Sequence[Finished]) -> None:
        skipped = [warning for record in records for warning in record.skipped]
        for key, why in skipped:
            self._log(f"{key}: {why}; it has no score")
        done = sum(len(record.entries) for record in records)
        seconds = sum(record.cpu_seconds for record in records)
        self._log(f"Done {done} utterances, failed for {len(skipped)}; {seconds:.1f} s of CPU time")
        if not done:
            raise RunError(f"{self._source}: no utterance could be scored")


def _entries(shard: list[Group]) -> list[Entry]:
    return [entry for group in shard for entry in group]
