"""Files that runs leave for later runs, and that others have changed: one error, file and field."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from opscope.framework.base.errors import FormatError, SaveError
from opscope.scale.jobs.job import Job, Resources, Script
from opscope.scale.jobs.local import LocalRunner
from opscope.scale.jobs.pool import JobPool
from opscope.scale.recipe.egs_folder import given_examples
from opscope.scale.recipe.experiment import keep_settings
from opscope.scale.recipe.nnet3_options import RecipeOptions
from opscope.scale.recipe.parallel import ParallelRecipe
from opscope.scale.recipe.parallel_options import ParallelOptions
from opscope.scale.recipe.train_job import ProbJob, TrainJob, read_job, write_job
from opscope.scale.score.folder import Description, Finished, ScoreFolder, digests

NESTED = '{"a":' * 100_000


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# Jobs


class Scheduler:
    """Counts what it is asked about."""

    name, most, threads, patience = "counting", 0, 0, 0.0

    def __init__(self) -> None:
        self.asked: list[str] = []

    def submit(self, script: Script) -> str:
        raise AssertionError

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        self.asked += identifiers
        return set(identifiers)

    def cancel(self, identifier: str) -> None:
        raise AssertionError


def record_of(**changes: Any) -> str:
    return json.dumps({"attempt": 1, "id": "12.server", "on": "counting"} | changes)


def looked_up(text: str) -> tuple[bool, list[str]]:
    scheduler = Scheduler()
    pool, job = JobPool("jobs", scheduler, lambda _: None), Job("j", ("true",), "j.log")
    Path("jobs/j.json").write_text(text)
    found = pool._adopted(job)
    return found is not None and not pool.is_done(job), scheduler.asked


def test_a_record_of_a_job() -> None:
    assert looked_up(record_of()) == (True, ["12.server"])
    assert looked_up(record_of(on="another")) == (False, [])
    assert looked_up("{}") == (False, [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NESTED, "nest"),
        ("[1]", "'[1]', where an object is wanted"),
        (record_of(attempt="1"), "'attempt': '1', where int is wanted"),
        (record_of(attempt=None), "'attempt': 'None', where int is wanted"),
        (record_of(attempt=-1), "'attempt': -1 is not from 0 to"),
        (record_of(attempt=10**12), "is not from 0 to"),
        (record_of(attempt=10**30), "more than 64 bits"),
        (record_of(id=7), "'id': '7', where str is wanted"),
        (record_of(id="--help"), "'id': '--help' is no name of a job"),
        (record_of(id="1;rm"), "is no name of a job"),
        (record_of(id="1\n2"), "is no name of a job"),
        (record_of(id="\0"), "is no name of a job"),
        (record_of(id="1,2"), "is no name of a job"),
        (record_of(id="\u0661"), "is no name of a job"),
        (record_of(on=[]), "'on': '[]', where str is wanted"),
        (record_of(color=1), "'color' is not known here"),
    ],
)
def test_records_of_jobs_that_are_none(text: str, told: str) -> None:
    with pytest.raises(SaveError) as error:
        looked_up(text)
    assert str(error.value).startswith(f"{Path.cwd()}/jobs/j.json: damaged: ")
    assert told in str(error.value)


@pytest.mark.parametrize("status", ["", "x", "9" * 5000, "1_0", "\u00b2", "\0"])
def test_a_status_that_is_none_is_not_there(status: str) -> None:
    pool = JobPool("jobs", Scheduler(), lambda _: None)
    Path("jobs/j.json").write_text(record_of())
    Path("jobs/j.1.status").write_text(status)
    assert not pool.is_done(Job("j", ("true",), "j.log"))
    Path("jobs/j.1.status").write_text("0\n")
    assert pool.is_done(Job("j", ("true",), "j.log"))


@pytest.mark.parametrize("name", ["", "x@1", "12", "1@", "{own}@1", "9999999999999@1"])
def test_a_process_that_is_no_job_is_left_alone(name: str) -> None:
    runner = LocalRunner(Resources())
    name = name.format(own=os.getpid())
    assert runner.poll([name]) == set()
    runner.cancel(name)


# Recipes


def job(**changes: Any) -> str:
    write_job("job", TrainJob("m", "o", "r", "a", -1, 0, 0.1, 1.0, "", "64", 9, 3, {}))
    return json.dumps(json.loads(Path("job").read_text()) | changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"do": "dance"}, "'do' is 'dance', not one of train, prob, combine"),
        ({"do": []}, "'do': '[]', where str is wanted"),
        ({"model": 1}, "'model': '1', where str is wanted"),
        ({"frame": "x"}, "'frame': 'x', where int is wanted"),
        ({"learning_rate": None}, "'learning_rate': 'None', where float is wanted"),
        ({"chain": 1}, "'chain': '1', where an object or null is wanted"),
        ({"chain": {"den_fst": "a"}}, "'chain': 'l2_regularize' is missing"),
        ({"trainer": {"speed": 1}}, "'trainer': 'speed' is not known here"),
        ({"trainer": {"momentum": "x"}}, "'trainer': 'momentum': 'x', where float is wanted"),
        ({"trainer": {"momentum": 7}}, "'trainer': momentum=7: want at least 0 and at most 1"),
        ({"passes": {"min_deriv_time": {}}}, "'passes': 'min_deriv_time': '{}', where int"),
        ({"more": 1}, "'more' is not known here"),
    ],
)
def test_descriptions_of_jobs_that_are_none(changes: dict[str, Any], told: str) -> None:
    Path("bad").write_text(job(**changes))
    with pytest.raises(FormatError) as error:
        read_job("bad")
    assert str(error.value).startswith("bad: ") and told in str(error.value)


def test_descriptions_of_jobs() -> None:
    for text in (NESTED, "[]", "7", ""):
        Path("bad").write_text(text)
        with pytest.raises(FormatError, match="^bad: "):
            read_job("bad")
    with pytest.raises(FormatError, match="none: No such file"):
        read_job("none")
    write_job("job", ProbJob("m", "r", {"train": ["a"], "valid": []}))
    assert read_job("job") == ProbJob("m", "r", {"train": ["a"], "valid": []})
    Path("job").write_text(Path("job").read_text().replace('"a"', "{}"))
    with pytest.raises(FormatError, match=r"^job: 'parts': 'train': \[0\]: '\{\}', where str"):
        read_job("job")


@pytest.fixture
def recipe() -> ParallelRecipe:
    Path("exp").mkdir()
    for number in range(3):
        Path(f"exp/{number}.raw").touch()
    options = RecipeOptions(feats="ark:f", targets="ark:t", network="n", dir="exp")
    return ParallelRecipe(options, ParallelOptions(), log=lambda _: None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NESTED, "nest"),
        ("{}", "'{}', where a list is wanted"),
        ("[[]]", "[0]: '[]', where an object is wanted"),
        ('[{"loss": 1}, {"loss": "x"}]', "[1]: 'loss': 'x', where float is wanted"),
        ('[{"loss": {}}]', "[0]: 'loss': '{}', where float is wanted"),
    ],
)
def test_iterations_that_are_none(recipe: ParallelRecipe, text: str, told: str) -> None:
    path = Path("exp/iterations.json").absolute()
    path.write_text(text)
    with pytest.raises(FormatError) as error:
        recipe._resume()
    assert str(error.value).startswith(f"{path}: ") and told in str(error.value)


def test_iterations(recipe: ParallelRecipe) -> None:
    assert recipe._resume() == 2 and recipe._rows == []
    Path("exp/iterations.json").write_text('[{"n": 1}, {"n": 2, "loss": Infinity}, {"n": 3}]')
    assert recipe._resume() == 2
    assert recipe._rows == [{"n": 1}, {"n": 2, "loss": float("inf")}]


def test_results_of_jobs(recipe: ParallelRecipe) -> None:
    Path("r").write_text('{"objective": -0.5}')
    assert recipe._objective("r") == -0.5
    for text in ("{}", '{"objective": "x"}', '{"objective": null}', NESTED, "[]", '{"train": {}}'):
        Path("r").write_text(text)
        with pytest.raises(FormatError, match="^r: "):
            recipe._objective("r")
    Path("r").write_text('{"train": {"loss": 1, "accuracy": 0.5}, "valid": {"loss": NaN}}')
    assert recipe._judgment("r").keys() == {"accuracy", "eval_loss"}
    assert recipe._judgment("none") == {}
    for text in ('{"other": {}}', '{"train": 1}', '{"valid": {"loss": []}}', NESTED, "[]"):
        Path("r").write_text(text)
        with pytest.raises(FormatError, match="^r: "):
            recipe._judgment("r")


def test_settings_that_are_none() -> None:
    for text in (NESTED, "[]", '"x"', ""):
        Path("settings.json").write_text(text)
        with pytest.raises(SaveError, match="settings.json: .*no settings of a training"):
            keep_settings(".", {"epochs": 1})


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "9" * 5000, "1e3", "\u00b2", "3000000000"])
def test_numbers_of_archives_that_are_none(text: str) -> None:
    Path("egs/info").mkdir(parents=True)
    Path("egs/info/num_archives").write_text(text)
    with pytest.raises(FormatError, match="egs/info/num_archives: .* is no whole number from 1"):
        given_examples("egs", chain=False)


def test_a_folder_that_wants_many_archives() -> None:
    """Two thousand million names were made before the first of them was looked for."""
    Path("egs/info").mkdir(parents=True)
    for name in ("num_archives", "frames_per_eg"):
        Path(f"egs/info/{name}").write_text("2000000000\n")
    with pytest.raises(FormatError, match="egs.1.ark: No such file or directory, though"):
        given_examples("egs", chain=False)


# Scoring


@pytest.fixture
def folder() -> ScoreFolder:
    found = ScoreFolder("out")
    found.make()
    return found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NESTED, "nest"),
        ("[]", "where an object is wanted"),
        ("{}", "'settings' is missing"),
        ('{"settings": 1}', "'settings': '1', where an object is wanted"),
        ('{"settings": {}, "shards": {}}', "'shards': '{}', where a list is wanted"),
        ('{"settings": {}, "shards": [1]}', "'shards': [0]: '1', where an object is wanted"),
        ('{"settings": {}, "shards": [], "output": "x"}', "'output': 'x', where an object or null"),
        ('{"settings": {}, "shards": [], "output": {"name": 1}}', "'output': 'name': '1', where"),
    ],
)
def test_manifests_that_are_none(folder: ScoreFolder, text: str, told: str) -> None:
    Path("out/manifest.json").write_text(text)
    with pytest.raises(SaveError) as error:
        folder.check_settings({})
    assert str(error.value).startswith("out/manifest.json: ") and told in str(error.value)
    assert "this is no manifest of a scoring" in str(error.value)


DESCRIPTION = Description("m", 2, {}, False, True, [[("k", "f.ark:2", None, "f.scp:1")]])


def test_descriptions_of_shards(folder: ScoreFolder) -> None:
    with pytest.raises(SaveError, match="parts/1.json: there is no such shard"):
        folder.description(1)
    folder.describe(1, DESCRIPTION)
    text, found = folder.description(1)
    assert found == DESCRIPTION and text == Path("out/parts/1.json").read_text()
    for change, told in (
        ({"groups": [["k"]]}, r"'groups': \[0\]: \[0\]: 'k', where a list is wanted"),
        ({"groups": [[["k", "f"]]]}, r"\[0\]: 2 values, where 4 are wanted"),
        ({"binary": 1}, "'binary': '1', where bool is wanted"),
        ({"shards": None}, "'shards': 'None', where int is wanted"),
    ):
        Path("out/parts/1.json").write_text(json.dumps(json.loads(text) | change))
        with pytest.raises(FormatError, match=f"^out/parts/1.json: .*{told}"):
            folder.description(1)
    Path("out/parts/1.json").write_text(NESTED)
    folder.describe(1, DESCRIPTION)  # what was damaged is written again
    assert folder.description(1)[1] == DESCRIPTION


@pytest.mark.parametrize(
    "change",
    [
        {"entries": [["k", 3, 9]]},
        {"entries": [["k", -1, 2]]},
        {"entries": [["k", 0, 10**25]]},
        {"entries": [["k", 0]]},
        {"entries": [["two words", 0, 1]]},
        {"entries": [["k\nl", 0, 1]]},
        {"entries": {"k": 1}},
        {"skipped": [["k"]]},
        {"bytes": 3},
        {"sha256": None},
        {"cpu_seconds": "x"},
        {"description": 7},
        {"more": 1},
    ],
)
def test_records_of_shards_that_are_none(folder: ScoreFolder, change: dict[str, Any]) -> None:
    """Such a shard is not finished: it is computed again."""
    folder.describe(1, DESCRIPTION)
    Path(folder.archive(1)).write_bytes(b"k scores")
    (digest,) = digests(folder.archive(1))
    known = {"sha256": digest, "bytes": 8, "entries": [["k", 2, 6]], "skipped": []}
    folder.finish(1, folder.description(1)[0], known | {"cpu_seconds": 1})
    found = folder.finished(1)
    assert isinstance(found, Finished) and found.entries == [("k", 2, 6)]
    path = Path(folder.part(1, "done"))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert folder.finished(1) is None


def test_small_texts_of_shards(folder: ScoreFolder) -> None:
    for data, number in ((b"12", 12), (b"9" * 5000, 0), (b"\xff", 0), (b"-1", 0), (b"", 0)):
        Path(folder.part(1, "progress")).write_bytes(data)
        assert folder.progress(1) == number
    assert folder.failure(1) == ""
    Path(folder.part(1, "failed")).write_bytes(b"u\xff is no utterance")
    assert folder.failure(1) == "u\udcff is no utterance"
    os.unlink(folder.part(1, "failed"))
    os.mkfifo(folder.part(1, "failed"))
    assert folder.failure(1) == ""
