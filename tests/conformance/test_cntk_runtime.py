"""Networks run as CNTK ran them: values, gradients, criteria of its reference results.

The 2017 snapshot of CNTK wrote these numbers; where they would depend on columns without samples
(`Logistic` sums over them) they are left out.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from cntk_data import cases, need
from cntk_exported import slot_filler, slot_minibatches
from opscope.cntk.config import parse_command_line
from opscope.cntk.models.open_model import open_model
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.run.runtime import CntkNet

pytestmark = pytest.mark.skipif(not cases(), reason="no reference results of CNTK")

LEAVES_GAPS_IN = {"oLogistic", "oWeightedLogistic"}


def section(case, name, monkeypatch):
    monkeypatch.chdir(need(case))
    return parse_command_line(["configFile=case.cntk"]).section(name)


def minibatches(part, size=None, epoch_size=None):
    reader = create_reader(part.section("reader"))
    with reader:
        reader.start_minibatch_loop(size or part.int("minibatchSize", 100), 0, epoch_size)
        while (minibatch := reader.get_minibatch()) is not None:
            yield minibatch


def open_net(case, model, dtype=None):
    return CntkNet(open_model(need(case, model)).network, dtype=dtype)


def rows(value):
    """A row for each sample; one for a value without samples."""
    return value.data.reshape(1 if value.offsets is None else len(value.data), -1)


@pytest.mark.parametrize(
    ("case", "model"),
    [
        ("01_simplebuilder_dnn", "final.model"),
        ("02_ndl_macros_dnn", "final.model"),
        ("03_bs_language_dnn", "final.model"),
        ("04_mel_edit", "final.model"),
        ("06_ctf_sparse_streams", "final.model"),
        ("09_htk_lstm_truncated_ndl", "final.model"),
        ("11_bidirectional_rnn", "final.model"),
        ("12_atis_layers", "final.model"),
        ("14_conv_pool_layers", "final.model"),
        ("16_batchnorm_inference", "init.model"),
        ("36_ctf_truncated_bptt", "final.model"),
    ],
)
def test_written_outputs(case, model, monkeypatch):
    part, net = section(case, "Write", monkeypatch), open_net(case, model)
    wanted = {f.name[8:-4]: np.loadtxt(f, ndmin=2) for f in need(case).glob("outputs.*.txt")}
    found = {name: [] for name in wanted}
    for minibatch in minibatches(part, epoch_size=part.int("epochSize", 0) or None):
        for name, value in net.forward(minibatch, wanted).items():
            found[name].append(rows(value))
    for name, parts in found.items():
        np.testing.assert_allclose(np.concatenate(parts), wanted[name], rtol=1e-4, atol=2e-6)


class TestNodes:
    """Case 33: a network with a hundred nodes, and one step of plain SGD with rate 0.01."""

    case = "33_nodes"

    def minibatch(self, monkeypatch):
        (found,) = minibatches(section(self.case, "Train", monkeypatch), 100)
        return found

    def test_values(self, monkeypatch):
        minibatch, net = self.minibatch(monkeypatch), open_net(self.case, "init.model")
        wanted = {f.name[8:-4]: np.loadtxt(f, ndmin=2) for f in need(self.case).glob("out*.txt")}
        assert len(wanted) == 100
        for name, value in net.forward(minibatch, wanted).items():
            if name not in LEAVES_GAPS_IN:
                np.testing.assert_allclose(
                    rows(value), wanted[name], rtol=1e-5, atol=2e-6, err_msg=name
                )

    def test_gradients(self, monkeypatch):
        minibatch, net = self.minibatch(monkeypatch), open_net(self.case, "init.model")
        trained = open_model(need(self.case, "final.model")).network
        net.forward_backward(minibatch, "total")
        assert len(net.parameters()) == 88
        for name in net.parameters():
            if name.startswith("oLogPlus."):  # CNTK's is not its derivative, ours is: see below
                continue
            wanted = (net.get(name) - trained.find(name).value) / 0.01
            scale = max(1.0, np.abs(wanted).max())
            np.testing.assert_allclose(
                net.gradient(name) / scale, wanted / scale, atol=2e-4, err_msg=name
            )

    def test_gradients_in_double_precision(self, monkeypatch):
        minibatch = self.minibatch(monkeypatch)
        net = open_net(self.case, "init.model", np.float64)
        criterion = "t_oLogPlus"
        net.forward_backward(minibatch, criterion)
        (name,) = (n for n in net.parameters() if n.startswith("oLogPlus."))
        value, step = net.get(name), 1e-6
        direction = np.random.default_rng(0).normal(size=value.shape)
        sides = []
        for sign in (1, -1):
            net.set(name, value + sign * step * direction)
            sides.append(net.forward(minibatch, [criterion])[criterion].scalar)
        slope = (sides[0] - sides[1]) / (2 * step)
        assert slope == pytest.approx((net.gradient(name) * direction).sum(), rel=1e-6)

    def test_steps_one_by_one(self, monkeypatch):
        minibatch, names = self.minibatch(monkeypatch), ("oAccumulate", "oDecayBack", "oToggle")
        whole = open_net(self.case, "init.model")
        fast = whole.forward(minibatch, names)
        whole.forward_backward(minibatch, "total")
        monkeypatch.setenv("OPSCOPE_RECURRENT", "steps")
        steps = open_net(self.case, "init.model")
        for name, value in steps.forward(minibatch, names).items():
            np.testing.assert_allclose(value.data, fast[name].data, rtol=1e-6, atol=1e-6)
        steps.forward_backward(minibatch, "total")
        for name in whole.parameters():
            np.testing.assert_allclose(
                steps.gradient(name), whole.gradient(name), rtol=2e-5, atol=2e-5
            )


@pytest.mark.parametrize(
    ("case", "criterion", "size", "rate", "momentum", "count"),
    [
        ("01_simplebuilder_dnn", "CrossEntropyWithSoftmax", 50, 0.8 / 50, 0.9, 20),
        ("11_bidirectional_rnn", "total", 20, 0.3 / 20, 0.8, 8),
        ("36_ctf_truncated_bptt", "total", 12, 0.05, np.exp(-12 / 20), 12),
    ],
)
def test_first_epoch(case, criterion, size, rate, momentum, count, monkeypatch):
    """Criteria of every minibatch, with momentum done here: s = (1 - m) rate g + m s."""
    part, net = section(case, "Train", monkeypatch), open_net(case, "init.model")
    pattern = rf"Minibatch\[.*? {re.escape(criterion)} = ([0-9.]+)"
    wanted = re.findall(pattern, need(case, "log.txt").read_text())[:count]
    steps, found = {}, []
    for minibatch in minibatches(part, size):
        found.append(net.forward_backward(minibatch, criterion)[criterion] / minibatch.samples)
        m = momentum ** (minibatch.columns / size)
        for name in net.parameters():
            steps[name] = (1 - m) * rate * net.gradient(name) + m * steps.get(name, 0)
            net.set(name, net.get(name) - steps[name])
    assert found == pytest.approx([float(text) for text in wanted], rel=1e-4)


def test_slot_filling():
    """A model that CNTK trained, on all of its test data."""
    net = CntkNet(open_model(slot_filler()).network)
    words, errors, entropy = 0, 0.0, 0.0
    for minibatch in slot_minibatches(1000):
        values = net.forward(minibatch, ["errs", "ce"])
        words += minibatch.samples
        errors += values["errs"].scalar
        entropy += values["ce"].scalar
    assert words == 10984
    assert round(100 * errors / words, 3) == 2.039
    assert entropy / words == pytest.approx(0.12888690, rel=1e-5)
