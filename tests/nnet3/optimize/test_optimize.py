"""Passes over compiled computations: equal numbers with every switch, and what each does."""

from dataclasses import fields, replace

import numpy as np
import pytest

from forward_lowering import lower_forward
from nnet3_runs import assert_same, computed, random_net, request_for
from opscope.framework.base.errors import AttributeTypeError
from opscope.framework.ir.desc import INPUT
from opscope.framework.ir.messages import serialize_net
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_computation
from opscope.nnet3.lower.command_dialect import to_desc
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.lower.spans import lower_with_spans
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.network.simple_request import simple_request
from opscope.nnet3.optimize import PASSES, OptimizeOptions, optimize
from opscope.nnet3.optimize.checker import check_computation
from opscope.nnet3.optimize.memory_placement import gather_memory
from opscope.nnet3.run.computer import NnetComputer
from opscope.nnet3.xconfig import xconfig_to_config

TDNN = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=6 output-dim=4
component name=tanh type=TanhComponent dim=2
component-node name=affine component=affine input=Append(Offset(input, -1), input)
dim-range-node name=half input-node=affine dim-offset=2 dim=2
component-node name=tanh component=tanh input=Sum(half, Const(0.5, 2))
output-node name=output input=Append(tanh, Sum(Scale(2.0, half), IfDefined(Offset(tanh, 1))))
"""
RNN = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=7 output-dim=4
component name=sigmoid type=SigmoidComponent dim=4
component-node name=affine component=affine input=Append(input, IfDefined(Offset(sigmoid, -1)))
component-node name=sigmoid component=sigmoid input=affine
output-node name=output input=sigmoid
"""
REQUEST = """\
input input has_deriv=1 0,-1,0 0,0,0 0,1,0 1,-1,0 1,0,0 1,1,0
output output has_deriv=1 0,0,0 0,1,0 1,0,0 1,1,0
need_model_derivative=1
"""
SWITCHES = [field.name for field in fields(OptimizeOptions) if field.type == "bool"]
NONE = OptimizeOptions.none()


def compiled(text, request=REQUEST):
    nnet = Nnet.from_config_text(text, 5)
    return nnet, compile_computation(nnet, ComputationRequest.parse(request))


def only(*switches, **others):
    """Options with nothing else switched on, but what merging may do."""
    chosen = dict.fromkeys(("optimize", "allow_left_merge", "allow_right_merge", *switches), True)
    return replace(NONE, **chosen, **others)


def lines(computation):
    shown = computation.to_kaldi().splitlines()
    return [line.partition(": ")[2] for line in shown if line.startswith("c")]


def types(computation):
    return [command.type for command in computation.commands]


@pytest.mark.parametrize("text", [TDNN, RNN])
def test_passes_change_commands_of_the_computation_that_owns_them_alone(text):
    def told(commands):
        return [str(command) for command in commands]

    _, computation = compiled(text)
    given, before = list(computation.commands), told(computation.commands)
    made = optimize(computation, OptimizeOptions())
    assert computation.commands == given and told(given) == before
    assert {id(command) for command in given}.isdisjoint(map(id, made.commands))
    computation.owns = True
    in_place = optimize(computation, OptimizeOptions())
    assert told(in_place.commands) == told(made.commands)
    assert not {id(command) for command in given}.isdisjoint(map(id, in_place.commands))
    assert told(given) != before


def test_a_computation_that_is_handed_out_owns_no_commands():
    nnet, request = Nnet.from_config_text(RNN, 5), ComputationRequest.parse(REQUEST)
    assert not compile_computation(nnet, request).owns


@pytest.mark.parametrize("seed", range(4))
def test_random_nets_with_and_without_each_pass(seed):
    nnet = random_net(seed)
    request = request_for(nnet, sequences=1 + seed % 2)
    plain = compile_computation(nnet, request)
    check_computation(plain, rewrites=False)
    wanted = computed(plain, nnet)
    generator = np.random.default_rng(seed)
    chosen = [OptimizeOptions()]
    for name in generator.choice(SWITCHES[1:], 2, replace=False).tolist():
        chosen += [OptimizeOptions(**{name: False}), only(name)]
    flips = generator.random((2, len(SWITCHES))) < 0.7
    chosen += [OptimizeOptions(**dict(zip(SWITCHES, flip.tolist(), strict=True))) for flip in flips]
    for options in chosen:
        assert_same(computed(optimize(plain, options, check=True), nnet), wanted)


