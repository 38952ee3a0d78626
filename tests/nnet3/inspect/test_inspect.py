"""`nnet3.compile`: what each stage holds and how it prints, requests that it takes and refuses."""

import inspect
import re
import subprocess
import sys

import numpy as np
import pytest

from opscope import nnet3
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.nnet3.compiler.memory_use import memory_use
from opscope.nnet3.graph.graph import NotComputableError
from opscope.nnet3.inference.looped import loop_computation, looped_requests
from opscope.nnet3.inspect.cindexes import Cindex

CONFIG = """\
input-node name=ivector dim=3
input-node name=input dim=4
component name=a type=AffineComponent input-dim=11 output-dim=5
component-node name=a component=a input=Append(Offset(input,-1), Offset(input,1), \
ReplaceIndex(ivector,t,0))
component name=r type=NoOpComponent dim=5
component-node name=r component=r input=Sum(a, IfDefined(Offset(r,-1)))
dim-range-node name=part input-node=r dim-offset=2 dim=3
output-node name=output input=Round(part, 3)
"""
LINE = "n=0:1 input=-1:6 ivector=0 output=0:5"


@pytest.fixture(scope="module")
def nnet():
    return nnet3.Nnet.from_config_text(CONFIG, 0)


@pytest.fixture(scope="module")
def compiled(nnet):
    return nnet3.compile(nnet, LINE)


