"""DataParallelASGD: ranks that add their changes to shared parameters, each in its own time."""

import numpy as np
import pytest

from cntk_ranks import config_text, largest_difference, run_on, write_points
from mpi_runs import run_ranks
from opscope import Scope
from opscope.cntk.parallel.asynchronous import Asynchronous
from opscope.cntk.parallel.options import ASYNCHRONOUS, ParallelOptions
from opscope.cntk.parallel.ranks import Ranks
from opscope.framework.base.communicator import LocalArray, SingleCommunicator

SGD = "learningRatesPerSample = 0.1 ; momentumPerMB = 0 ; keepCheckPointFiles = true"
SHAPES = {"w": (2, 3), "b": (2,)}


@pytest.fixture
def folder(tmp_path):
    write_points(tmp_path / "train.ctf", 60)
    return tmp_path


def train(folder, ranks, part, **settings):
    parallel = f"parallelizationMethod = DataParallelASGD ; DataParallelASGD = [ {part} ]"
    return run_on(ranks, config_text(folder, parallel=parallel, **settings), folder / "m.dnn")


class InTurn(SingleCommunicator):
    """One of several ranks that a test lets act in turn."""

    shared: LocalArray | None = None

    def share(self, array):
        if InTurn.shared is None:
            InTurn.shared = LocalArray(array)
        return InTurn.shared


def values(scope):
    return np.concatenate([scope.numpy(name).reshape(-1) for name in SHAPES])


def put(scope, flat):
    scope.var("w").set(flat[:6].reshape(2, 3))
    scope.var("b").set(flat[6:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pipelined", [False, True])
def test_changes_are_added_in_any_order(pipelined, dtype):
    """Against the rule in NumPy, in sixteenths, which floats hold exactly."""
    InTurn.shared = None
    options = ParallelOptions(
        ASYNCHRONOUS, pipelined=pipelined, ramp="staircase", ramp_start=0.5, ramp_length=3
    )
    rng = np.random.default_rng(0)
    first = rng.integers(-8, 8, 8) / 4
    scopes = [Scope() for _ in range(3)]
    apart = []
    for scope in scopes:
        put(scope, first.astype(dtype))
        ranks = Ranks(InTurn(), options, 1)
        apart.append(Asynchronous(ranks, scope, SHAPES, np.dtype(dtype)))
        apart[-1].begin_epoch(2)
    server = first.copy()
    begun = [first.copy() for _ in scopes]
    coming = [first.copy() for _ in scopes]
    done = [0] * 3
    for rank in [0, 1, 1, 2, 0, 0, 0, 2, 1]:
        for _ in range(2):  # it brings its change after two samples
            change = rng.integers(-8, 8, 8) / 4
            put(scopes[rank], values(scopes[rank]) + change.astype(dtype))
            own = values(scopes[rank]).astype(float)
            apart[rank].step(1)
        done[rank] += 1
        server += (own - begun[rank]) * (1.0 if done[rank] >= 3 else 0.5)
        begun[rank] = server.copy()
        if pipelined:
            begun[rank], coming[rank] = coming[rank], begun[rank]
        np.testing.assert_array_equal(values(scopes[rank]), begun[rank])
    for rank in range(3):
        done[rank] += 1
        own = values(scopes[rank]).astype(float)
        server += (own - begun[rank]) * (1.0 if done[rank] >= 3 else 0.5)
        apart[rank].finish()
        np.testing.assert_array_equal(values(scopes[rank]), server)


@pytest.mark.parametrize("period", [1, 24, 1000])
def test_one_rank_trains_as_without(folder, period):
    """What it adds is what it has learned, but for rounding."""
    found = train(folder, 1, f"syncPeriod = {period}")
    plain = run_on(0, config_text(folder, model=folder / "p.dnn", parallel=""), folder / "p.dnn")
    assert largest_difference(found, plain) < 1e-12


@pytest.mark.parametrize("part", ["syncPeriod = 8", "syncPeriod = 8:16 ; UsePipeline = true"])
def test_ranks_learn_together(folder, part):
    settings = {"trace": 1, "epochs": 6, "sgd": SGD}
    found = train(folder, 3, part, **settings)
    criteria = [found.criteria(rank) for rank in range(3)]
    assert criteria[0] == criteria[1] == criteria[2]
    assert criteria[0][-1][0] < 0.5 * criteria[0][0][0]
    for rank in range(3):
        last = 8 if ":" not in part else 16
        head = f"DataParallelASGD training (myRank = {rank}, numNodes = 3, SamplesSyncToServer = "
        assert found.logs[rank].count(f"{head}8)") == (6 if last == 8 else 1)
    # A training goes on from what was saved, with the learner's states of all ranks.
    for name in ("m.dnn", "m.dnn.5", "m.dnn.5.ckp"):
        (folder / name).unlink()
    again = train(folder, 3, part, **settings)
    assert len(again.criteria()) == 2 and again.criteria()[-1][0] < 0.5 * criteria[0][0][0]


def test_other_ranks_hear_of_a_failure(folder):
    text = (folder / "train.ctf").read_text().splitlines()
    text[50] = "|features x"
    (folder / "train.ctf").write_text("\n".join(text) + "\n")
    with pytest.raises(Exception, match=r"train.ctf:51"):
        train(folder, 2, "syncPeriod = 4")


PROGRAM = """
    from opscope.python_api.cli.main import main
    main(["cntk", "configFile=t.cntk", "stderr=log"])
"""


@pytest.mark.parametrize("part", ["syncPeriod = 8", "syncPeriod = 8 ; UsePipeline = true"])
def test_processes_learn_together(folder, part):
    parallel = f"parallelizationMethod = DataParallelASGD ; DataParallelASGD = [ {part} ]"
    (folder / "t.cntk").write_text(config_text(folder, parallel=parallel, sgd=SGD, epochs=6))
    done = run_ranks(2, PROGRAM, folder)
    assert (done.returncode, done.stderr) == (0, "")
    logs = [(folder / name).read_text() for name in ("log", "log.rank1")]
    assert [log.count("Finished Epoch") for log in logs] == [6, 6]
    assert (folder / "m.dnn").exists()
