"""Computations of several segments: equal numbers, what each takes, refusals, the op list."""

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError, VariableError
from opscope.framework.ir.desc import INPUT
from opscope.framework.ir.messages import from_message, parse_net, serialize_net
from opscope.framework.runtime.plain_net import PlainNet
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.looped import compile_looped, looped_requests
from opscope.nnet3.inference.pipeline import compile_segments
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.segment_computer import SegmentComputer

LSTM = """\
input-node name=input dim=3
component name=a type=NaturalGradientAffineComponent input-dim=7 output-dim=20
component name=l type=LstmNonlinearityComponent cell-dim=4
component-node name=a component=a input=Append(input, IfDefined(Offset(m, -1)))
component-node name=l component=l input=Append(a_gates, IfDefined(Offset(c, -1)))
dim-range-node name=a_gates input-node=a dim-offset=0 dim=16
dim-range-node name=c input-node=l dim-offset=0 dim=4
dim-range-node name=m input-node=l dim-offset=4 dim=4
output-node name=output input=m
"""
LENGTHS = (2, 4, 1)  # frames of the segments, which read the states of those before


def rows(name, ts, has_deriv=False):
    return IoSpecification(name, np.array([(0, t, 0) for t in ts]), has_deriv)


def requests():
    begin, listed = 0, []
    for length in LENGTHS:
        times = range(begin, begin + length)
        listed.append(ComputationRequest([rows("input", times)], [rows("output", times)]))
        begin += length
    return listed


@pytest.mark.parametrize("optimize", [True, False])
def test_segments_give_what_the_whole_gives(optimize):
    nnet = Nnet.from_config_text(LSTM, 1)
    desc = compile_segments(nnet, requests(), optimize)
    saved = from_message(parse_net(serialize_net(desc)))
    computer = SegmentComputer(saved, nnet)
    assert computer.num_segments == 3
    for seed in (0, 1):
        x = np.random.default_rng(seed).standard_normal((sum(LENGTHS), 3)).astype(np.float32)
        parts = []
        for piece in np.split(x, np.cumsum(LENGTHS)[:-1]):
            computer.accept_input("input", piece)
            computer.run()
            parts.append(computer.get_output("output"))
        whole = ChunkComputer(nnet).compute(x)
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-6)
        with pytest.raises(VariableError, match="only 3 segments"):
            computer.run()
        computer.reset()


def test_a_plain_run_passes_over_the_marks():
    nnet = Nnet.from_config_text(LSTM, 1)
    desc = compile_segments(nnet, requests())
    assert [op.type for op in desc.ops].count("nnet3.mark") == 2
    names = {var.name for var in desc.vars if var.kind == INPUT}
    assert names == {"input.input", "input.input:1", "input.input:2"}
    computer = SegmentComputer(desc, nnet)
    scope = computer._scope
    x = np.ones((sum(LENGTHS), 3), np.float32)
    for name, part in zip(sorted(names), np.split(x, np.cumsum(LENGTHS)[:-1]), strict=True):
        scope.var(name).set(part)
    PlainNet(desc).run(scope)
    got = [scope.numpy(name) for name in ("output.output", "output.output:1", "output.output:2")]
    whole = ChunkComputer(nnet).compute(x)
    np.testing.assert_allclose(np.concatenate(got), whole, rtol=0, atol=1e-6)


def test_refusals():
    nnet, listed = Nnet.from_config_text(LSTM, 1), requests()
    listed[1].outputs[0].has_deriv = True
    listed[1].inputs[0].has_deriv = True
    with pytest.raises(ShapeError, match="derivatives are computed for one request alone"):
        compile_segments(nnet, listed)
    listed = requests()
    listed[2].store_component_stats = True
    with pytest.raises(ShapeError, match="all or none of the requests store statistics"):
        compile_segments(nnet, listed)


def test_what_only_a_later_segment_computes_is_not_read():
    nnet = Nnet.from_config_text(LSTM.replace(", -1)", ", 1)"), 1)
    with pytest.raises(OpscopeError, match="'a_input' reads whatever later rows are there"):
        compile_segments(nnet, requests())


@pytest.mark.parametrize("lost", ["segment", "label"])
def test_a_loop_that_is_none_is_refused(lost):
    nnet = Nnet.from_config_text(LSTM, 1)
    desc = compile_looped(nnet.topology(), looped_requests(2, *nnet.context()))
    desc.ops = [op for op in desc.ops if op.type != "nnet3.mark" or op.attrs["kind"] != lost]
    with pytest.raises(FormatError, match="make no loop"):
        SegmentComputer(desc, nnet)