def test_the_function_is_there_whatever_was_imported():
    code = (
        "import opscope.nnet3.compiler.compiler, opscope.nnet3.inspect.compiled, opscope.nnet3;"
        "assert callable(opscope.nnet3.compile), opscope.nnet3.compile"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert inspect.isfunction(nnet3.compile)


def test_summary(compiled):
    assert compiled.summary().splitlines() == [
        "request    n=0:1 input=-1:6 ivector=0 output=0:5",
        "network    8 nodes, 2 components, 60 parameters; test mode",
        "cindexes   66 of 8 nodes",
        "order      7 epochs, 15 steps",
        "plain      55 commands, 13 matrices, 1.3 kB at most",
        "optimized  27 commands, 6 matrices, 632 B at most",
    ]
    assert str(compiled).startswith(f"{compiled.summary()}\n\nmatrices\n")
    assert repr(compiled) == f"<CompiledRequest {LINE}>"


def test_cindexes(compiled):
    cindexes = compiled.cindexes
    assert str(cindexes).splitlines() == [
        "66 cindexes, 108 before pruning",
        "ivector   2  0:1,0        given",
        "input    16  0:1@-1:6     given",
        "a_input   8  0:1@0:3      reads ivector at 0; input t-1,t+1",
        "a         8  0:1@0:3      reads a_input t",
        "r_input   6  0:1@1:3      reads a t; r t-1",
        "r_input   2  0:1,0        reads a t",
        "r         8  0:1@0:3      reads r_input t",
        "part      4  0:1,0;0:1,3  reads r t",
        "output    6  0:1@0:2      reads part at 0",
        "output    6  0:1@3:5      reads part at 3",
    ]
    assert cindexes["part"].tolist() == [[0, 0, 0], [1, 0, 0], [0, 3, 0], [1, 3, 0]]
    assert cindexes.dependencies("r_input", t=2, n=1) == [Cindex("a", 1, 2), Cindex("r", 1, 1)]
    assert cindexes.dependencies("input", t=2) == []
    assert cindexes.nodes[:2] == ["ivector", "input"] and len(cindexes) == 66


def test_cindexes_in_kaldis_notation(compiled):
    lines = compiled.cindexes.to_kaldi().splitlines()
    assert lines[0] == "[ ivector(0,0) ] [ ivector(1,0) ] "
    assert lines[2].startswith("[ a_input(0,0) -> ivector(0,0), input(0,-1), input(0,1) ] [ a_inp")
    assert lines[4].endswith("[ r_input(1,3) -> a(1,3), r(1,2) ] ")
    wide = "input-node name=input dim=1\noutput-node name=output input=Append(input"
    wide += "".join(f", Offset(input, {t})" for t in range(1, 8)) + ")\n"
    many = nnet3.compile(nnet3.Nnet.from_config_text(wide), "n=0:1 input=0:99 output=0:60")
    given, asked = many.cindexes.to_kaldi().splitlines()
    assert given.endswith("[ input(1,24) ] ...") and given.count("[") == 50
    first = ", ".join(f"input(0,{t})" for t in range(5))
    assert asked.startswith(f"[ output(0,0) -> {first}, ... ] [ output(1,0) -> ")


def test_computable(compiled):
    assert compiled.computable
    lines = str(compiled.computable).splitlines()
    assert lines[0] == "all outputs can be computed"
    assert "input    not computable  0:1@-3:-2" in lines
    assert "r        not computable  0:1,-1" in lines
    assert compiled.computable.rows("r", computable=False).tolist() == [[0, -1, 0], [1, -1, 0]]
    told = compiled.computable.to_kaldi()
    wanted = "a(0, 0, 0)[kComputable], r(0, -1, 0)[kNotComputable]\n"
    assert f"r_input(0, 0, 0) is kComputable, dependencies: {wanted}" in told


def test_order(compiled):
    assert compiled.epochs.to_kaldi() == "node_to_epoch: [1, 0, 2:4, 4:6]\n"
    assert str(compiled.epochs).splitlines()[4] == "epoch 4  r_input, r  (a loop)"
    assert compiled.epochs[4] == ["r_input", "r"] and compiled.epochs.of("part") == 5
    phases = str(compiled.phases).splitlines()
    assert phases[0] == "phase 0  given  ivector 0:1,0; input 0:1@-1:6"
    assert phases[5] == "phase 5  epoch 4  r_input 0:1,1"
    assert compiled.phases.epochs[:4] == [-1, 2, 3, 4]
    assert compiled.phases[11]["part"].tolist() == compiled.cindexes["part"].tolist()
    steps = str(compiled.steps).splitlines()
    assert steps[1] == "step 1   input    16 x 4  given                   0:1,-1:6"
    assert steps[12] == "step 12  part      2 x 3  columns 2:4 of step 11  0:1,3"
    assert compiled.steps.to_kaldi().splitlines()[14] == "step 14: output[(0,0:5), (1,0:5)]"


def test_commands_in_words(compiled):
    lines = str(compiled.plain).splitlines()
    assert lines[:2] == ["matrices", "  m1    2 x 3  value  ivector  0:1,0"]
    assert "forward" not in lines and "backward" not in lines
    words = [line.strip().split("  ", 1)[1] for line in lines[lines.index("commands") + 1 :]]
    assert words[:3] == ["m1 = given 'ivector'", "m2 = given 'input'", "take m3, 8 x 11"]
    assert "m3[:, 0:3] += m2 rows 0,8,1,9,2,10,3,11" in words and "m4 = a(m3)" in words
    assert "give m13 as 'output'" in words and "m7 += m4 rows 2:3" in words
    kaldi = compiled.plain.to_kaldi().partition("forward commands\n")[2].splitlines()
    assert len(words) == len(kaldi)
    taken = [line for line in words if line.startswith("take ")]
    assert len(taken) == sum("= undefined" in line for line in kaldi)


def test_a_backward_part_in_words(nnet):
    compiled = nnet3.compile(nnet, f"{LINE} deriv")
    text = str(compiled.optimized)
    assert (
        "\nforward\n" in text
        and "\nbackward\n" in text
        and "parameters of a = a backward (in m" in text
    )
    assert "statistics" not in text
    assert not compiled.options.test_mode and nnet3.compile(nnet, LINE).options.test_mode


def test_a_loop_in_words():
    config = "input-node name=input dim=2\ncomponent name=a type=NoOpComponent dim=2\n"
    config += "component-node name=a component=a input=Sum(input, IfDefined(Offset(a, -1)))\n"
    net = nnet3.Nnet.from_config_text(f"{config}output-node name=output input=a\n", 0)
    lines = str(loop_computation(net.topology(), looped_requests(2, 0, 0))).splitlines()
    assert "commands" in lines and "backward" not in lines
    words = [line.strip().split("  ", 1)[1] for line in lines[lines.index("commands") + 1 :]]
    label = words.index("- the loop begins")
    assert words[-1] == f"go to {label}" and "- end of the part" in words[:label]


def test_every_kind_of_command_in_words(nnet):
    """Rows of one and of several matrices, their sums, and what goes back to them."""
    text = "".join(
        str(nnet3.compile(net, f"{LINE} deriv", optimize=optimize).optimized)
        for net in (
            nnet,
            nnet3.Nnet.from_config_text(CONFIG.replace("Sum(a", "Sum(Round(a, 2)"), 0),
        )
        for optimize in (True, False)
    )
    for pattern in (
        r"m\d+ takes over the memory of m\d+\n",
        r"m\d+\[:, 0:3\] = m\d+ rows 0,8,1,9",
        r"m\d+\[:, 2:4\] rows 0; m\d+\[:, 2:4\] rows|m\d+\[:, 2:4\] rows 0 x 3; m\d+",
        r"m\d+(\[:, 2:4\])? rows .* [+]?= m\d+\n",
        r"sums of rows \d+(:\d+)?,",
        r"m\d+ = r backward \(in nothing, out nothing, deriv m\d+\)\n",
    ):
        assert re.search(pattern, text), pattern


def test_sizes_and_memory(compiled):
    assert len(compiled.sizes) == 6 and compiled.sizes[2].cols == 4
    preamble, _, commands = compiled.optimized.to_kaldi().partition("# begin forward commands\n")
    assert compiled.sizes.to_kaldi() == preamble and commands.startswith("c0: m1 = user input")
    memory, bytes_of = compiled.memory, [4 * m.rows * m.cols for m in compiled.sizes]
    assert memory.total == sum(bytes_of) and memory.peak == max(memory.optimized.by_command)
    assert memory.to_kaldi().splitlines() == [
        f"Before optimization, max memory use (bytes) = {memory.plain.peak}",
        f"After optimization, max memory use (bytes) = {memory.peak}",
    ]
    assert [use.bytes for use in memory.optimized.matrices] == bytes_of
    assert str(memory).splitlines()[0].startswith("plain      peak 1.3 kB (command ")


def test_memory_of_compressed_matrices(nnet):
    config = CONFIG.replace("NoOpComponent", "RectifiedLinearComponent")
    options = nnet3.OptimizeOptions(memory_compression_level=1)
    net = nnet3.Nnet.from_config_text(config, 0)
    compiled = nnet3.compile(net, f"{LINE} deriv", optimize=options)
    commands = compiled.optimized.commands
    (first, *_), use = (
        [i for i, command in enumerate(commands) if command.type == "CompressMatrix"],
        memory_use(compiled.optimized),
    )
    matrix = compiled.optimized.matrices[
        compiled.optimized.submatrices[commands[first].target].matrix
    ]
    assert use.by_command[first - 1] - use.by_command[first] == 3 * matrix.rows * matrix.cols
    assert use.by_command[-1] >= 0


def test_options(nnet, compiled):
    assert "--optimization.snip-row-ops=true\n" in compiled.options.to_kaldi()
    assert "changed     nothing" in str(compiled.options)
    plain = nnet3.compile(nnet, LINE, optimize=False)
    assert plain.optimized is plain.plain
    assert plain.options.to_kaldi().startswith("--optimization.optimize=false\n")
    assert str(plain.options).startswith("passes      none\n")
    some = nnet3.compile(nnet, LINE, optimize=nnet3.OptimizeOptions(extend_matrices=False))
    assert "changed     extend_matrices=False" in str(some.options)
    assert "extend_matrices" not in some.options.running()


def test_the_op_list_runs(nnet, compiled):
    computer = nnet3.NnetComputer(compiled.op_list(), nnet)
    rng = np.random.default_rng(0)
    given = {"input": rng.standard_normal((16, 4)), "ivector": rng.standard_normal((2, 3))}
    for name, matrix in given.items():
        computer.accept_input(name, matrix)
    computer.run()
    other = nnet3.NnetComputer(nnet3.compile_request(nnet, compiled.request), nnet)
    for name, matrix in given.items():
        other.accept_input(name, matrix)
    other.run()
    np.testing.assert_array_equal(computer.get_output("output"), other.get_output("output"))


def test_a_network_that_was_not_trained():
    config = CONFIG.replace("r type=NoOp", "r type=BatchNorm")
    nnet = nnet3.Nnet.from_config_text(config, 0)
    compiled = nnet3.compile(nnet, LINE)
    told = "; no test mode: batch normalization without statistics"
    assert compiled.summary().splitlines()[1].endswith(told)
    assert "r.Propagate(" in compiled.optimized.to_kaldi() and not compiled.options.test_mode
    for run in (
        compiled.op_list,
        compiled.computer,
        lambda: nnet3.compile(nnet, LINE, test_mode=True),
    ):
        with pytest.raises(FormatError, match="no statistics for batch normalization in r"):
            run()
    assert nnet3.compile(nnet, LINE, test_mode=False).computer() is not None


def test_what_cannot_be_computed_is_shown(nnet):
    compiled = nnet3.compile(nnet, "input=-1:5 output=0:5")
    assert not compiled.computable
    lines = str(compiled).splitlines()
    assert len(lines) == 3 and lines[2].startswith("outputs    6 of 6 output rows are not comp")
    assert "ivector  not computable  0,0" in str(compiled.computable).splitlines()
    for part in ("cindexes", "phases", "steps", "plain", "optimized", "sizes", "memory"):
        with pytest.raises(NotComputableError, match="rows of 'ivector' that are not given"):
            getattr(compiled, part)


@pytest.mark.parametrize("form", ["binary", "text", "lines"])
def test_requests_in_files(nnet, compiled, tmp_path, form):
    path = tmp_path / "request"
    if form == "lines":
        path.write_text(compiled.request.to_text())
    else:
        compiled.request.write(path, binary=form == "binary")
    nnet.write(tmp_path / "model.raw")
    again = nnet3.compile(tmp_path / "model.raw", path)
    assert again.request.key() == compiled.request.key()
    assert nnet3.compile(nnet, str(path)).optimized.to_kaldi() == compiled.optimized.to_kaldi()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net: nnet3.compile(net, "input=0 outptu=0"), FormatError, "did you mean output?"),
        (lambda net: nnet3.compile(net, "nothing.txt"), FormatError, "one line is written as"),
        (lambda net: nnet3.compile(net, ""), FormatError, "no rows of an output are asked for"),
        (lambda net: nnet3.compile(net, 3), OpscopeError, "the path of a file; you gave int"),
        (lambda net: nnet3.compile(3, LINE), OpscopeError, "a model is wanted"),
        (lambda net: nnet3.compile(net, LINE, optimize=3), OpscopeError, "want a bool or an Opti"),
        (lambda net: nnet3.compile(net, LINE, test_mode=1), OpscopeError, "test_mode: want a bool"),
        (lambda net: nnet3.compile(net, LINE).epochs.of("p"), FormatError, "has no node 'p'"),
        (lambda net: nnet3.compile(net, LINE).cindexes["pat"], FormatError, "did you mean part?"),
        (
            lambda net: nnet3.compile(net, LINE).cindexes.dependencies("part", 1),
            ShapeError,
            r"needs no row part\(0,1\); of 'part' it needs 0:1,0;0:1,3",
        ),
    ],
)
def test_mistakes(nnet, call, error, message):
    with pytest.raises(error, match=message):
        call(nnet)