@pytest.mark.parametrize("seed", [13, 41])
def test_zeros_that_a_merged_backprop_reads_stay(seed):
    """It reads the whole of a matrix of which only some columns were written, and writes to it."""
    nnet = random_net(seed)
    plain = compile_computation(nnet, request_for(nnet))
    assert_same(computed(optimize(plain), nnet), computed(plain, nnet))


@pytest.mark.parametrize("text", [TDNN, RNN], ids=["tdnn", "rnn"])
def test_every_switch(text):
    nnet, plain = compiled(text)
    wanted = computed(plain, nnet)
    for name in SWITCHES:
        for options in (OptimizeOptions(**{name: False}), only(name)):
            assert_same(computed(optimize(plain, options, check=True), nnet), wanted)


def test_passes_leave_the_given_computation():
    _, plain = compiled(RNN)
    before = plain.to_kaldi()
    assert len(optimize(plain).commands) < len(plain.commands)
    assert plain.to_kaldi() == before
    assert lines(optimize(plain, NONE)) == lines(plain)


def test_passes_and_their_switches():
    names = [step.name for step in PASSES]
    assert names[:2] == ["gather_memory", "limit_derivative_times"] and names[-1] == "renumber"
    assert names.index("convert_addition") < names.index("merge_variables")
    known = {field.name for field in fields(OptimizeOptions)}
    switches = {name for step in PASSES for name in step.switches}
    others = {"optimize", "allow_left_merge", "allow_right_merge", "skip"}
    limits = {"min_deriv_time", "max_deriv_time", "max_deriv_time_relative"}
    memory = {"initialize_undefined", "move_sizing_commands", "allocate_from_other"}
    assert switches | others | limits | memory == known


def test_passes_are_skipped_by_name():
    _, plain = compiled(TDNN)
    skipped = optimize(plain, OptimizeOptions(skip=("convert_addition",)), check=True)
    assert lines(skipped) == lines(optimize(plain, OptimizeOptions(convert_addition=False)))
    assert lines(skipped) != lines(optimize(plain))
    for name in ("convert_additions", "renumber"):
        with pytest.raises(AttributeTypeError, match=f"no pass to skip is called '{name}'"):
            optimize(plain, OptimizeOptions(skip=(name,)))


@pytest.mark.parametrize("text", [TDNN, RNN], ids=["tdnn", "rnn"])
def test_commands_for_memory_are_gathered_and_written_out(text):
    _, plain = compiled(text)
    gathered = gather_memory(plain, NONE)
    assert types(gathered).count("AllocMatrices") == types(gathered).count("DeallocMatrices") == 1
    assert not {"AllocMatrix", "DeallocMatrix"} & set(types(gathered))
    assert gathered.explicit().commands == plain.commands
    assert gathered.to_kaldi() == plain.to_kaldi()
    for lowered in (lower_computation, lower_forward, to_desc):
        assert serialize_net(lowered(gathered)) == serialize_net(lowered(plain))
    check_computation(gathered, rewrites=False)


def test_matrices_with_commands_for_their_memory_are_left_alone():
    """As in a computation that was optimized before."""
    nnet, plain = compiled(RNN)
    once = optimize(plain)
    assert "SwapMatrix" in types(once) and "SetConst" in types(once)
    twice = optimize(once)
    check_computation(twice)
    assert_same(computed(twice, nnet), computed(plain, nnet))


def test_additions_to_zeros_become_copies():
    _, plain = compiled(TDNN)
    better = lines(optimize(plain, only("convert_addition")))
    assert "m3(0:3, 0:2).CopyRows(1, m1[0, 3, 1, 4])" in better
    assert "m7 += m5(0:3, 2:3)" in lines(plain)
    assert "m7 += m5(0:3, 2:3)" in better, "it is added to the constant 0.5"


