"""Minibatches computed in parts: `numSubminibatches`, `maxSamplesInRAM`."""

import numpy as np
import pytest

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.models.v1 import read_model
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.run.build import build_section_network
from opscope.cntk.run.runtime import CntkNet
from opscope.cntk.sgd.measure import sub_minibatch_count, sub_minibatches
from opscope.framework.base.errors import ShapeError


@pytest.fixture
def minibatch(tmp_path):
    """Packed sequences of several lengths, and one label for each; values are their numbers."""
    lines = []
    for number, length in enumerate([5, 1, 3, 2, 2, 4, 1, 1]):
        lines += [f"{number} |x {number}" + f" |y {number}" * (step == 0) for step in range(length)]
    (tmp_path / "a.ctf").write_text("\n".join(lines) + "\n")
    text = f"""randomize = false ; file = "{tmp_path}/a.ctf"
        input = [ x = [ dim = 1 ; format = dense ] ; y = [ dim = 1 ; format = dense ] ]"""
    with create_reader(parse_config(text)) as reader:
        reader.start_minibatch_loop(100, 0)
        yield reader.get_minibatch()


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_each_has_the_same_sequences_of_all_streams(minibatch, count):
    found = sub_minibatches(minibatch, count)
    assert len(found) == min(count, minibatch.layouts["x"].parallel)
    labels = []
    for part in found:
        x, y = (part.streams[name] for name in "xy")
        np.testing.assert_array_equal(x.values[x.begin[:-1]], y.values)
        for name, layout in part.layouts.items():
            assert layout.samples == len(part.streams[name].values)
            assert len(np.unique(layout.column)) == layout.samples  # no column holds two
            assert layout.column.max() < layout.columns
        labels += y.values[:, 0].tolist()
    assert sorted(labels) == list(range(8))


def test_streams_with_other_sequences_are_refused():
    lengths = {"x": np.array([2, 2]), "y": np.array([1, 1, 1])}
    streams = {
        name: Samples(np.append(0, np.cumsum(found)), np.zeros((found.sum(), 1)))
        for name, found in lengths.items()
    }
    layouts = {name: packed(found) for name, found in lengths.items()}
    with pytest.raises(ShapeError, match="cannot be computed in parts"):
        sub_minibatches(Minibatch(streams, layouts), 2)


def test_how_many():
    assert sub_minibatch_count(100, 3, None, 1) == 3
    assert sub_minibatch_count(100, 1, 40, 1) == 3 and sub_minibatch_count(100, 1, 40, 2) == 5


NETWORK = """
    x = Input {1} ; y = Input {2, tag = 'label'}
    P (n, m) = ParameterTensor {(n:m), init = 'uniform', initValueScale = 9}
    h = Tanh (P (3, 1) * x + P (3, 3) * PastValue (3, h, timeStep = 2) + ParameterTensor {3})
    ce = CrossEntropyWithSoftmax (y, P (2, 3) * h, tag = 'criterion')
"""


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train on sequences of several lengths, cut into pieces of three steps; returns parameters."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [
        f"{number} |x {rng.normal():.3f} |y {number % 2} {1 - number % 2}\n"
        for number, length in enumerate([7, 2, 9, 4, 5, 8, 1, 6, 11])
        for _ in range(length)
    ]
    (tmp_path / "a.ctf").write_text("".join(lines))

    def run(options):
        config = f"""command = T ; deviceId = -1 ; makeMode = false ; modelPath = m
            truncated = true ; minibatchSize = 12
            T = [ action = train ; BrainScriptNetworkBuilder = {{ {NETWORK} }}
                SGD = [ maxEpochs = 2 ; learningRatesPerSample = 0.1 ; {options} ]
                reader = [ randomize = false ; truncationLength = 3 ; deserializers = (
                    [ type = CNTKTextFormatDeserializer ; file = a.ctf ; input = [
                        x = [ dim = 1 ; format = dense ]
                        y = [ dim = 2 ; format = dense ] ] ] ) ] ]"""
        run_commands(parse_config(config), Run(say=lambda text: None))
        return {n.name: n.value for n in read_model("m").nodes.values() if n.is_parameter}

    return run


@pytest.mark.parametrize("options", ["numSubminibatches = 3", "maxSamplesInRAM = 4"])
def test_truncated_sequences_go_on_in_their_part(train, options):
    """At the end of an epoch parts become empty; these are left out."""
    whole = train("")
    for name, value in train(options).items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-4, atol=1e-6)


def test_nothing_to_compute_has_no_gradient():
    """Sums over the steps of a loop are zero where there is no step, not what they were before."""
    network = build_section_network(parse_config(f"BrainScriptNetworkBuilder = {{ {NETWORK} }}"))
    net = CntkNet(network.network)
    for length in (4, 0):
        begin = np.array([0, length] if length else [0])
        rows = {"x": np.ones((length, 1)), "y": np.ones((length, 2))}
        streams = {name: Samples(begin, values) for name, values in rows.items()}
        net.forward_backward(Minibatch(streams), "ce")
        found = [np.abs(net.gradient(name)).sum() for name in net.parameters()]
        assert len(found) == 4 and all((value > 0) == (length > 0) for value in found)
