"""The section ParallelTrain: each value, contradictions, and where an error is told."""

import math
import os

import pytest

from opscope.cntk.actions.settings import TopOptions
from opscope.cntk.config import parse_config
from opscope.cntk.config.unread import unread_parameters
from opscope.cntk.parallel.options import ParallelOptions
from opscope.cntk.parallel.start import log_of_rank, ranks_of
from opscope.framework.base.communicator import SingleCommunicator
from opscope.framework.base.errors import FormatError
from opscope.framework.parallel.dry import EchoCommunicator
from opscope.framework.parallel.launched import launched_ranks


def options(section, precision="float"):
    text = f"precision = {precision} ; SGD = [ ParallelTrain = [ {section} ] ]"
    return ParallelOptions.of(parse_config(text, "t.cntk").section("SGD"))


def test_defaults():
    none = ParallelOptions.of(parse_config("SGD = [ ]", "t.cntk").section("SGD"))
    assert none == ParallelOptions() and none.method == "none"
    found = options("parallelizationMethod = DataParallelSGD")
    assert (found.method, found.first_epoch, found.distributed) == ("gradients", 0, None)
    assert (found.stats_every, found.zero_threshold, found.buffered) == (0, True, False)
    assert list(found.bits) == [32]
    assert list(options("parallelizationMethod = DataParallelSGD", "double").bits) == [64]
    assert options("").method == options("parallelizationMethod = none").method == "none"


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("DataParallelSGD", "gradients"),
        ("dataparallelsgd", "gradients"),
        ("ModelAveragingSGD", "averaging"),
        ("BlockMomentumSGD", "block momentum"),
        ("DataParallelASGD", "asynchronous"),
        ("NONE", "none"),
    ],
)
def test_methods(name, method):
    assert options(f"parallelizationMethod = {name}").method == method


def test_values_of_the_section():
    found = options(
        "parallelizationMethod = DataParallelSGD ; parallelizationStartEpoch = 3 ; "
        "distributedMBReading = false ; syncPerfStats = 7 ; DataParallelSGD = [ gradientBits = 1:8 "
        "; useZeroThresholdFor1BitQuantization = false ; "
        "useBufferedAsyncGradientAggregation = true ]"
    )
    assert (found.first_epoch, found.distributed, found.stats_every) == (2, False, 7)
    assert [found.bits[epoch] for epoch in range(3)] == [1, 8, 8]
    assert (found.zero_threshold, found.buffered) == (False, True)
    assert options("distributedMBReading = true").distributed is True


@pytest.mark.parametrize(
    ("method", "section", "ranks", "block"),
    [
        ("ModelAveragingSGD", "", 3, 3 * 40000),
        ("BlockMomentumSGD", "", 3, 3 * 120000),
        ("ModelAveragingSGD", "blockSize = 100", 4, 100),
        ("ModelAveragingSGD", "blockSizePerWorker = 100", 4, 400),
        ("ModelAveragingSGD", "syncFrequencyInFrames = 100", 4, 400),
        ("ModelAveragingSGD", "syncPeriod = 100", 4, 400),
        ("BlockMomentumSGD", "blockSize = 100", 4, 100),
        ("BlockMomentumSGD", "blockSizePerWorker = 100", 4, 400),
        ("BlockMomentumSGD", "syncPeriod = 100", 4, 400),
    ],
)
def test_sizes_of_blocks(method, section, ranks, block):
    found = options(f"parallelizationMethod = {method} ; {method} = [ {section} ]")
    assert found.block_of(ranks) == block
    assert options(f"parallelizationMethod = {method}").block_of(1) in (40000, 120000)


@pytest.mark.parametrize(
    ("section", "ranks", "momentum"),
    [
        ("", 1, 0.0),
        ("", 4, 0.75),
        ("blockMomentumPerSync = 0.3", 4, 0.3),
        ("blockMomentumAsTimeConstant = 50", 4, math.exp(-4 * 10 / 50)),
        ("blockMomentumAsTimeConstant = 0", 4, 0.0),
    ],
)
def test_block_momentum(section, ranks, momentum):
    part = f"blockSizePerWorker = 10 ; {section}"
    found = options(f"parallelizationMethod = BlockMomentumSGD ; BlockMomentumSGD = [ {part} ]")
    assert found.momentum_of(ranks) == pytest.approx(momentum, abs=1e-15)
    assert (found.reset_momentum, found.nesterov, found.block_rate) == (True, True, 1.0)


def test_flags_of_blocks():
    part = "resetSGDMomentum = false ; useNesterovMomentum = false ; blockLearningRate = 0.5"
    found = options(f"parallelizationMethod = BlockMomentumSGD ; BlockMomentumSGD = [ {part} ]")
    assert (found.reset_momentum, found.nesterov, found.block_rate) == (False, False, 0.5)


def asynchronous(part):
    return options(f"parallelizationMethod = DataParallelASGD ; DataParallelASGD = [ {part} ]")


def test_asynchronous():
    found = asynchronous("syncPeriod = 8:16 ; UsePipeline = true")
    assert [found.period[epoch] for epoch in range(3)] == [8, 16, 16] and found.pipelined
    assert asynchronous("").period[0] == 256 and asynchronous("").share_of_change(1) == 1
    averaging = asynchronous("syncPeriod = 8 ; SimModelAverage = true")
    assert (averaging.method, averaging.block_of(3)) == ("averaging", 24)