def test_components_run_in_place():
    _, plain = compiled(TDNN)
    assert "tanh.Propagate(NULL, m7, &m9)" in lines(plain)
    better = lines(optimize(plain, only("propagate_in_place"), check=True))
    assert "tanh.Propagate(NULL, m7, &m7)" in better
    text = TDNN.replace("Tanh", "BatchNorm")
    _, plain = compiled(text)
    assert "tanh.Backprop(NULL, [], m9, m10, [component-pointer], &m8)" in lines(plain)
    better = lines(optimize(plain, only("backprop_in_place"), check=True))
    assert "tanh.Backprop(NULL, [], m8, m9, [component-pointer], &m9)" in better


def test_parameters_get_their_derivative_once():
    nnet, plain = compiled(RNN)
    better = optimize(plain, only("consolidate_model_update"))
    assert types(better).count("BackpropNoModelUpdate") == 3
    affine = [c for c in better.commands if c.type == "Backprop" and not c.deriv[3]]
    assert len(affine) == 1 and affine[0] is better.commands[-4]
    rows = [better.submatrices[s].rows for s in affine[0].deriv[:3]]
    assert rows == [6, 0, 6]
    merged = optimize(plain)
    assert types(merged).count("MatrixCopy") < types(better).count("MatrixCopy")


def test_row_lists_are_snipped_and_become_sub_matrices():
    _, plain = compiled(
        "input-node name=input dim=3\n"
        "component name=a type=AffineComponent input-dim=3 output-dim=2\n"
        "component-node name=a component=a input=input\n"
        "output-node name=output input=Sum(a, IfDefined(Offset(a, -1)))\n",
        "input input 0,0,0 0,1,0 0,2,0\noutput output 0,0,0 0,1,0 0,2,0\n",
    )

    def adding(options):
        return [line for line in lines(optimize(plain, options, check=True)) if "m4" in line][2:-1]

    assert adding(NONE) == ["m4.AddRows(1, m3[0, 0, 1])", "m4.AddRows(1, m3[-1, 1, 2])"]
    snipped = adding(only("snip_row_ops"))
    assert snipped[1] == "m4(1:2, 0:1).AddRows(1, m3[1, 2])"
    better = adding(only("optimize_row_ops"))
    assert better[1] == "m4(1:2, 0:1) += m3(1:2, 0:1)"


def test_extended_matrices_are_joined():
    text = (
        "input-node name=input dim=3\n"
        "component name=a type=AffineComponent input-dim=3 output-dim=2\n"
        "component-node name=a component=a input=input\n"
        "component name=b type=AffineComponent input-dim=4 output-dim=2\n"
        "component-node name=b component=b input=Append(a, Offset(a, 1))\n"
        "output-node name=output input=b\n"
    )
    rows = " ".join(f"0,{t},0" for t in range(11))
    out = " ".join(f"0,{t},0" for t in range(10))
    nnet, plain = compiled(text, f"input input {rows}\noutput output {out}\n")
    better = optimize(plain, check=True)
    kept = optimize(plain, OptimizeOptions(extend_matrices=False), check=True)
    assert types(better).count("MatrixCopy") < types(kept).count("MatrixCopy")
    assert any(info.rows == 11 and info.cols == 4 for info in better.matrices)


def test_memory_is_taken_late_and_handed_on():
    _, plain = compiled(TDNN)
    better = optimize(plain, only("move_sizing_commands", "allocate_from_other"), check=True)
    assert "SwapMatrix" in types(better)
    first = types(better).index("AllocMatrix")
    assert types(better)[:first] == ["AcceptInput", "NoOperationPermanent"]


