"""Commands as a OpList: the way there and back, and what is refused."""

from dataclasses import fields, replace

import numpy as np
import pytest

from damage import flips
from opscope.framework.base.errors import FormatError
from opscope.framework.ir.messages import parse_net, serialize_net, to_message
from opscope.framework.ir.printer import net_text
from opscope.nnet3.compiler.command import Command
from opscope.nnet3.components.base.time_offsets import OffsetRows
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_computation
from opscope.nnet3.lower import command_dialect
from opscope.nnet3.lower.command_dialect import from_desc, to_desc
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import optimize

NET = """\
input-node name=input dim=3
component name=tdnn type=TdnnComponent input-dim=3 output-dim=4 time-offsets=-1,0
component name=tanh type=TanhComponent dim=2
component-node name=tdnn component=tdnn input=input
dim-range-node name=half input-node=tdnn dim-offset=2 dim=2
component-node name=tanh component=tanh input=Sum(half, Const(0.5, 2))
output-node name=output input=Append(tanh, Sum(Scale(2.0, half), IfDefined(Offset(tanh, 1))))
"""
REQUEST = """\
input input has_deriv=1 0,-1,0 0,0,0 0,1,0 1,-1,0 1,0,0 1,1,0
output output has_deriv=1 0,0,0 0,1,0 1,0,0 1,1,0
need_model_derivative=1
"""


@pytest.fixture(params=[False, True], ids=["plain", "optimized"])
def computation(request):
    nnet = Nnet.from_config_text(NET, 5)
    made = compile_computation(nnet, ComputationRequest.parse(REQUEST))
    return optimize(made) if request.param else made


def shown(command):
    rows = command.rows if command.rows is None else command.rows.tolist()
    return replace(command, rows=rows)


def test_there_and_back(computation):
    desc = parse_net(serialize_net(to_desc(computation)))
    back = from_desc(desc, computation.topology)
    assert back.to_kaldi() == computation.to_kaldi()
    assert back.submatrices == computation.submatrices
    assert list(map(shown, back.commands)) == list(map(shown, computation.commands))
    assert back.precomputed == computation.precomputed == [None, OffsetRows((0, 2), 1, 4)]
    assert to_message(to_desc(back)) == desc
    assert serialize_net(lower_computation(back)) == serialize_net(lower_computation(computation))
    assert len(from_desc(desc, None).commands) == len(computation.commands)


def test_text(computation):
    text = net_text(to_desc(computation))
    assert 'nnet3.command.propagate(x=m3, indexes=indexes1) -> out=m5  {node="tdnn", step=2' in text
    assert "nnet3.command.no_operation_marker() -> ()  #backward" in text
    assert "view=m5[:4, 2:4]" in text


def test_pairs_of_matrices_and_rows():
    nnet = Nnet.from_config_text(NET, 5)
    computation = compile_computation(nnet, ComputationRequest.parse(REQUEST))
    pairs = np.array([[3, 1], [-1, -1], [1, 0], [3, 0]], np.int32)
    computation.commands += [
        Command(kind, target=5, alpha=2.0, rows=pairs)
        for kind in ("AddRowsMulti", "CopyRowsMulti", "AddToRowsMulti")
    ]
    back = from_desc(to_desc(computation), computation.topology)
    assert list(map(shown, back.commands)) == list(map(shown, computation.commands))


def test_every_field_of_a_command_is_kept():
    slots = {"type", "node", "target", "source", "precomputed", "deriv"}
    kept = {field.name for field in fields(Command)}
    assert kept == slots | set(command_dialect._ATTRS)


def refused(desc, topology, message):
    with pytest.raises(FormatError, match=message):
        from_desc(desc, topology)


def test_refusals(computation):
    topology = computation.topology
    desc = to_desc(computation)
    refused(lower_computation(computation), topology, "is no list of nnet3 commands")

    def changed(index, field, value):
        copy = desc.copy()
        op = copy.ops[index]
        if field == "type":
            op = op.changed(type=value)
        elif field == "node":
            op = op.changed(attrs={**op.attrs, "node": value})
        else:
            op = op.changed(inputs={**op.inputs, field: (value,)})
        copy.ops[index] = op
        return copy

    types = [op.type for op in desc.ops]
    propagate = types.index("nnet3.command.propagate")
    where = rf"operator {propagate} \(nnet3.command.propagate\): "
    refused(changed(propagate, "x", "m99"), topology, where + "there is no 'm99'")
    refused(
        changed(propagate, "node", "tdnn9"), topology, where + "the network has no node 'tdnn9'"
    )
    wrong = changed(propagate, "type", "nnet3.command.propagat")
    refused(wrong, topology, "no command of that name")
    desc.vars.append(desc.vars[0])
    refused(desc, topology, "two variables have the same name")


def test_a_view_must_lie_within_its_matrix(computation):
    desc = to_desc(computation)
    at, view = next((n, var) for n, var in enumerate(desc.vars) if var.view is not None)
    desc.vars[at] = view.changed(view=view.view._replace(col_end=99))
    refused(desc, computation.topology, rf"'{view.name}': rows .* do not lie within")


def test_damaged_files(computation):
    data = serialize_net(to_desc(computation))
    read = 0
    for damaged in flips(data, np.random.default_rng(0)):
        try:
            from_desc(parse_net(damaged), computation.topology)
            read += 1
        except FormatError:
            pass
    assert read
