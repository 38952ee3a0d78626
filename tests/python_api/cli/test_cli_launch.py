"""`opscope launch`: which program starts the ranks, with what; trainings under the real mpiexec."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from mpi_runs import PACKAGE, mpiexec
from opscope.framework.base.cpu import cores
from opscope.framework.base.errors import OpscopeError
from opscope.framework.parallel.launcher import find_launcher, run_ranks
from opscope.framework.parallel.mpi import patience
from opscope.python_api.cli.main import main
from opscope.testing.device_double import instead_of_cupy
from small_nets import classifier, data
from training_on_ranks import arrays, train
from training_on_ranks import classifier as digits

_LONG = 240  # seconds, after which a run hangs
REPORT = """\
#!/bin/sh
printf '%s\\n' "$@" > "$REPORT"
echo "$OPSCOPE_THREADS $OMP_NUM_THREADS $OPSCOPE_COMMUNICATOR" >> "$REPORT"
exit 7
"""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Lets launchers be programs that report how they were called; gives a function that calls."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mpiexec", "srun"):
        (programs / name).write_text(REPORT)
        (programs / name).chmod(0o755)
    (tmp_path / "work.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("REPORT", str(tmp_path / "report"))
    for name in ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CPUS_PER_TASK", "OPSCOPE_COMMUNICATOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(cores, "usable_cores", lambda: 8)

    def call(*words: str) -> tuple[int, str, list[str]]:
        report = tmp_path / "report"
        report.unlink(missing_ok=True)
        done = CliRunner().invoke(main, ["launch", *words])
        return done.exit_code, done.output, report.read_text().split() if report.exists() else []

    return call


def test_arguments_threads_and_exit_code(started, tmp_path):
    python = str(tmp_path / "python")
    code, _, seen = started("-n", "3", "work.py", "--rate", "1", "-n", "4")
    assert code == 7
    assert seen == ["-n", "3", python, "work.py", "--rate", "1", "-n", "4", "2", "2", "mpi"]
    assert started("-n", "3", "--threads", "1", "work.py")[2][-3:] == ["1", "1", "mpi"]
    code, told, seen = started("-n", "3", "--threads", "3", "work.py")
    assert code == 1 and "--threads 2 at most" in told and not seen
    code, told, seen = started("-n", "20", "work.py")
    assert "20 ranks share 8 cores" in told and seen[-3] == "1"


def test_a_command_in_place_of_a_script(started, tmp_path):
    _, _, seen = started("-n", "2", "cntk", "configFile=a.cntk", "-x")
    python = str(tmp_path / "python")
    assert seen[2:-3] == [python, "-m", "opscope", "cntk", "configFile=a.cntk", "-x"]
    code, told, seen = started("-n", "2", "trian", "net.pb")
    assert code == 1 and "neither a Python file nor a command of opscope" in told and not seen
    assert "train" in told


def test_srun_within_a_job_of_slurm(started, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    _, told, seen = started("-n", "64", "work.py")
    assert seen[:3] == ["-n", "64", "--cpus-per-task=4"] and seen[-3] == "4"
    assert "share" not in told


def test_the_launcher_beside_python_comes_first(started, tmp_path, monkeypatch):
    assert find_launcher(None, os.environ, "launch") == str(tmp_path / "bin" / "mpiexec")
    own = tmp_path / "mpiexec"
    own.write_text(REPORT)
    own.chmod(0o755)
    assert find_launcher(None, os.environ, "launch") == str(own)
    assert find_launcher("srun", os.environ, "launch") == str(tmp_path / "bin" / "srun")
    with pytest.raises(OpscopeError, match=r"no program 'prun': pip install opscope\[mpi\]"):
        find_launcher("prun", os.environ, "launch")


def test_ranks_on_gpus(started, tmp_path):
    launcher = tmp_path / "bin" / "mpiexec"
    launcher.write_text(
        REPORT.replace("$OPSCOPE_COMMUNICATOR", "$OPSCOPE_DEVICE:$OPSCOPE_SHARED_GPUS")
    )
    with instead_of_cupy():  # of two GPUs
        assert started("-n", "2", "--device", "gpu", "work.py")[2][-1] == "gpu:"
        assert started("-n", "4", "--device", "gpu", "--share-gpus", "work.py")[2][-1] == "gpu:2"
        assert started("-n", "4", "--device", "cpu", "work.py")[2][-1] == "cpu:"
        for device, why in (
            ("gpu", "3 ranks want a GPU each, and this machine has 2; --share-gpus"),
            ("gpu:1", "3 ranks want a GPU each, and --device gpu:1 is one; --share-gpus"),
            ("tpu", "'tpu' is no device"),
        ):
            code, told, seen = started("-n", "3", "--device", device, "work.py")
            assert code == 1 and why in told and not seen
    for device in ([], ["--device", "cpu"]):
        code, told, seen = started("-n", "2", "--share-gpus", *device, "work.py")
        assert code == 1 and "--share-gpus goes with --device gpu" in told and not seen


def test_what_is_missing_is_named(started, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    code, told, _ = started("-n", "2", "work.py")
    assert code == 1 and "no mpiexec, mpirun or srun" in told
    assert "pip install opscope[mpi]" in told
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, told, _ = started("-n", "2", "work.py")
    assert code == 1 and "mpi4py, which is not installed: pip install opscope[mpi]" in told


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`opscope launch` in a folder, in a group of processes of its own."""
    mpiexec()  # or skip
    paths = [str(PACKAGE), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "opscope", "launch", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The same to its end; where there are fewer cores than ranks, it warns of that as well."""
    with start(folder, *words) as running:
        try:
            out, err = running.communicate(timeout=_LONG)
        except BaseException:
            running.kill()
            raise
    err = re.sub(r"^warning: \d+ ranks share 1 cores\n", "", err)
    return subprocess.CompletedProcess(words, running.returncode, out, err)


TRAIN = """\
import sys
import opscope
from training_on_ranks import arrays, classifier, numbers

def fail(at):
    if at.rank == 1 and sys.argv[1] == "fail":
        raise ValueError("broken")

history = opscope.train(
    classifier(), opscope.Minibatches(arrays(45), 12, seed=3), epochs=3, seed=5, progress=False,
    scope=(scope := opscope.Scope()), callbacks=fail, checkpoint="run",
)
if history.rank == 0:
    opscope.save(classifier(), scope, "trained")
"""


def test_a_script_on_two_ranks(tmp_path):
    (tmp_path / "work.py").write_text(TRAIN)
    done = run(tmp_path, "-n", "2", "work.py", "go")
    assert done.returncode == 0, done.stderr
    (tmp_path / "alone").mkdir()
    env = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{Path(__file__).parents[2]}"}
    alone = [sys.executable, "-P", str(tmp_path / "work.py"), "go"]
    subprocess.run(alone, env=env, cwd=tmp_path / "alone", check=True, timeout=_LONG)
    scopes = [opscope.Scope(), opscope.Scope()]
    for folder, scope in zip((tmp_path, tmp_path / "alone"), scopes, strict=True):
        opscope.load(folder / "trained.pb", scope, train=True)
    for name in scopes[0].names():
        assert np.abs(scopes[0].numpy(name) - scopes[1].numpy(name)).max(initial=0) < 1e-12
    assert sorted(one.name for one in tmp_path.glob("run*")) == ["run.checkpoint"]


def test_an_error_on_one_rank_ends_the_script(tmp_path):
    (tmp_path / "work.py").write_text(TRAIN)
    done = run(tmp_path, "-n", "2", "work.py", "fail")
    assert done.returncode != 0
    assert done.stderr.count("rank 1 of 2 has ended the run: callback fail, epoch 1") == 1
    assert not (tmp_path / "trained.pb").exists()


KILLED = """\
import os
import signal
import time
from opscope.framework.parallel.mpi import MpiCommunicator

ranks = MpiCommunicator()
if ranks.rank == 0:
    print("here is rank 0\\n" + "=" * 83, flush=True)
ranks.barrier()
if ranks.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1000)
"""


def test_a_rank_that_is_killed_is_named(tmp_path):
    """One line, in place of the launcher's eleven; what ranks have written is all there.

    It has lived for less than a second.
    """
    (tmp_path / "work.py").write_text(KILLED)
    for _ in range(3):  # MPICH tells, now and then, of a rank that it has killed itself
        done = run(tmp_path, "-n", "2", "work.py")
        assert done.returncode != 0
        (told,) = done.stderr.splitlines()
        if told.startswith("opscope: rank 1 of 2 has ended the run: Killed"):
            break
    else:
        raise AssertionError(told)
    assert done.stdout == "here is rank 0\n" + "=" * 83 + "\n"


LEAVES = """\
import os
import sys
import time
from opscope.framework.parallel.mpi import MpiCommunicator

