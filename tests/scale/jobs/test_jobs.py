"""Jobs: run to their end on every kind of runner, run again where they failed, and never twice."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import opscope
from job_scripts import counted, first_time, install, once_there, runs, with_path
from opscope.framework.base.errors import RunError
from opscope.scale.jobs.command import make_runner, parse_resources
from opscope.scale.jobs.job import Job
from opscope.scale.jobs.pool import JobPool

pytestmark = pytest.mark.skipif(os.name != "posix", reason="jobs are shell scripts")
KUBERNETES = "kubernetes --image opscope:1 --volume data:/data --mem 2G"
SLOW = "sleep 60"


@pytest.fixture(params=["run.pl", "queue.pl -q all.q", KUBERNETES, "dask --max-jobs-run 2"])
def runner(request, tmp_path, monkeypatch):
    """A runner of each kind; SGE and Kubernetes are fake commands."""
    if request.param.startswith("dask"):
        pytest.importorskip("distributed", reason="Dask is not installed")
        monkeypatch.setenv("PYTHONPATH", str(Path(opscope.__file__).resolve().parent.parent))
    install(tmp_path)
    monkeypatch.setenv("PATH", with_path(tmp_path))
    made = make_runner(request.param)
    made.patience = 0.3
    yield made
    if hasattr(made, "close"):
        made.close()


def pool(tmp_path, runner, lines=None, **settings):
    return JobPool(str(tmp_path / "jobs"), runner, (lines or []).append, **settings)


def test_jobs_run_once(tmp_path, runner, monkeypatch):
    monkeypatch.setenv("OPSCOPE_NOTED", "a b'c")
    jobs = [counted(tmp_path, f"j{n}", f'echo "$OPSCOPE_NOTED {n}"; pwd') for n in range(3)]
    pool(tmp_path, runner).run(jobs)
    assert runs(tmp_path) == ["j0", "j1", "j2"]
    log = (tmp_path / "j1.log").read_text().splitlines()
    assert log[0].startswith("# Running on ") and log[-1].endswith("with status 0")
    assert log[2:4] == ["a b'c 1", os.getcwd()]
    pool(tmp_path, runner).run(jobs)
    assert runs(tmp_path) == ["j0", "j1", "j2"]


def test_failed_and_lost_jobs_run_again(tmp_path, runner):
    lines: list[str] = []
    jobs = [
        counted(tmp_path, "good"),
        counted(tmp_path, "failed", first_time(tmp_path / "a", "exit 3")),
        counted(tmp_path, "lost", first_time(tmp_path / "b", "kill -9 $PPID; sleep 5")),
    ]
    for name in "ab":
        (tmp_path / name).mkdir()
    JobPool(str(tmp_path / "jobs"), runner, lines.append).run(jobs)
    assert runs(tmp_path) == ["failed", "failed", "good", "lost", "lost"]
    assert len(lines) == 2
    assert any("failed with status 3; it is run again" in line for line in lines)
    assert any("was lost; it is run again" in line for line in lines)


def test_a_job_that_never_comes_back(tmp_path, runner, monkeypatch):
    # The clock stands still until the job has begun, which on a busy machine takes long.
    looks = itertools.count(1)

    def monotonic():
        return 100.0 * next(looks) if runs(tmp_path) else 0.0

    clock = SimpleNamespace(sleep=time.sleep, monotonic=monotonic)
    monkeypatch.setattr("opscope.scale.jobs.pool.time", clock)
    jobs = [counted(tmp_path, "slow", f"{SLOW}; touch {tmp_path}/late")]
    with pytest.raises(RunError, match=r"slow: job .* did not come back within 1 minutes"):
        pool(tmp_path, runner, minutes=1.0).run(jobs)
    assert runs(tmp_path) == ["slow"]
    identifier = json.loads((tmp_path / "jobs" / "slow.json").read_text())["id"]
    end = time.monotonic() + 120
    while runner.poll([identifier]):  # it was canceled
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_job_that_always_fails(tmp_path, runner):
    job = counted(tmp_path, "bad", "echo No space left on device", "exit 1")
    with pytest.raises(RunError, match="attempt 2 of 2") as raised:
        pool(tmp_path, runner, tries=2).run([job])
    assert str(raised.value).endswith("bad.log ends with:\nNo space left on device")
    assert runs(tmp_path) == ["bad", "bad"]


def test_a_disk_that_is_full(tmp_path):
    job = Job("full", ("/bin/sh", "-c", "cat /dev/zero > /dev/full"), str(tmp_path / "log"))
    with pytest.raises(RunError, match="(?s)failed with status .*No space left on device"):
        pool(tmp_path, make_runner("local"), tries=1).run([job])


def test_an_optional_job_may_fail(tmp_path):
    lines: list[str] = []
    job = Job("bad", ("/bin/false",), str(tmp_path / "log"), optional=True)
    JobPool(str(tmp_path / "jobs"), make_runner("local"), lines.append, tries=1).run([job])
    assert "the run continues without it" in lines[0]


def test_no_more_jobs_at_a_time_than_said(tmp_path):
    count = f"ls {tmp_path}/now | wc -l >> {tmp_path}/most"
    (tmp_path / "now").mkdir()
    jobs = [
        counted(
            *(tmp_path, f"j{n}", f"touch {tmp_path}/now/{n}", count, "sleep 0.1"),
            *(count, f"rm {tmp_path}/now/{n}"),
        )
        for n in range(5)
    ]
    pool(tmp_path, make_runner("run.pl --max-jobs-run 2")).run(jobs)
    assert max(map(int, (tmp_path / "most").read_text().split())) <= 2
    assert len(runs(tmp_path)) == 5


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from job_scripts import counted, once_there
from opscope.scale.jobs.command import make_runner
from opscope.scale.jobs.pool import JobPool
folder = Path({folder!r})
jobs = [counted(folder, "done"), counted(folder, "open", once_there(folder / "go"))]
JobPool(str(folder / "jobs"), make_runner({command!r}), print).run(jobs)
"""


