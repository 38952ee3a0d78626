"""Ranks that train apart: averages and block momentum against an evaluation in plain NumPy."""

import threading
import time

import numpy as np
import pytest

from cntk_ranks import (
    config_text,
    gradients,
    model_values,
    parameters_of,
    points_of,
    run_on,
    write_points,
)
from opscope.cntk.models.checkpoint import (
    Checkpoint,
    LearnerStates,
    format_checkpoint,
    parse_checkpoint,
)
from opscope.cntk.sgd.files import ModelFiles
from opscope.framework.base.errors import FormatError

RATE, SIZE = 0.0625, 12


@pytest.fixture
def folder(tmp_path):
    write_points(tmp_path / "train.ctf", 60)
    return tmp_path


def train(folder, ranks, method, section, sgd="", epochs=3, **settings):
    parallel = f"parallelizationMethod = {method} ; {method} = [ {section} ]"
    sgd = (
        f"learningRatesPerSample = {RATE} ; momentumPerMB = 0.5 ; keepCheckPointFiles = true {sgd}"
    )
    text = config_text(folder, parallel=parallel, sgd=sgd, epochs=epochs, **settings)
    return run_on(ranks, text, folder / "m.dnn")


class Apart:
    """The same in NumPy.

    Args:
        ranks: how many. block: samples of a rank in a block.
        momentum: of blocks; None: parameters are averaged alone.
    """

    def __init__(self, folder, ranks, block, momentum=None, rate=1.0, nesterov=True, reset=True):
        self.ranks, self.block, self.momentum = ranks, block, momentum
        self.rate, self.nesterov, self.reset = rate, nesterov, reset
        self.x, self.y = points_of(folder / "train.ctf")
        first = parameters_of(model_values(folder / "m.dnn.0"))
        self.params = [[value.copy() for value in first] for _ in range(ranks)]
        self.smooth = [[np.zeros_like(value) for value in first] for _ in range(ranks)]
        self.model = first
        self.change = [np.zeros_like(value) for value in first]

    def epoch(self):
        since, apart = [0] * self.ranks, False
        self.model = [value.copy() for value in self.params[0]]
        steps = [range(begin, min(begin + SIZE, len(self.x))) for begin in range(0, 60, SIZE)]
        shares = [
            [[n for n in step if n % self.ranks == rank] for step in steps]
            for rank in range(self.ranks)
        ]
        for number in range(len(steps)):
            for rank in range(self.ranks):
                self.learn(rank, shares[rank][number])
                since[rank] += len(shares[rank][number])
            assert len({count >= self.block for count in since}) == 1
            if since[0] >= self.block:
                self.join(since)
                since = [0] * self.ranks
        self.join(since)
        return apart

    def learn(self, rank, rows):
        momentum = 0.5 ** (len(rows) / SIZE)
        found = gradients(*self.params[rank], self.x[rows], self.y[rows])
        for number, gradient in enumerate(found):
            smooth = self.smooth[rank][number]
            smooth *= momentum
            smooth += (1 - momentum) * RATE * gradient
            self.params[rank][number] = self.params[rank][number] - smooth

    def join(self, since):
        total = sum(since)
        for number in range(2):
            parts = [self.params[rank][number] for rank in range(self.ranks)]
            if self.momentum is None:
                weights = [n / total if total else 1 / self.ranks for n in since]
                new = sum(w * part for w, part in zip(weights, parts, strict=True))
            else:
                gained = sum(parts) / self.ranks - self.begin(number)
                self.change[number] = self.momentum * self.change[number] + self.rate * gained
                self.model[number] = self.model[number] + self.change[number]
                new = self.begin(number)
            for rank in range(self.ranks):
                self.params[rank][number] = new.copy()
                if self.momentum is not None and self.reset:
                    self.smooth[rank][number][:] = 0

    def begin(self, number):
        """What a block begins with."""
        ahead = self.momentum * self.change[number] if self.nesterov else 0.0
        return self.model[number] + ahead