how = sys.argv[1]
if how == "before" and os.environ["PMI_RANK"] == "1":
    os._exit(0)
ranks = MpiCommunicator()
ranks.barrier()
if ranks.rank == 1:
    if how == "within":
        os._exit(0)
    if how == "hangs":
        time.sleep(1000)
ranks.barrier()
if ranks.rank == 1:
    if how == "late":
        os._exit(0)
    if how == "hangs late":
        time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["within", "late"])
def test_a_rank_that_leaves_without_a_word_fails_the_run(how, tmp_path):
    """MPICH ends with 0, and ends the other ranks, too."""
    (tmp_path / "work.py").write_text(LEAVES)
    done = run(tmp_path, "-n", "2", "work.py", how)
    assert done.returncode != 0
    assert "left without ending the run" in done.stderr or "rank 1 of 2" in done.stderr


def test_ranks_that_end_in_order_are_all_there(tmp_path):
    (tmp_path / "work.py").write_text(LEAVES)
    done = run(tmp_path, "-n", "2", "--timeout", str(_LONG), "work.py", "in order")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("hangs", "rank 0 of 2 has ended the run: an exchange of rank 0 has waited {} s"),
        ("before", "of 2 ranks, rank 0 waited {} s for the others to begin (--timeout)"),
        ("hangs late", "rank 0 is done, and has waited {} s for rank 1 (--timeout"),
    ],
)
def test_ranks_that_hang_are_ended_after_the_timeout(how, told, tmp_path):
    (tmp_path / "work.py").write_text(LEAVES)
    # On a busy machine ranks may wait so long for one that has not come to where it hangs.
    for seconds in ("1.5", "6", "24"):
        done = run(tmp_path, "-n", "2", "--timeout", seconds, "work.py", how)
        assert done.returncode != 0 and "(--timeout" in done.stderr
        if told.format(seconds) in done.stderr:
            return
    raise AssertionError(done.stderr)