@pytest.mark.parametrize(
    ("ramp", "shares"),
    [
        ("", [0.1] * 3 + [0.1]),
        ("adjustPerMinibatches = 2 ; adjustCoefficient = 0.4", [0.4, 0.8, 0.8, 1]),
        ("adjustType = Linearly ; adjustPerMinibatches = 3 ; adjustCoefficient = 0.4", [0.6, 0.8]),
        ("adjustType = none", [1, 1]),
    ],
)
def test_smaller_changes_at_first(ramp, shares):
    found = asynchronous(f"AdjustLearningRateAtBeginning = [ {ramp} ]")
    assert [found.share_of_change(n + 1) for n in range(len(shares))] == pytest.approx(shares)
    assert found.share_of_change(10**6) == 1


SERVED = "DataParallelASGD"
DATA, AVERAGING, BLOCKS = "DataParallelSGD", "ModelAveragingSGD", "BlockMomentumSGD"
WRONG = [
    ("parallelizationMethod = Data", "Data", "Invalid Parallelization Method 'Data'"),
    ("parallelizationStartEpoch = 0", "0", "must be greater or equal to 1"),
    ("parallelizationStartEpoch = x", "x", "invalid input string 'x'"),
    ("distributedMBReading = perhaps", "perhaps", "boolean argument expected"),
    ("syncPerfStats = many", "many", "invalid input string"),
    *(
        (f"parallelizationMethod = {method} ; {method} = [ {part} ]", place, message)
        for method, part, place, message in (
            (DATA, "gradientBits = 0", "0", "gradientBits values must be in the range"),
            (DATA, "gradientBits = 3", "3", "powers of two"),
            (DATA, "gradientBits = 64", "64", "range \\[1, 32\\] when using precision=float"),
            (DATA, "gradientBits = 32:5", "32:5", "gradientBits values"),
            (DATA, "useBufferedAsyncGradientAggregation = 2", "2", "boolean argument"),
            (AVERAGING, "blockSize = 0", "0", "a block has at least one sample"),
            (AVERAGING, "blockSize = 9 ; syncPeriod = 8", "8", "blockSize and syncPeriod say"),
            (BLOCKS, "blockSize = 9 ; blockSizePerWorker = 8", "8", "say the same"),
            (SERVED, "syncPeriod = 5:0", "5:0", "at least one sample between"),
            (SERVED, "AdjustLearningRateAtBeginning = [ adjustType = x ]", "x", "Invalid Type"),
            (BLOCKS, "blockMomentumPerSync = 1", "1", "below 1"),
            (BLOCKS, "blockMomentumPerSync = -0.1", "-0.1", "below 1"),
            (BLOCKS, "blockMomentumAsTimeConstant = -1", "-1", "from 0 on"),
            (
                BLOCKS,
                "blockMomentumAsTimeConstant = 9 ; blockMomentumPerSync = 0.5",
                "0.5",
                "only allowed to set either",
            ),
        )
    ),
]


@pytest.mark.parametrize(("section", "place", "message"), WRONG)
def test_errors_tell_the_place(section, place, message):
    text = f"SGD = [ ParallelTrain = [ {section} ] ]"
    column = text.rindex(f"= {place}") + 3
    with pytest.raises(FormatError, match=message) as caught:
        ParallelOptions.of(parse_config(text, "t.cntk").section("SGD"))
    assert str(caught.value).startswith(f"t.cntk:1:{column}: ")


def top(text):
    return TopOptions.of(parse_config(text, "t.cntk")).parallel


def wrong(message):
    return FormatError(f"here: {message}")


def test_the_top_level_says_whether_ranks_train_together():
    assert top("") is None and top("parallelTrain = [ a = 1 ]") is None
    assert top("parallelTrain = true") is True and top("parallelTrain = false") is False
    several = EchoCommunicator(3)
    assert ranks_of(None, None, wrong) is None and ranks_of(False, None, wrong) is None
    assert isinstance(ranks_of(True, None, wrong), SingleCommunicator)
    assert ranks_of(None, several, wrong) is ranks_of(True, several, wrong) is several
    assert ranks_of(False, SingleCommunicator(), wrong) is None
    with pytest.raises(FormatError, match="here: parallelTrain is false, but 3 processes were"):
        ranks_of(False, several, wrong)


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({}, 1),
        ({"PMI_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 2),
        ({"PMI_SIZE": "x", "PMIX_SIZE": "3"}, 3),
        ({"MV2_COMM_WORLD_SIZE": "5"}, 5),
        ({"MPI_LOCALNRANKS": "2"}, 2),
        ({"MPI_LOCALNRANKS": "2", "PMI_SIZE": "4"}, 4),
        ({"PMI_SIZE": "\u00b2"}, 1),
    ],
)
def test_launchers_are_known_by_their_variables(variables, count, monkeypatch):
    for name in list(os.environ):
        if "MPI" in name or "PMI" in name:
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched_ranks() == count


def test_names_of_logs():
    second = EchoCommunicator(3)
    second.rank = 2
    assert log_of_rank("a.log", None, True) == "a.log" and log_of_rank("", second, True) == ""
    assert [log_of_rank("a.log", second, stamped) for stamped in (True, False)] == [
        "a.logrank2",
        "a.log.rank2",
    ]
    assert log_of_rank("a.log", EchoCommunicator(3), False) == "a.log"


def test_sections_of_other_methods_are_told():
    config = parse_config(
        "SGD = [ ParallelTrain = [ parallelizationMethod = DataParallelSGD ; "
        "BlockMomentumSGD = [ blockSize = 5 ] ] ]",
        "t.cntk",
    )
    ParallelOptions.of(config.section("SGD"))
    (told,) = map(str, unread_parameters(config))
    assert "BlockMomentumSGD is not used: parallelizationMethod is DataParallelSGD" in told