@pytest.mark.parametrize("last", [0, 1, 4])
def test_derivatives_at_other_times_count_as_zero(last):
    """The derivative of the outputs in the range alone, through what lies in the range."""
    nnet = Nnet.from_config_text(RNN, 5)
    rows = " ".join(f"{n},{t},0" for n in (0, 1) for t in range(6))
    request = ComputationRequest.parse(
        f"input input has_deriv=1 {rows}\noutput output has_deriv=1 {rows}\n"
        "need_model_derivative=1\n"
    )
    plain = compile_computation(nnet, request)
    limits = OptimizeOptions(min_deriv_time=0, max_deriv_time=last)
    relative = OptimizeOptions(min_deriv_time=0, max_deriv_time_relative=last - 5)
    found = [computed(optimize(plain, o, check=True), nnet) for o in (limits, relative)]
    assert_same(*found)
    times = np.tile(np.arange(6), 2)
    desc = lower_computation(plain)
    computer = NnetComputer(desc, nnet)
    rng = np.random.default_rng(3)
    computer.accept_input("input", rng.normal(size=(12, 3)))
    computer.run()
    deriv = rng.normal(size=(12, 4))
    computer.accept_input("output", deriv * (times <= last)[:, None])
    computer.run()
    np.testing.assert_allclose(found[0]["model"], computer.model_derivative(), atol=2e-6)
    np.testing.assert_allclose(found[0]["input"], computer.get_output("input"), atol=2e-6)


def test_derivatives_before_a_time_are_left_out():
    nnet = Nnet.from_config_text(RNN, 5)
    rows = " ".join(f"0,{t},0" for t in range(6))
    request = ComputationRequest.parse(
        f"input input has_deriv=1 {rows}\noutput output has_deriv=1 {rows}\n"
        "need_model_derivative=1\n"
    )
    plain = compile_computation(nnet, request)
    better = optimize(plain, only(min_deriv_time=3), check=True)
    assert types(better).count("Backprop") == types(plain).count("Backprop") // 2
    assert not computed(optimize(plain, only(min_deriv_time=9)), nnet)["model"].any()
    found = computed(better, nnet)
    assert not found["input"][:3].any() and found["input"][3:].all()
    everything = computed(plain, nnet)
    np.testing.assert_allclose(found["input"][3:], everything["input"][3:], atol=2e-6)


def statistics_after(nnet, computation):
    """What the components have collected, by component and field, and the model's derivative."""
    desc = lower_computation(computation)
    computer = NnetComputer(desc, nnet)
    rng = np.random.default_rng(1)
    for prefix in ("input.", "output_deriv."):
        for var in sorted(desc.vars, key=lambda var: var.name):
            if var.name.startswith(prefix) and var.kind == INPUT:
                given = rng.normal(size=var.shape)
                computer.accept_input(var.name.removeprefix(prefix), given)
        computer.run()
    computer.store_statistics()
    found = {
        f"{name}/{field}": getattr(component, field)
        for name, component in nnet.components.items()
        for field in ("value_sum", "deriv_sum", "oderiv_sumsq", "count", "oderiv_count")
        if np.size(getattr(component, field, ()))
    }
    return found, computer.model_derivative()


@pytest.mark.parametrize(
    "layer",
    ["fast-lstmp-layer name=l cell-dim=8 recurrent-projection-dim=4", "fast-gru-layer name=l"],
    ids=["lstm", "gru"],
)
def test_statistics_are_those_without_optimization(layer):
    if "gru" in layer:
        layer += " cell-dim=8"
    text = f"input name=input dim=5\n{layer}\noutput-layer name=output dim=4\n"
    found = []
    for options in (NONE, OptimizeOptions()):
        nnet = Nnet.from_config_text(xconfig_to_config(text), 0)
        request = simple_request(nnet, 4, 2, left_context=3, derivatives=True)
        request.store_component_stats = True
        plain = compile_computation(nnet, request)
        found.append(statistics_after(nnet, optimize(plain, options, check=True)))
    (wanted, gradient), (got, optimized) = found
    assert sum(value for name, value in wanted.items() if name.endswith("/count")) > 0
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    # The push of self-repair changes with the steps of an LSTM, or once.
    np.testing.assert_allclose(optimized, gradient, atol=1e-3 * np.abs(gradient).max())