FAILS_ONCE = """\
import os
import pathlib
import opscope
from training_on_ranks import arrays, classifier

def fail(at):
    begun = pathlib.Path(f"epoch{at.epoch}of{at.rank}")
    begun.write_text(begun.read_text() + "again" if begun.exists() else "once")
    fails = at.rank == 1 and at.epoch == int(os.environ["epoch"])
    if fails and not os.environ.get("OPSCOPE_RESTARTED"):
        os._exit(0) if "leave" in os.environ else os.abort()

opscope.train(
    classifier(), opscope.Minibatches(arrays(45), 12, seed=3), epochs=3, seed=5, progress=False,
    scope=opscope.Scope(), callbacks=fail, checkpoint="run", zero=2,
)
"""


@pytest.mark.parametrize("leave", [False, True])
def test_failed_ranks_start_again_from_the_last_checkpoint(leave, tmp_path, monkeypatch):
    (tmp_path / "work.py").write_text(FAILS_ONCE)
    monkeypatch.setenv("epoch", "2")
    if leave:
        monkeypatch.setenv("leave", "1")
    done = run(tmp_path, "-n", "2", "--restarts", "2", "work.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("opscope: restart 1 of 2") == 1 and "restart 2" not in done.stderr
    told = r"opscope: memory of a rank: [\d.]+ KiB at most \(rank 0: parameters [\d.]+ (KiB|B), "
    assert re.search(told, done.stderr), done.stderr
    seen = {epoch: (tmp_path / f"epoch{epoch}of1").read_text() for epoch in (1, 2, 3)}
    assert seen == {1: "once", 2: "onceagain", 3: "once"}


def test_a_restart_resumes_no_checkpoint_of_an_earlier_run(tmp_path, monkeypatch):
    (tmp_path / "work.py").write_text(FAILS_ONCE)
    minibatches = opscope.Minibatches(arrays(45), 12)
    train(digits, minibatches, epochs=3, checkpoint=tmp_path / "run")
    monkeypatch.setenv("epoch", "1")
    done = run(tmp_path, "-n", "2", "--restarts", "1", "work.py")
    assert done.returncode == 0, done.stderr
    seen = {epoch: (tmp_path / f"epoch{epoch}of1").read_text() for epoch in (1, 2, 3)}
    assert seen == {1: "onceagain", 2: "once", 3: "once"}


def test_restarts_come_to_an_end(tmp_path):
    (tmp_path / "work.py").write_text("raise SystemExit(3)")
    done = run(tmp_path, "-n", "1", "--restarts", "2", "work.py")
    assert done.returncode == 3 and done.stderr.count("opscope: restart") == 2


@pytest.mark.parametrize(
    "words",
    [("work.py", "--rate", "many"), ("train", "net.pb", "--epochs", "none")],
    ids=["a script", "a command"],
)
def test_wrong_arguments_are_not_tried_again(words, tmp_path):
    (tmp_path / "work.py").write_text(
        "import argparse\n"
        "import opscope.framework.parallel.mpi as mpi\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--rate', type=float)\n"
        "parser.parse_args()\n"
    )
    done = run(tmp_path, "-n", "2", "--restarts", "3", *words)
    assert done.returncode == 2 and "restart" not in done.stderr
    assert "many" in done.stderr or "none" in done.stderr


@pytest.mark.parametrize("text", ["now", "-1", "nan", "inf"])
def test_a_restart_since_no_time_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_RESTARTED", text)
    with pytest.raises(OpscopeError, match=f"OPSCOPE_RESTARTED={text}: want seconds since 1970"):
        train(digits, [arrays(6)], epochs=1, checkpoint=tmp_path / "run")
    assert train(digits, [arrays(6)], epochs=1)[1].rows  # without a checkpoint nothing asks for it


def test_timeouts_are_positive_numbers(started, monkeypatch):
    assert started("-n", "2", "--timeout", "0", "work.py")[0] == 2
    monkeypatch.setenv("OPSCOPE_RANKS_WAIT", "soon")
    with pytest.raises(OpscopeError, match="OPSCOPE_RANKS_WAIT=soon: want a number of seconds"):
        patience()


BANNER = f"""
{"=" * 83}
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 12 RUNNING AT node7
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
{"=" * 83}
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""


@pytest.mark.parametrize("before", ["", "no end of line", "50%\n", "=" * 83 + "\n=   BAD"])
@pytest.mark.parametrize("behind", ["", "late words\n"])
@pytest.mark.parametrize("pause", [0, 60, 200])
def test_all_but_the_banner_goes_on(before, behind, pause, tmp_path, capfdbinary, monkeypatch):
    text = before + BANNER + behind
    program = f"""\
import sys, time
for part in ({text[:pause]!r}, {text[pause:]!r}):
    sys.stdout.write(part)
    sys.stdout.flush()
    time.sleep(0.05)
"""
    command = [sys.executable, "-c", program]
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert run_ranks(command, 2, os.environ) == 0
    told = capfdbinary.readouterr().err.decode()
    assert (tmp_path / "out").read_text() == before + behind
    line = "opscope: a rank has ended the run: Killed (signal 9), process 12 on node7\n"
    assert told == line


def test_the_command_train_on_two_ranks(tmp_path):
    scope = opscope.Scope()
    net = classifier(dropout=0.0)
    opscope.framework.runtime.initialize.initialize(net.desc, scope, opscope.OpContext(seed=1))
    opscope.save(net, scope, tmp_path / "net")
    np.savez(tmp_path / "data.npz", **data())
    words = ["train", "net.pb", "--data", "data.npz", "--epochs", "2", "--out", "out", "--quiet"]
    done = run(tmp_path, "-n", "2", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("saved out") == 1
    assert (tmp_path / "out.pb").exists()
    done = run(tmp_path, "-n", "2", *words, "--pipeline", "2f2b")
    assert done.returncode != 0 and done.stderr.count("not '2f2b'") == 1, done.stderr


WAIT = """\
import pathlib
import time
import opscope
from training_on_ranks import arrays, classifier

def slow(at):
    pathlib.Path("ready").touch()
    time.sleep(0.05)

history = opscope.train(
    classifier(), opscope.Minibatches(arrays(45), 12, seed=3), epochs=1000, seed=5, progress=False,
    scope=opscope.Scope(), callbacks=slow, checkpoint="run",
)
print(f"rank {history.rank}: {history.interrupted} {len(history)}\\n", end="")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of a group of processes")
def test_ctrl_c_ends_all_ranks_with_a_checkpoint(tmp_path):
    (tmp_path / "work.py").write_text(WAIT)
    with start(tmp_path, "-n", "2", "work.py") as running:
        try:
            until = time.monotonic() + _LONG
            while not (tmp_path / "ready").exists() and time.monotonic() < until:
                time.sleep(0.05)
            os.killpg(running.pid, signal.SIGINT)  # as a terminal does
            out, err = running.communicate(timeout=_LONG)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    told = sorted(line for line in out.splitlines() if line.startswith("rank"))
    assert len(told) == 2, err
    assert {line.partition(": ")[2] for line in told} == {told[0].partition(": ")[2]}
    assert "True" in told[0]
    assert (tmp_path / "run.checkpoint").exists()
