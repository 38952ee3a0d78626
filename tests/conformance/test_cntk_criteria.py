"""Criteria of images and of a class-based language model as CNTK's log has them."""

from __future__ import annotations

import re

import pytest

from cntk_data import cases, need
from opscope.cntk.config import parse_command_line
from opscope.cntk.models.open_model import open_model
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.run.runtime import CntkNet

pytestmark = pytest.mark.skipif(not cases(), reason="no reference results of CNTK")


def minibatches(case, section, size, monkeypatch):
    monkeypatch.chdir(need(case))
    part = parse_command_line(["configFile=case.cntk"]).section(section)
    with create_reader(part.section("reader")) as reader:
        reader.start_minibatch_loop(size, 0, None)
        while (minibatch := reader.get_minibatch()) is not None:
            yield minibatch


@pytest.mark.parametrize(
    ("case", "model"),
    [("14_conv_pool_layers", "final.model"), ("16_batchnorm_inference", "init.model")],
)
def test_action_test(case, model, monkeypatch):
    log = need(case, "log.txt").read_text()
    wanted = re.search(r"Final Results: .*err = ([0-9.]+) \* 16; ce = ([0-9.]+) \* 16", log)
    net = CntkNet(open_model(need(case, model)).network)
    totals = {"err": 0.0, "ce": 0.0}
    for minibatch in minibatches(case, "Test", 8, monkeypatch):
        for name, value in net.forward(minibatch, totals).items():
            totals[name] += value.scalar
    found = [totals[name] / 16 for name in ("err", "ce")]
    assert found == pytest.approx([float(text) for text in wanted.groups()], rel=1e-6)


@pytest.mark.parametrize(
    ("case", "criterion", "size", "rate", "momentum"),
    [
        ("14_conv_pool_layers", "ce", 16, 0.4 / 16, 0.9),
        ("17_lm_class_rnn", "TrainNodeClassBasedCrossEntropy", 30, 0.1, 0.0),
    ],
)
def test_first_epoch(case, criterion, size, rate, momentum, monkeypatch):
    """The criterion of every minibatch from the given initial model on."""
    log = need(case, "log.txt").read_text()
    pattern = rf"Epoch\[ 1 of \d+\]-Minibatch\[.*? {criterion} = ([0-9.]+) \* (\d+)"
    wanted = [(float(value), int(count)) for value, count in re.findall(pattern, log)]
    net, steps, found = CntkNet(open_model(need(case, "init.model")).network), {}, []
    for minibatch in minibatches(case, "Train", size, monkeypatch):
        value = net.forward_backward(minibatch, criterion)[criterion]
        found.append((value / minibatch.samples, minibatch.samples))
        for name in net.parameters():
            steps[name] = (1 - momentum) * rate * net.gradient(name) + momentum * steps.get(name, 0)
            net.set(name, net.get(name) - steps[name])
    assert [count for _, count in found] == [count for _, count in wanted]
    assert [value for value, _ in found] == pytest.approx([value for value, _ in wanted], rel=1e-5)