RELU = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=3 output-dim=4
component name=relu type=RectifiedLinearComponent dim=4
component name=norm type=BatchNormComponent dim=4
component-node name=affine component=affine input=input
component-node name=relu component=relu input=affine
component-node name=norm component=norm input=relu
output-node name=output input=norm
"""


def test_compression():
    rows = " ".join(f"0,{t},0" for t in range(6))
    request = f"input input has_deriv=1 {rows}\noutput output has_deriv=1 {rows}\n"
    nnet, plain = compiled(RELU, request + "need_model_derivative=1\n")
    wanted = computed(plain, nnet)
    exact = optimize(plain, OptimizeOptions(), check=True)
    assert [line for line in lines(exact) if "ompress" in line] == [
        "CompressMatrix(m3, 0, uint8, true)",
        "DecompressMatrix(m3)",
    ]
    assert_same(computed(exact, nnet), wanted)
    assert_same(computed(optimize(plain, only(memory_compression_level=1), True), nnet), wanted)
    rough = optimize(plain, OptimizeOptions(memory_compression_level=2), check=True)
    assert any("10, int16" in line for line in lines(rough))
    assert_same(computed(rough, nnet), wanted, 2e-3)
    off = optimize(plain, OptimizeOptions(memory_compression_level=0))
    assert "CompressMatrix" not in types(off)


def test_a_matrix_is_compressed_right_after_the_operator_that_wrote_it():
    rows = " ".join(f"0,{t},0" for t in range(6))
    request = f"input input {rows}\noutput output has_deriv=1 {rows}\nneed_model_derivative=1\n"
    _, plain = compiled(RELU, request)
    net, spans = lower_with_spans(optimize(plain, OptimizeOptions(), check=True))
    written = [op.type for op in net.ops]
    at = written.index("nnet3.compress")
    assert written[at - 1 : at + 2] == ["relu", "nnet3.compress", "nnet3.batch_norm"]
    # Each operator still belongs to one command: this one to that of the rectifier.
    assert [n for begin, end in spans.ranges for n in range(begin, end)] == list(
        range(len(net.ops))
    )
    (own,) = [one for one in spans.ranges if one[0] <= at < one[1]]
    assert "relu" in written[slice(*own)]


def test_an_input_that_is_written_over_keeps_its_value():
    text = (
        "input-node name=input dim=2\n"
        "component name=tanh type=TanhComponent dim=2\n"
        "component-node name=tanh component=tanh input=input\n"
        "output-node name=output input=tanh\n"
    )
    nnet, plain = compiled(text, "input input 0,0,0 0,1,0\noutput output 0,0,0 0,1,0\n")
    better = optimize(plain, check=True)
    assert "tanh.Propagate(NULL, m1, &m1)" in lines(better)
    computer = NnetComputer(lower_computation(better), nnet)
    x = np.array([[0.5, -1.0], [2.0, 0.0]])
    computer.accept_input("input", x)
    for _ in range(2):
        computer._ran_forward = False
        computer.run()
        np.testing.assert_allclose(computer.get_output("output"), np.tanh(x), rtol=1e-6)


def test_an_input_may_be_an_output():
    text = "input-node name=input dim=2\noutput-node name=output input=input\n"
    rows = "0,0,0 0,1,0"
    nnet, plain = compiled(
        text, f"input input has_deriv=1 {rows}\noutput output has_deriv=1 {rows}\n"
    )
    better = optimize(plain, check=True)
    assert len(better.matrices) == 3
    computer = NnetComputer(lower_computation(better), nnet)
    computer.accept_input("input", np.ones((2, 2)))
    computer.run()
    assert (computer.get_output("output") == 1).all()
    computer.accept_input("output", np.full((2, 2), 3.0))
    computer.run()
    assert (computer.get_output("input") == 3).all()


def test_options_that_make_no_sense():
    with pytest.raises(AttributeTypeError, match="want 0, 1 or 2"):
        OptimizeOptions(memory_compression_level=-1)
    with pytest.raises(AttributeTypeError, match="min_deriv_time 3 lies after max_deriv_time 2"):
        OptimizeOptions(min_deriv_time=3, max_deriv_time=2)
