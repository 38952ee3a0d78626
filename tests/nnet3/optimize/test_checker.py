"""The checker of computations: good ones pass, every kind of damage is named."""

import re

import numpy as np
import pytest

from nnet3_runs import random_net, request_for
from opscope.framework.base.errors import OpscopeError, ShapeError
from opscope.nnet3.compiler.command import Command
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_computation
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import OptimizeOptions, optimize, passes
from opscope.nnet3.optimize.checker import check_computation

NET = """\
input-node name=input dim=3
component name=a type=AffineComponent input-dim=6 output-dim=4
component name=relu type=RectifiedLinearComponent dim=4
component name=norm type=BatchNormComponent dim=4
component-node name=a component=a input=Append(Offset(input, -1), input)
component-node name=relu component=relu input=a
component-node name=norm component=norm input=relu
output-node name=output input=Sum(norm, IfDefined(Offset(norm, -1)))
"""
REQUEST = """\
input input has_deriv=1 0,-1,0 0,0,0 0,1,0
output output has_deriv=1 0,0,0 0,1,0
need_model_derivative=1
"""


@pytest.fixture
def computation():
    nnet = Nnet.from_config_text(NET, 5)
    return compile_computation(nnet, ComputationRequest.parse(REQUEST))


def place(computation, kind, nth=0):
    return [i for i, c in enumerate(computation.commands) if c.type == kind][nth]


def change(computation, kind, nth=0, **values):
    number = place(computation, kind, nth)
    computation.commands[number] = computation.commands[number].changed(**values)
    return number


def refused(computation, text, kind=OpscopeError, rewrites=True):
    with pytest.raises(kind, match=re.escape(text)):
        check_computation(computation, rewrites=rewrites)


def test_good_computations(computation):
    check_computation(computation, rewrites=False)
    check_computation(optimize(computation))
    check_computation(optimize(computation, OptimizeOptions(memory_compression_level=2)))


def test_numbers_of_sub_matrices(computation):
    number = change(computation, "MatrixAdd", target=999)
    refused(computation, f"command c{number} (MatrixAdd): there is no sub-matrix 999")


def test_sub_matrices_lie_in_their_matrix(computation):
    computation.submatrices[1] = computation.submatrices[1]._replace(cols=99)
    refused(computation, "columns 0:99 of m", ShapeError)


def test_unknown_commands(computation):
    computation.commands.append(Command("Jump"))
    refused(computation, "there is no such command")


def test_sizes(computation):
    number = change(computation, "MatrixAdd", source=computation.commands[0].target)
    refused(computation, f"command c{number} (MatrixAdd): rows of target and source", ShapeError)


def test_a_command_on_itself(computation):
    target = computation.commands[place(computation, "MatrixAdd")].target
    change(computation, "MatrixAdd", source=target)
    refused(computation, "target and source are the same")


def test_rows_out_of_range(computation):
    rows = computation.commands[place(computation, "AddRows")].rows.copy()
    rows[0] = 3
    number = change(computation, "AddRows", rows=rows)
    refused(computation, f"c{number} (AddRows): row 3 of a matrix of 3 rows", ShapeError)
    change(computation, "AddRows", rows=rows[1:])
    refused(computation, "entries of its list and rows of its target: 1 and 2", ShapeError)


def test_ranges_out_of_range(computation):
    at = place(computation, "AddRows")
    ranges = np.array([[0, 2], [2, 4]])
    computation.commands[at] = computation.commands[at].changed(type="AddRowRanges", rows=ranges)
    refused(computation, "row 1 adds the rows 2:4 of 3", ShapeError)


def test_pairs(computation):
    at = place(computation, "AddRows")
    command = computation.commands[at]
    for pairs, text in (
        ([[command.source, 0], [-1, 2]], "a row of no sub-matrix that is not -1"),
        ([[command.source, 0], [77, 2]], "there is no sub-matrix 77"),
        ([[command.target, 0], [-1, -1]], "it reads and writes the same sub-matrix"),
        ([[command.source, 9], [-1, -1]], "row 9 of a matrix of 3 rows"),
    ):
        rows = np.array(pairs, np.int32)
        computation.commands[at] = command.changed(type="AddRowsMulti", rows=rows)
        refused(computation, text)
    rows = np.array([[command.source, 1]] * 2, np.int32)
    computation.commands[at] = command.changed(type="AddToRowsMulti", rows=rows)
    refused(computation, "two rows go to the same row")


def test_components(computation):
    number = change(computation, "Propagate", node=0)
    refused(computation, f"c{number} (Propagate): node 0 has no component")


def test_columns_of_components(computation):
    relu = computation.commands[place(computation, "Propagate", 1)]
    change(computation, "Propagate", source=relu.source)
    refused(computation, "columns of the input: 4 and 6", ShapeError)