def same(ran, apart, epochs=3):
    for _ in range(epochs):
        apart.epoch()
    for found, wanted in zip(parameters_of(ran.values), apart.params[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
    assert all(ran.criteria(rank) == ran.criteria(0) for rank in range(len(ran.logs)))


@pytest.mark.parametrize(("ranks", "block"), [(1, 5), (2, 6), (2, 13), (3, 8), (4, 1), (2, 900)])
def test_model_averaging(folder, ranks, block):
    ran = train(folder, ranks, "ModelAveragingSGD", f"blockSizePerWorker = {block}")
    same(ran, Apart(folder, ranks, block))


BLOCKS = [
    # ranks, section, what it says
    (2, "blockSizePerWorker = 6", {"block": 6, "momentum": 0.5}),
    (3, "blockSize = 24", {"block": 8, "momentum": 2 / 3}),
    (4, "syncPeriod = 3", {"block": 3, "momentum": 0.75}),
    (2, "blockSizePerWorker = 900", {"block": 900, "momentum": 0.5}),
    (1, "blockSizePerWorker = 24 ; blockMomentumPerSync = 0.5", {"block": 24, "momentum": 0.5}),
    (
        2,
        "blockSizePerWorker = 6 ; blockMomentumAsTimeConstant = 20",
        {"block": 6, "momentum": np.exp(-12 / 20)},
    ),
    (
        2,
        "blockSizePerWorker = 6 ; blockMomentumAsTimeConstant = 0",
        {"block": 6, "momentum": 0.0},
    ),
    (
        2,
        "blockSizePerWorker = 6 ; useNesterovMomentum = false",
        {"block": 6, "momentum": 0.5, "nesterov": False},
    ),
    (
        3,
        "blockSizePerWorker = 8 ; resetSGDMomentum = false ; blockMomentumPerSync = 0.25",
        {"block": 8, "momentum": 0.25, "reset": False},
    ),
]


@pytest.mark.parametrize(("ranks", "section", "what"), BLOCKS)
def test_block_momentum(folder, ranks, section, what):
    """CNTK's block learning rate 1 is for the sum of the ranks' changes: (1 - momentum) ranks."""
    ran = train(folder, ranks, "BlockMomentumSGD", section)
    rate = (1 - what["momentum"]) * ranks
    same(ran, Apart(folder, ranks, rate=rate, **what))


def test_block_learning_rate(folder):
    section = "blockSizePerWorker = 6 ; blockLearningRate = 0.5"
    ran = train(folder, 2, "BlockMomentumSGD", section)
    same(ran, Apart(folder, 2, 6, 0.5, rate=0.5))


SECTIONS = [
    ("ModelAveragingSGD", "blockSizePerWorker = 6", ""),
    ("BlockMomentumSGD", "blockSizePerWorker = 6", ""),
    ("BlockMomentumSGD", "blockSizePerWorker = 6 ; resetSGDMomentum = false", ""),
    ("BlockMomentumSGD", "blockSizePerWorker = 6", " ; gradUpdateType = fsAdagrad"),
    ("DataParallelSGD", "gradientBits = 1", ""),
    ("DataParallelSGD", "useBufferedAsyncGradientAggregation = true", ""),
]


@pytest.mark.parametrize(("method", "section", "sgd"), SECTIONS)
def test_a_restart_goes_on_bit_for_bit(folder, method, section, sgd):
    given = (folder, 3, method, section, sgd, 5)
    whole = train(*given)
    ends = [(folder / f"m.dnn{end}").read_bytes() for end in ("", ".4.ckp")]
    for name in ("m.dnn", "m.dnn.4", "m.dnn.3", "m.dnn.4.ckp", "m.dnn.3.ckp"):
        (folder / name).unlink()
    again = train(*given)
    assert [(folder / f"m.dnn{end}").read_bytes() for end in ("", ".4.ckp")] == ends
    for rank in range(3):
        assert again.criteria(rank) == whole.criteria(rank)[2:]


@pytest.mark.parametrize("ranks", [0, 1, 2, 4])
def test_another_number_of_ranks_goes_on(folder, ranks):
    """All of them take the states of the main one."""
    section = "blockSizePerWorker = 6"
    train(folder, 3, "ModelAveragingSGD", section, epochs=4)
    for name in ("m.dnn", "m.dnn.3", "m.dnn.3.ckp"):
        (folder / name).unlink()
    again = train(folder, ranks, "ModelAveragingSGD", section, epochs=4)
    assert len(again.criteria()) == 2
    assert again.criteria()[-1][0] < 0.7


def test_going_back_to_the_best_model_takes_its_blocks(folder, monkeypatch):
    """An epoch that made things worse leaves nothing behind, on any rank, also one that is late."""
    read = ModelFiles.read_state

    def read_late(files, done):
        if threading.current_thread().name == "rank 1":
            time.sleep(0.02)
        return read(files, done)

    monkeypatch.setattr(ModelFiles, "read_state", read_late)
    adjust = " ; AutoAdjust = [ autoAdjustLR = adjustAfterEpoch ; learnRateDecreaseFactor = 0.1 ]"
    section = "blockSizePerWorker = 6 ; blockLearningRate = 3"
    sgd = adjust + " ; learningRatesPerSample = 30"
    parallel = f"parallelizationMethod = BlockMomentumSGD ; BlockMomentumSGD = [ {section} ]"
    text = config_text(folder, parallel=parallel, sgd=sgd.lstrip(" ;"), epochs=8)
    ran = run_on(2, text, folder / "m.dnn")
    assert "rolling back" in ran.logs[0] and "rolling back" in ran.logs[1]
    assert ran.criteria(0) == ran.criteria(1)


def test_lines_about_blocks(folder):
    parallel = "parallelizationMethod = ModelAveragingSGD ; syncPerfStats = 4 ; "
    parallel += "ModelAveragingSGD = [ blockSizePerWorker = 1 ]"
    log = run_on(2, config_text(folder, parallel=parallel, size=4), folder / "m.dnn").logs[1]
    told = [line.split("-th")[0].split()[-1] for line in log.splitlines() if "-th sync" in line]
    assert told == ["1", "2", "3", "4", "5", "8", "12", "16"] * 2


def test_checkpoints_hold_what_ranks_know():
    rng = np.random.default_rng(0)
    state = Checkpoint(5, 0.25, 1.5, 12, [rng.normal(size=(2, 3))], [1.0])
    plain = format_checkpoint(state)
    state.blocks = [rng.normal(size=(1, 6))]
    state.others = [LearnerStates([rng.normal(size=(2, 3))], [2.0]), LearnerStates([], [])]
    data = format_checkpoint(state)
    assert data.startswith(plain)  # where CNTK stops to read
    found = parse_checkpoint(data)
    np.testing.assert_array_equal(found.blocks[0], state.blocks[0])
    np.testing.assert_array_equal(found.others[0].gradients[0], state.others[0].gradients[0])
    assert found.others[0].counts == [2.0] and found.others[1].gradients == []
    inside = data.index("EBlocks".encode("utf-16-le"))
    for cut in (*range(len(plain) + 20, inside, 9), len(data) - 1, len(data) - 40):
        with pytest.raises(FormatError, match=r"c\.ckp"):
            parse_checkpoint(data[:cut], "c.ckp")


def test_blocks_of_another_network_are_refused(folder):
    train(folder, 2, "BlockMomentumSGD", "blockSizePerWorker = 6", epochs=2)
    path = folder / "m.dnn.1.ckp"
    state = parse_checkpoint(path.read_bytes())
    state.blocks = state.blocks[:1]
    path.write_bytes(format_checkpoint(state))
    (folder / "m.dnn").unlink()
    with pytest.raises(FormatError, match="the block momentum of other parameters"):
        train(folder, 2, "BlockMomentumSGD", "blockSizePerWorker = 6", epochs=2)
