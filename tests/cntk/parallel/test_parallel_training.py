"""Trainings on several ranks: equal to one process at the same total batch."""

import re

import numpy as np
import pytest

from cntk_ranks import (
    config_text,
    gradients,
    largest_difference,
    model_values,
    parameters_of,
    points_of,
    run_on,
    write_points,
)
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.train import train as train_action
from opscope.cntk.config import parse_config
from opscope.framework.parallel.dry import DryWorld


@pytest.fixture
def folder(tmp_path):
    write_points(tmp_path / "train.ctf", 60)
    return tmp_path


def train(folder, count, name="m", **settings):
    model = folder / f"{name}{count}.dnn"
    return run_on(count, config_text(folder, model=model, **settings), model)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_sums_of_gradients_equal_one_process(folder, ranks):
    """200 minibatches of 12 samples; float64."""
    alone = train(folder, 0, epochs=40)
    together = train(folder, ranks, epochs=40)
    assert largest_difference(alone, together) <= 1e-12
    np.testing.assert_allclose(together.criteria(), alone.criteria(), rtol=1e-7)
    for log in together.logs[1:]:
        assert re.sub("myRank = .|epochTime=.*", "", log) == re.sub(
            "myRank = .|epochTime=.*", "", together.logs[0]
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 16},  # 60 samples: the last minibatch is smaller
        {"size": 59},  # the last minibatch has one sample: ranks with none
        {"size": 1},
        {"sgd": "learningRatesPerSample = 0.05 ; clippingThresholdPerSample = 0.1"},
        {"sgd": "learningRatesPerSample = 0.05 ; numSubminibatches = 2"},
        {"sgd": "learningRatesPerSample = 0.05 ; L2RegWeight = 0.01 ; gradUpdateType = adagrad"},
        {"parallel": "parallelizationMethod = DataParallelSGD ; distributedMBReading = false"},
    ],
    ids=["unequal", "empty", "single", "clipped", "parts", "adagrad", "cut"],
)
def test_settings_equal_one_process(folder, settings):
    alone, together = train(folder, 0, **settings), train(folder, 4, **settings)
    assert largest_difference(alone, together) <= 1e-12
    np.testing.assert_allclose(together.criteria(), alone.criteria(), rtol=1e-7)


def test_float_stays_near_one_process(folder):
    alone, together = (train(folder, n, precision="float", epochs=4) for n in (0, 2))
    assert largest_difference(alone, together) <= 1e-6


def test_fewer_samples_than_ranks(tmp_path):
    write_points(tmp_path / "train.ctf", 2)
    alone, together = (train(tmp_path, n, epochs=3) for n in (0, 4))
    assert largest_difference(alone, together) <= 1e-12


def test_epochs_before_the_start_are_not_divided(folder):
    """All ranks train on all data, as one process does."""
    parallel = "parallelizationMethod = DataParallelSGD ; parallelizationStartEpoch = 3"
    alone = train(folder, 0, epochs=4)
    together = train(folder, 2, epochs=4, parallel=parallel, trace=1)
    assert largest_difference(alone, together) <= 1e-12
    assert together.logs[0].count("Starting minibatch loop.\n") == 2
    assert together.logs[1].count("(myRank = 1, numNodes = 2, numGradientBits = 64)") == 2
    assert together.logs[0].count("distributed reading is ENABLED") == 2


def test_buffered_sums_come_one_minibatch_later(folder):
    """The update of a minibatch uses the gradients at the parameters before the last update."""
    buffered = "DataParallelSGD = [ useBufferedAsyncGradientAggregation = true ]"
    parallel = f"parallelizationMethod = DataParallelSGD ; {buffered}"
    plain = "learningRatesPerSample = 0.0625 ; momentumPerMB = 0"
    one, two, three = (train(folder, n, parallel=parallel, sgd=plain, epochs=3) for n in (1, 2, 3))
    assert largest_difference(one, two) <= 1e-12
    assert largest_difference(one, three) <= 1e-12
    assert largest_difference(one, train(folder, 0, sgd=plain, epochs=3)) > 1e-3
    np.testing.assert_allclose(two.criteria(), one.criteria(), rtol=1e-7)
    for found, wanted in zip(parameters_of(one.values), _delayed(folder, 3), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


def _delayed(folder, epochs):
    """The same in NumPy, from the model that the training began with."""
    values = parameters_of(model_values(folder / "m1.dnn.0"))
    x, y = points_of(folder / "train.ctf")
    for _ in range(epochs):
        waiting = [0.0, 0.0]
        for begin in range(0, 60, 12):
            coming = gradients(*values, x[begin : begin + 12], y[begin : begin + 12])
            values = [p - 0.0625 * g for p, g in zip(values, waiting, strict=True)]
            waiting = coming
        values = [p - 0.0625 * g for p, g in zip(values, waiting, strict=True)]
    return values


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16, 32])
def test_few_bits_learn_and_ranks_agree(folder, bits):
    parallel = (
        f"parallelizationMethod = DataParallelSGD ; DataParallelSGD = [ gradientBits = {bits} ]"
    )
    found = train(folder, 3, parallel=parallel, epochs=8)
    losses = [ce for ce, _ in found.criteria()]
    assert losses[-1] < (0.9 if bits == 2 else 0.5) * losses[0]
    assert found.criteria(0) == found.criteria(1) == found.criteria(2)
    whole = train(folder, 0, epochs=8)
    near = {1: 1.0, 2: 2.0, 4: 0.2, 8: 0.02, 16: 1e-3, 32: 1e-6}[bits]
    assert 1e-12 < largest_difference(found, whole) < near


