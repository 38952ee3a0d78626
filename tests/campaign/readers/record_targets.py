"""The campaign's readers of what the package itself writes down of a run, to go on with it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import opscope
from opscope.framework.base.errors import OpscopeError, RunError, SaveError
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.egs.splitting import ExampleGenerationOptions
from opscope.python_api.train.minibatches import Minibatches
from opscope.scale.jobs.job import Job, Script
from opscope.scale.jobs.pool import JobPool
from opscope.scale.recipe.egs_folder import given_examples
from opscope.scale.recipe.nnet3_options import RecipeOptions
from opscope.scale.recipe.parallel import ParallelRecipe
from opscope.scale.recipe.parallel_options import ParallelOptions
from opscope.scale.recipe.train_job import (
    Chain,
    CombineJob,
    ProbJob,
    TrainJob,
    read_job,
    write_job,
)
from opscope.scale.score.folder import Finished, ScoreFolder
from opscope.scale.score.listing import Values, list_entries
from opscope.scale.score.options import ScoreOptions
from opscope.scale.score.output import Output
from opscope.scale.score.scorers import model_digest
from opscope.scale.score.scoring import Scoring
from opscope.scale.score.worker import run_shard
from score_runs import DIM, write_nnet3
from small_nets import data
from training_runs import run

from ..inputs import Target
from .mutate import BYTES, TEXT, line, word

_JSON = (*TEXT, *BYTES)


def _folder(path: Path, name: str) -> Path:
    """The folder beside a damaged file in which its reader looks for it."""
    return path.parent / name


# Scoring


def _scored(folder: Path) -> Path:
    """A folder with a model, features, and a scoring of two shards that is finished."""
    here = folder / "scored"
    if here.exists():
        return here
    here.mkdir()
    write_nnet3(here / "final.raw")
    rng = np.random.default_rng(1)
    with TableWriter(f"ark,scp:{here}/f.ark,{here}/f.scp", "matrix") as table:
        for number in range(4):
            table.write(f"u{number}", rng.standard_normal((9, DIM), np.float32))
    scoring = Scoring(*_asked(here), lambda _: None)
    shards, digest = scoring._plan(), model_digest(str(here / "final.raw"))
    work = ScoreFolder(str(here / "out"))
    work.make()
    records: list[Finished | None] = []
    for number, shard in enumerate(shards, 1):
        work.describe(number, scoring._description(shard, len(shards), digest))
        run_shard(work, number, str(here / "final.raw"), ScoreOptions())
        records.append(work.finished(number))
    assert all(records)
    written = scoring._output.write(work, [record for record in records if record is not None])
    scoring._write_manifest(scoring._settings(shards, digest), shards, records, written)
    return here


def _asked(here: Path) -> tuple[Any, ...]:
    source, output = f"scp:{here}/f.scp", str(here / "out")
    return str(here / "final.raw"), source, output, 2, "local", ScoreOptions(), "", 0, ()


def _seeds_of_scoring(*names: str) -> Callable[[Path], Sequence[bytes]]:
    return lambda folder: [(_scored(folder) / "out" / name).read_bytes() for name in names]


def _manifest(path: Path) -> None:
    here = _folder(path, "scored")
    shutil.copyfile(path, here / "out" / "manifest.json")
    work = ScoreFolder(str(here / "out"))
    manifest = work.manifest()
    Output(str(here / "out"), "").is_complete(manifest)
    Output(f"ark:{here}/all.ark", "").is_complete(manifest)
    work.check_settings(manifest.settings if manifest else {})
    with contextlib.suppress(SaveError):  # they are others; what differs is told
        work.check_settings({"model": "a", "list": ["b", 2], "shards": 2})


def _description(path: Path) -> None:
    here = _folder(path, "scored")
    work = ScoreFolder(str(here / "out"))
    shutil.copyfile(path, work.part(1, "json"))
    run_shard(work, 1, str(here / "final.raw"), ScoreOptions())
    if told := work.failure(1):
        raise RunError(told)


def _record(path: Path) -> None:
    """The record of the first shard; the archive of that shard is whole."""
    here = _folder(path, "scored")
    work = ScoreFolder(str(here / "out"))
    shutil.copyfile(path, work.part(1, "done"))
    found = work.finished(1)
    if found is None:
        raise OpscopeError("it is computed again")
    Output(str(here / "out"), "").write(work, [found])


def _notes(folder: Path) -> Sequence[bytes]:
    _scored(folder)
    return [b"12", b"0\n", b"137\n"]


def _progress(path: Path) -> None:
    """The small texts of a shard and of a job: how far it is, why it failed, how it ended."""
    work = ScoreFolder(str(_folder(path, "scored") / "out"))
    for what in ("progress", "failed"):
        shutil.copyfile(path, work.part(1, what))
    assert isinstance(work.failure(1), str)
    shutil.copyfile(path, work.at("j.1.status"))
    status = JobPool(work.path, _NoRunner(), lambda _: None)._status(_JOB, 1)
    if not work.progress(1) and status is None:
        raise OpscopeError("nothing is known")


def _lists(folder: Path) -> Sequence[bytes]:
    """Script files and archives, with sounds among them."""
    here = _scored(folder)
    samples = (np.arange(40, dtype="<i2") * 100).tobytes()
    form = b"fmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0"
    body = b"WAVE" + form + b"data" + len(samples).to_bytes(4, "little") + samples
    sound = b"RIFF" + len(body).to_bytes(4, "little") + body
    return [(here / "f.ark").read_bytes(), b"k " + sound, sound]


def _list(path: Path) -> None:
    """As an archive, and as values of script files."""
    refusals = []
    for number, source in enumerate((f"ark:{path}", str(path), f"{path}:2")):
        if number:
            script = path.with_suffix(".scp")
            script.write_text(f"k {source}\n")
            source = f"scp:{script}"
        try:
            values = Values(takes_samples=True)
            for entry in list_entries(source, takes_samples=True):
                values.read(entry.line)
        except OpscopeError as error:
            refusals.append(error)
    if len(refusals) == 3:
        raise refusals[0]


# Jobs


class _NoRunner:
    """A scheduler that knows every job, and starts none."""

    name, most, threads, patience = "none", 0, 0, 0.0

    def submit(self, script: Script) -> str:
        raise RunError(f"{script.name} is not run")

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        return set(identifiers)

    def cancel(self, identifier: str) -> None:
        """There is nothing to end."""


def _job_records(folder: Path) -> Sequence[bytes]:
    (folder / "pool").mkdir()
    pool = JobPool(str(folder / "pool"), _NoRunner(), lambda _: None)
    found = []
    for attempt, identifier in ((1, "123@4567"), (2, "12.server"), (3, "")):
        pool._write_record(_JOB, attempt, identifier)
        found.append((folder / "pool" / "j.json").read_bytes())
    return found


_JOB = Job("j", ("true",), "j.log")


def _job_record(path: Path) -> None:
    folder = _folder(path, "pool")
    shutil.copyfile(path, folder / "j.json")
    pool = JobPool(str(folder), _NoRunner(), lambda _: None)
    pool.is_done(_JOB)
    pool._adopted(_JOB)


def _jobs(folder: Path) -> Sequence[bytes]:
    chain = Chain("den.fst", 0.1, 0.2, 0.3, True)
    jobs = [
        TrainJob("m", "o", "r", "a.ark", -1, 1, 0.1, 1.0, "set-x", "64", 100, 3, _TRAINER, _PASSES),
        ProbJob("m", "r", {"train": ["a"], "valid": ["b", "c"]}, chain=chain),
        CombineJob(["m", "n"], "o", "r", ["a"], "1:64", 10),
    ]
    found = []
    for job in jobs:
        write_job(str(folder / "job"), job)
        assert read_job(str(folder / "job")) == job
        found.append((folder / "job").read_bytes())
    return found


_TRAINER = {"print_interval": 10, "momentum": 0.5, "max_param_change": 2.0}
_PASSES = {"min_deriv_time": -5, "max_deriv_time": 30, "optimize": True}


# Recipes


def _recipe(folder: Path) -> ParallelRecipe:
    options = RecipeOptions(feats="ark:f", targets="ark:t", network="n", dir=str(folder))
    return ParallelRecipe(options, ParallelOptions(), log=lambda _: None)


def _iterations(folder: Path) -> Sequence[bytes]:
    here = folder / "parallel"
    here.mkdir()
    for number in range(3):
        (here / f"{number}.raw").touch()
    rows = {"epoch": 0.5, "iteration": 1, "jobs": 2, "kept": 2, "learning_rate": 0.1}
    recipe = _recipe(here)
    recipe._tell(rows | {"loss": 0.5, "eval_loss": float("inf"), "seconds": 3.25})
    recipe._tell(rows | {"loss": float("nan"), "seconds": 4.5})
    return [(here / "iterations.json").read_bytes()]


def _iteration_rows(path: Path) -> None:
    recipe = _recipe(_folder(path, "parallel"))
    shutil.copyfile(path, recipe.path("iterations.json"))
    recipe._resume()
    recipe.history.rows = recipe._rows
    recipe.history.to_csv(recipe.path("history.csv"))


def _results(folder: Path) -> Sequence[bytes]:
    values = {"loss": 0.5, "accuracy": 0.25}
    told = [{"objective": -0.5}, {"objective": float("nan")}, {"train": values, "valid": values}]
    return [json.dumps(each).encode() for each in told]


def _result(path: Path) -> None:
    recipe, refusals = _recipe(path.parent), []
    for read in (recipe._objective, recipe._judgment):
        try:
            read(str(path))
        except OpscopeError as error:
            refusals.append(error)
    if len(refusals) == 2:
        raise refusals[0]


def _counts(folder: Path) -> Sequence[bytes]:
    here = folder / "egs"
    (here / "info").mkdir(parents=True)
    for name in ("egs.1.ark", "egs.2.ark", "combine.egs"):
        (here / name).touch()
    (here / "info" / "frames_per_eg").write_text("8\n")
    return [b"2\n", b"1,2\n", b"02"]


def _count(path: Path) -> None:
    here = _folder(path, "egs")
    shutil.copyfile(path, here / "info" / "num_archives")
    found = given_examples(str(here), chain=False)
    ExampleGenerationOptions.parse_frames(str(found.frames))


# Training


def _trainings(folder: Path) -> Sequence[bytes]:
    here = folder / "trained"
    here.mkdir()
    found = []
    for batches in (1, 3):
        _train(here / "run", 1, batches)
        found.append((here / "run.checkpoint").read_bytes())
        os.unlink(here / "run.checkpoint")
    return found


def _train(checkpoint: Path, epochs: int, batches: int) -> None:
    run(
        opscope.Scope(),
        epochs=epochs,
        batches=Minibatches(data(4 * batches), 4, seed=3),
        evaluate=None,
        checkpoint=str(checkpoint),
        resume=checkpoint.with_suffix(".checkpoint").exists(),
    )


def _go_on(path: Path) -> None:
    here = _folder(path, "trained")
    shutil.copyfile(path, here / "run.checkpoint")
    _train(here / "run", 2, 1)


TARGETS = (
    Target("score manifest", ".json", _seeds_of_scoring("manifest.json"), _manifest, _JSON),
    Target("score shard", ".json", _seeds_of_scoring("parts/1.json"), _description, _JSON),
    Target("score record", ".json", _seeds_of_scoring("parts/1.done"), _record, _JSON),
    Target("score progress", ".txt", _notes, _progress, _JSON),
    Target("score list", ".ark", _lists, _list, BYTES),
    Target("job record", ".json", _job_records, _job_record, _JSON),
    Target("job description", ".json", _jobs, lambda path: read_job(str(path)), _JSON),
    Target("job result", ".json", _results, _result, _JSON),
    Target("recipe iterations", ".json", _iterations, _iteration_rows, _JSON),
    Target("number of archives", ".txt", _counts, _count, _JSON),
    Target("training", ".checkpoint", _trainings, _go_on, (*BYTES, word, line)),
)  # fmt: skip