@pytest.mark.parametrize("command", ["local", "sge", KUBERNETES])
def test_jobs_outlive_a_run_that_is_killed(tmp_path, command, monkeypatch):
    """The next run waits for them, and starts none again."""
    install(tmp_path)
    monkeypatch.setenv("PATH", with_path(tmp_path))
    values = {"tests": str(Path(__file__).parents[2]), "folder": str(tmp_path)}
    root = str(Path(opscope.__file__).resolve().parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", KILLED.format(command=command, **values)],
        env=os.environ | {"PYTHONPATH": root},
    )
    record = tmp_path / "jobs" / "open.json"
    end = time.monotonic() + 120
    while '"id": ""' in (record.read_text() if record.exists() else '"id": ""'):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    while runs(tmp_path) != ["done", "open"]:
        time.sleep(0.01)
    process.kill()
    process.wait()
    lines: list[str] = []

    def log(line):
        lines.append(line)
        (tmp_path / "go").touch()

    jobs = [counted(tmp_path, "done"), counted(tmp_path, "open", once_there(tmp_path / "go"))]
    JobPool(str(tmp_path / "jobs"), make_runner(command), log).run(jobs)
    assert runs(tmp_path) == ["done", "open"]
    assert any("of the run before" in line for line in lines)


def test_a_scheduler_that_is_down_for_a_while(tmp_path, monkeypatch):
    state = install(tmp_path)
    monkeypatch.setenv("PATH", with_path(tmp_path))
    (state / "down").touch()
    lines: list[str] = []
    job = counted(tmp_path, "j", once_there(state / "asked"), f"rm {state}/down")
    JobPool(str(tmp_path / "jobs"), make_runner("sge"), lines.append).run([job])
    assert runs(tmp_path) == ["j"] and "Grid Engine does not answer: qstat failed" in lines[0]


def test_a_job_in_an_error_state_is_over(tmp_path, monkeypatch):
    state = install(tmp_path)
    monkeypatch.setenv("PATH", with_path(tmp_path))
    runner = make_runner("sge")
    runner.patience = 0.0
    # By the job itself: a state that is there before may end it before it has noted that it ran.
    job = counted(tmp_path, "j", first_time(tmp_path, f"touch {state}/error.100; {SLOW}"))
    pool(tmp_path, runner).run([job])
    assert runs(tmp_path) == ["j", "j"] and "qdel 100" in (state / "calls").read_text()


def test_a_scheduler_that_refuses(tmp_path, monkeypatch):
    state = install(tmp_path)
    monkeypatch.setenv("PATH", with_path(tmp_path))
    (state / "refuse").touch()
    with pytest.raises(RunError, match="qsub failed with status 1: Unable to run job: denied"):
        pool(tmp_path, make_runner("sge")).run([counted(tmp_path, "j")])


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("slurm.pl", "no command 'sbatch'; install Slurm's commands: the package slurm-client"),
        ("queue.pl", "no command 'qsub'; install Grid Engine's commands"),
        (KUBERNETES, "no command 'kubectl'; install Kubernetes' command"),
    ],
)
def test_schedulers_that_are_not_installed(tmp_path, monkeypatch, command, part):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=part):
        pool(tmp_path, make_runner(command)).run([counted(tmp_path, "j")])


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("slrm.pl", r"no job runner 'slrm.pl'.*slurm.pl"),
        ("", "no job runner ''"),
        ("slurm.pl --mem", "--mem has no value"),
        ("slurm.pl --gpu many", "--gpu many: want a number"),
        ("run.pl -q all.q", "-q all.q: a local run has no such option"),
        ("kubernetes --image x", "wants an image and a volume"),
        ("kubernetes --volume x", "--volume x: want --cmd"),
        ("run.pl 'x", "No closing quotation"),
    ],
)
def test_mistakes_in_cmd(command, part):
    with pytest.raises(RunError, match=part):
        make_runner(command)


def test_resources():
    found = parse_resources(["--mem", "4G", "-p", "shared", "--gpu=1", "--num-threads", "2"])
    assert (found.memory, found.gpus, found.threads, found.rest) == ("4G", 1, 2, ("-p", "shared"))


def test_the_job_that_kubernetes_gets(tmp_path):
    from opscope.scale.jobs.job import Script

    runner = make_runner(f"{KUBERNETES} --gpu 1 --num-threads 3")
    made = runner._manifest("a-b", Script("b.1", "/data/b.sh", "/data/b.out", "a"))
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["/bin/sh", "/data/b.sh"]
    assert container["resources"] == {
        "requests": {"cpu": "3", "memory": "2Gi"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert container["volumeMounts"] == [{"name": "volume-0", "mountPath": "/data"}]
    assert made["spec"]["backoffLimit"] == 0


def test_the_job_of_the_documentation():
    """docs/scale_out_kaldi.md shows what its command gives to Kubernetes."""
    from opscope.scale.jobs.job import Script

    page = (Path(opscope.__file__).parent / "docs" / "scale_out_kaldi.md").read_text()
    command = re.search(r'--cmd "(kubernetes .*)"', page)[1]
    shown = json.loads(re.search(r"```json\n(.*?)```", page, re.S)[1])
    folder, run = "/data/exp/jobs", "0123456789"
    script = Script("train.0.1.1", f"{folder}/train.0.1.1.sh", f"{folder}/train.0.1.1.out", run)
    assert make_runner(command)._manifest("0123456789-train-0-1-1", script) == shown