def test_bits_change_from_epoch_to_epoch(folder):
    parallel = (
        "parallelizationMethod = DataParallelSGD ; DataParallelSGD = [ gradientBits = 64:1:64 ]"
    )
    found = train(folder, 2, parallel=parallel, epochs=4, trace=1)
    assert re.findall(r"numGradientBits = (\d+)", found.logs[0]) == ["64", "1", "64", "64"]


def test_times_of_exchanges_are_told(folder):
    told = {}
    for buffered in ("false", "true"):
        parallel = (
            "parallelizationMethod = DataParallelSGD ; syncPerfStats = 2 ; DataParallelSGD = "
            f"[ useBufferedAsyncGradientAggregation = {buffered} ]"
        )
        log = train(folder, 2, name=buffered, parallel=parallel, epochs=1).logs[0]
        told[buffered] = re.findall(r"^(.*aggregation.*) time: [-.\de]+$", log, re.MULTILINE)
    assert told["false"] == ["Actual gradient aggregation"] * 3  # of 5 minibatches
    assert told["true"] == ["Async gradient aggregation wait"] * 3


def test_nodes_that_gather_over_an_epoch(folder):
    """EpochAccumulator nodes hold the mean over the samples of all ranks."""
    nodes = """hits = new ComputationNode [ operation = 'EpochAccumulator' ; inputs = labels ]
        part = RowSlice (0, 1, hits)
        share = ElementTimes (part, part, tag = 'evaluation')"""
    for size in (12, 59):
        settings = {"name": f"s{size}_", "nodes": nodes, "size": size}
        alone, together = (
            [
                re.findall(r"share = (\S+) \* (\d+)", log)
                for log in train(folder, n, **settings).logs
            ]
            for n in (0, 3)
        )
        assert together == [alone[0]] * 3
        assert alone[0][-1][1] == "1"


def test_running_statistics_are_those_of_the_main_rank(folder):
    """Each rank sees its own samples; a rank that goes on from the model does as the others do."""
    nodes = """bn = BatchNormalizationLayer {normalizationTimeConstant = 100} (h)
        q = Parameter {2, 4} * bn
        second = CrossEntropyWithSoftmax (labels, q, tag = 'evaluation')"""
    more = f"""cvReader = [ readerType = CNTKTextFormatReader ; file = "{folder}/train.ctf"
        randomize = false ; input = [ features = [ dim = 3 ; format = dense ]
                                      labels = [ dim = 2 ; format = dense ] ] ]"""
    settings = {"nodes": nodes, "more": more, "epochs": 4}
    settings["sgd"] = "learningRatesPerSample = 0.05 ; keepCheckPointFiles = true"
    whole = train(folder, 2, **settings)
    for name in ("m2.dnn", "m2.dnn.3"):
        (folder / name).unlink()
    again = train(folder, 2, **settings)
    assert largest_difference(whole, again) == 0
    assert whole.logs[1].count("[Validate]") == 4 and again.logs[1].count("[Validate]") == 2
    for rank in range(2):
        found = [re.findall(r"\[Validate\] (.*)", ran.logs[rank])[-1] for ran in (whole, again)]
        assert found[0] == found[1]


@pytest.mark.parametrize("bits", [64, 1])
def test_dropout_differs_and_noise_is_common(folder, bits):
    """Ranks draw other units, but the same noise of the parameters: they stay equal."""
    settings = {
        "hidden": "Dropout (Tanh (w * features))",
        "sgd": "learningRatesPerSample = 0.05 ; dropoutRate = 0.5 ; gaussianNoiseInjectStd = 0.01",
        "parallel": "parallelizationMethod = DataParallelSGD ; "
        f"DataParallelSGD = [ gradientBits = {bits} ]",
        "epochs": 3,
    }
    text = config_text(folder, model=folder / "m.dnn", **settings)
    nets: list = [None] * 3

    def one_rank(c):
        run = Run(say=lambda line: None, communicator=c)
        section = parse_config(text, "t.cntk").section("Train")
        net = train_action(run, section)
        nets[c.rank] = {name: net.get(name) for name in net.parameters()}

    DryWorld(3).run(one_rank)
    for other in nets[1:]:
        for name, value in nets[0].items():
            assert value.tobytes() == other[name].tobytes()
    alone = train(folder, 0, name="alone", **settings)
    assert max(abs(alone.values[name] - value).max() for name, value in nets[0].items()) > 1e-3


@pytest.mark.parametrize(
    "adjust",
    [
        "autoAdjustLR = searchBeforeEpoch ; numMiniBatch4LRSearch = 3 ; numBestSearchEpoch = 2",
        "autoAdjustLR = adjustAfterEpoch ; reduceLearnRateIfImproveLessThan = 0.5",
        "autoAdjustLR = none ; autoAdjustMinibatch = true ; minibatchSizeTuningMax = 48",
    ],
)
def test_rates_and_sizes_that_adjust_themselves(folder, adjust):
    """All ranks see the same sums, and so choose the same."""
    sgd = f"learningRatesPerSample = 0.05 ; AutoAdjust = [ {adjust} ]"
    alone, together = (train(folder, n, sgd=sgd, epochs=4) for n in (0, 2))
    assert together.criteria(0) == together.criteria(1)
    np.testing.assert_allclose(together.criteria(), alone.criteria(), rtol=1e-6)
    assert largest_difference(alone, together) <= 1e-10
