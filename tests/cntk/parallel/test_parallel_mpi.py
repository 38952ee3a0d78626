"""`opscope cntk` under mpiexec: a training, and one message of whatever ends it."""

import re

import numpy as np
import pytest

from cntk_ranks import config_text, largest_difference, model_values, run_on, write_points
from mpi_runs import run_ranks

PROGRAM = """
    import os, signal, sys, threading, time
    from opscope.python_api.cli.main import main
    rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
    def once_saved(sent):
        while not os.path.exists("m.dnn.3"):
            time.sleep(0.02)
        os.kill(os.getpid(), sent)
    def send(sent):
        threading.Thread(target=once_saved, args=(sent,), daemon=True).start()
    {before}
    main(["cntk", *{words!r}])
"""


@pytest.fixture
def folder(tmp_path):
    write_points(tmp_path / "train.ctf", 60)
    return tmp_path


def run(folder, text, ranks=2, before="", words=("configFile=t.cntk", "stderr=log")):
    (folder / "t.cntk").write_text(text)
    return run_ranks(ranks, PROGRAM.format(words=list(words), before=before), folder)


def test_ranks_are_found_and_train_together(folder):
    done = run(folder, config_text(folder, trace=1))
    assert (done.returncode, done.stderr) == (0, "")
    wanted = run_on(2, config_text(folder, model=folder / "dry.dnn"), folder / "dry.dnn")
    found = wanted._replace(values=model_values(folder / "m.dnn"))
    assert largest_difference(found, wanted) == 0
    for rank, name in enumerate(("log", "log.rank1")):
        log = (folder / name).read_text()
        assert log.count(f"(myRank = {rank}, numNodes = 2, numGradientBits = 64)") == 2
    assert sorted(path.name for path in folder.glob("m.dnn*")) == [
        "m.dnn",
        "m.dnn.0",
        "m.dnn.1",
        "m.dnn.ckp",
    ]


def test_logs_of_a_server_farm(folder):
    assert run(folder, config_text(folder, top="timestamping = true")).returncode == 0
    assert [(folder / f"log_Train.logrank{rank}").exists() for rank in range(2)] == [True, True]


def faults(folder):
    """What goes wrong -> config, what each rank does first, and the message."""
    bad = (folder / "train.ctf").read_text().splitlines()
    bad[37] = "|features 1 2 x |labels 0 1"
    (folder / "bad.ctf").write_text("\n".join(bad) + "\n")
    long = config_text(folder, epochs=2000)
    return {
        "data": (config_text(folder, data=folder / "bad.ctf"), "", r"bad\.ctf:38:15: a number was"),
        "config": (config_text(folder, size="abc"), "", "invalid input string 'abc'"),
        "false": (
            config_text(folder, top="parallelTrain = false"),
            "",
            "parallelTrain is false, but 2 processes were started",
        ),
        "nan": (
            config_text(
                folder,
                precision="float",
                epochs=30,
                nodes="d = z - Constant (1e30) .* z .* z ; e = Exp (d)",
                sgd="learningRatesPerSample = 1e37 ; momentumPerMB = 0",
            ),
            "",
            r"The training criterion is not a number \(NAN\)",
        ),
        "ctrl-c": (long, "if rank: send(signal.SIGINT)", "rank 1 of 2 .*: KeyboardInterrupt"),
        "model": (
            config_text(folder, model=folder / "train.ctf" / "m.dnn"),
            "",
            "rank 0 of 2 has ended the run: .*train.ctf",
        ),
    }


@pytest.mark.parametrize("fault", ["data", "config", "false", "nan", "ctrl-c", "model"])
def test_one_message_ends_all_ranks(fault, folder):
    text, before, message = faults(folder)[fault]
    done = run(folder, text, before=before)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if re.match("opscope: |error: ", line)]
    assert len(told) == 1 and re.search(message, told[0]), done.stderr
    assert "Traceback" not in done.stderr and "Abort" not in done.stderr


def test_a_rank_that_ends_leaves_a_whole_model(folder):
    """What was saved before the end is there to go on from, for one process as well."""
    text = config_text(folder, epochs=2000)
    ended = run(folder, text, before="if rank: send(signal.SIGKILL)")
    assert ended.returncode != 0
    told = [line for line in ended.stderr.splitlines() if line.startswith(("opscope: ", "error: "))]
    assert len(told) <= 1  # the launcher tells of it, and mostly ends the other rank first
    assert "is gone" in "".join(told) or "signal 9" in ended.stdout + ended.stderr
    saved = [path for path in folder.glob("m.dnn.*") if path.suffix[1:].isdecimal()]
    done = max(int(path.suffix[1:]) for path in saved)
    assert done >= 3
    assert all(
        np.isfinite(value).all() for value in model_values(folder / f"m.dnn.{done}").values()
    )
    again = run_on(0, config_text(folder, epochs=done + 2), folder / "m.dnn")
    assert len(again.criteria()) in (1, 2)