def test_what_cannot_run_in_place():
    nnet = Nnet.from_config_text(
        "input-node name=input dim=2\n"
        "component name=a type=AffineComponent input-dim=2 output-dim=2\n"
        "component-node name=a component=a input=input\n"
        "output-node name=output input=a\n",
        5,
    )
    rows = "0,0,0 0,1,0"
    request = f"input input has_deriv=1 {rows}\noutput output has_deriv=1 {rows}\n"
    computation = compile_computation(nnet, ComputationRequest.parse(request))
    at = place(computation, "Propagate")
    command = computation.commands[at]
    computation.commands[at] = command.changed(source=command.target)
    refused(computation, "a AffineComponent cannot run in place")
    computation.commands[at] = command
    back = computation.commands[place(computation, "Backprop")]
    change(computation, "Backprop", deriv=(*back.deriv[:3], back.deriv[2]))
    refused(computation, "the backprop of a AffineComponent cannot run in place")


def test_what_backprop_needs(computation):
    at = place(computation, "Backprop", 2)
    _, out, out_deriv, in_deriv = computation.commands[at].deriv
    change(computation, "Backprop", 2, deriv=(0, out, out_deriv, in_deriv))
    refused(computation, "the value of its input is missing")
    change(computation, "Backprop", 2, deriv=(0, 0, 0, 0))
    refused(computation, "there is no output derivative")


def test_backprop_without_effect(computation):
    relu = computation.commands[place(computation, "Backprop", 1)]
    change(computation, "Backprop", 1, deriv=(*relu.deriv[:3], 0))
    refused(computation, "it has no effect")


def test_memos(computation):
    number = place(computation, "Propagate", 2)
    change(computation, "Backprop", use_memo=False)
    refused(computation, f"command c{number} (Propagate): no backprop uses the memo")
    change(computation, "Backprop", use_memo=True)
    change(computation, "Propagate", 2, use_memo=False)
    refused(computation, "has left no memo")


def test_memory(computation):
    at = place(computation, "AllocMatrix")
    command = computation.commands[at]
    computation.commands[at] = Command("NoOperation")
    refused(computation, "is used without memory")
    computation.commands[at : at + 1] = [command, command]
    refused(computation, "was given memory before")
    computation.commands[at] = Command.dealloc_matrix(command.target)
    refused(computation, "has no memory to give up")


def test_use_after_release(computation):
    at = place(computation, "Backprop")
    value = computation.commands[at].deriv[1]
    computation.commands.insert(at, Command.dealloc_matrix(value))
    refused(computation, "is used after its memory was given up")


def test_whole_matrices(computation):
    part = computation.commands[place(computation, "AddRows")].target
    change(computation, "SetConst", target=part)
    change(computation, "AllocMatrix", target=part)
    refused(computation, "is not a whole matrix")


def test_reading_what_nothing_wrote(computation):
    zeroing = place(computation, "SetConst")
    computation.commands[zeroing] = Command("NoOperation")
    refused(computation, "is read before it is written")


def test_writing_what_was_read(computation):
    add = computation.commands[place(computation, "MatrixAdd")]
    marker = place(computation, "NoOperationMarker")
    computation.commands.insert(marker, Command.set_const(add.source, 2.0))
    check_computation(computation)
    refused(computation, "is changed after it was read", rewrites=False)


def test_compression(computation):
    packed = optimize(computation, OptimizeOptions(memory_compression_level=2))
    at = place(packed, "CompressMatrix")
    packed.commands[at] = packed.commands[at].changed(storage="int4")
    refused(packed, "nothing is stored as 'int4'")
    packed.commands[at] = packed.commands[at].changed(storage="int16", alpha=0.0)
    refused(packed, "a range of 0 in int16")
    packed.commands[at] = Command("NoOperation")
    refused(packed, "is not compressed")


def test_compressed_matrices_are_restored(computation):
    packed = optimize(computation, OptimizeOptions(memory_compression_level=2))
    packed.commands[place(packed, "DecompressMatrix")] = Command("NoOperation")
    refused(packed, "is not restored before its next use")


def test_the_pass_is_named(computation, monkeypatch):
    def broken(made, options):
        result = made.copy()
        change(result, "MatrixAdd", source=0)
        return result

    monkeypatch.setattr(passes, "PASSES", (passes.Pass("broken", broken),))
    with pytest.raises(OpscopeError, match="after the pass broken: command c"):
        optimize(computation, check=True)
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    with pytest.raises(OpscopeError, match="after the pass broken"):
        optimize(computation)


@pytest.mark.parametrize("seed", range(6))
def test_damage_at_random_is_refused_or_harmless(seed):
    """Whatever numbers a computation holds, the checker answers with the package's errors."""
    rng = np.random.default_rng(seed)
    nnet = random_net(seed)
    plain = compile_computation(nnet, request_for(nnet, frames=2, sequences=1))
    good = optimize(plain) if seed % 2 else plain
    count = 0
    for _ in range(60):
        damaged = good.copy()
        at = int(rng.integers(len(good.commands)))
        field = rng.choice(["target", "source", "node", "precomputed", "step", "type"])
        value = int(rng.integers(-2, len(good.submatrices) + 2))
        if field == "type":
            value = good.commands[int(rng.integers(len(good.commands)))].type
        damaged.commands[at] = damaged.commands[at].changed(**{str(field): value})
        try:
            check_computation(damaged)
        except OpscopeError as error:
            assert re.match(r"command c\d+ \(", str(error))
            count += 1
    assert count > 8
