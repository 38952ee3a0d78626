"""`opscope nnet3-compile` and `opscope nnet3-xconfig-to-config`."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from opscope import nnet3
from opscope.framework.ir.messages import parse_net
from opscope.nnet3.lower.command_dialect import from_desc
from opscope.python_api.cli.main import kaldi_programs, main

XCONFIG = """\
input name=input dim=4
relu-renorm-layer name=tdnn1 dim=8 input=Append(-1,0,1)
output-layer name=output dim=3
"""
REQUEST = """\
input input has_deriv=0 0,-1,0 0,0,0 0,1,0 0,2,0
output output has_deriv=0 0,0,0 0,1,0
need_model_derivative=0 store_component_stats=0
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs a command in a folder with a small model; what it prints."""
    monkeypatch.chdir(tmp_path)
    Path("layers.xconfig").write_text(XCONFIG)
    Path("request.txt").write_text(REQUEST)
    config = nnet3.xconfig_to_config(XCONFIG)
    nnet3.Nnet.from_config_text(config, 1).write("model.raw")

    def run(*args, code=0, stdin=None):
        result = CliRunner().invoke(main, args, input=stdin)
        assert result.exit_code == code, result.output
        return result.stderr if code else result.stdout

    return run


def test_stages(call):
    assert call("nnet3-compile", "model.raw", "request.txt", "--request") == REQUEST
    steps = call("nnet3-compile", "model.raw", "request.txt", "--steps")
    assert steps.splitlines()[-1].startswith("step ")
    commands = call("nnet3-compile", "model.raw", "request.txt", "--kaldi")
    assert commands.startswith("matrix m1(4, 4)") and "tdnn1.affine.Propagate(NULL, m" in commands
    plain = call("nnet3-compile", "model.raw", "request.txt", "--kaldi", "--no-optimize")
    assert len(plain.splitlines()) > len(commands.splitlines())
    assert "nnet3.command.propagate(x=m" in call(
        "nnet3-compile", "model.raw", "-", "--commands", stdin=REQUEST
    )
    operators = call("nnet3-compile", "model.raw", "request.txt")
    assert "input.input" in operators and "parameter" in operators


def test_a_request_in_a_line(call):
    line = "input=-1:2 output=0:1"
    assert call("nnet3-compile", "model.raw", line, "--request") == REQUEST
    assert call("nnet3-compile", "model.raw", line) == call(
        "nnet3-compile", "model.raw", "request.txt"
    )
    told = call("nnet3-compile", "model.raw", "input=-1:2 outputt=0:1", code=1)
    assert "character 12: the network has no node 'outputt' (did you mean output" in told


def test_parts(call):
    base = "nnet3-compile", "model.raw", "input=-1:2 output=0:1"
    for part, said, kaldi in [
        ("summary", "request    input=-1:2 output=0:1\n", "Optimized computation is: matrix m1"),
        ("request", "input=-1:2 output=0:1\n", "output-0: name=output, has-deriv=false"),
        ("options", "passes      gather_memory", "--optimization.optimize=true"),
        ("epochs", "epoch 0  input\n", "node_to_epoch: [0:11]"),
        ("computable", "all outputs can be computed\n", "tdnn1.relu(0, 1, 0) is kComputable"),
        ("cindexes", "reads input t-1:t+1", "[ input(0,-1) ] [ input(0,0) ] "),
        ("phases", "phase 0  given  input 0,-1:2\n", "phase 0: input[(0,-1:2)]"),
        ("steps", "step 0   input", "step 0: input[(0,-1:2)]"),
        ("plain", "m1 = given 'input'", "c0: m1 = user input [for node: 'input']"),
        ("optimized", "give m", "to user [for node: 'output']"),
        ("sizes", "4 x 4  value  input", "matrix m1(4, 4), "),
        ("memory", "plain      peak ", "After optimization, max memory use (bytes) = "),
    ]:
        assert said in call(*base, "--part", part), part
        assert kaldi in call(*base, "--part", part, "--kaldi"), part
    assert call(*base, "--part=optimized", "--kaldi") == call(*base, "--kaldi")
    plain = call(*base, "--kaldi", "--no-optimize")
    assert plain == call(*base, "--part=plain", "--kaldi")
    assert plain == call(*base, "--part=optimized", "--kaldi", "--no-optimize")


def test_what_programs_log_of_computations(call):
    """`--verbose` and `--computation.debug`: lines with Kaldi's origins; the output is the same."""
    with nnet3.TableWriter("ark:feats.ark", "matrix") as table:
        table.write("a", np.random.default_rng(0).standard_normal((7, 4)))

    def logged(*options):
        args = "nnet3-compute", "--frames-per-chunk=4", *options, "model.raw", "ark:feats.ark"
        result = CliRunner().invoke(main, [*args, "ark:out.ark"])
        assert result.exit_code == 0, result.output
        return result.stderr, Path("out.ark").read_bytes()

    quiet, wanted = logged()
    for level, said in [
        (3, "Before optimization, max memory use (bytes) = "),
        (4, "Computation request is  # Computation"),
        (4, "Optimized computation is: matrix m1("),
        (5, "VLOG[5] (nnet3-compute["),
        (5, "deriv_needed = fff"),
        (5, ":DebugAfterExecute():nnet-compute.cc:0) c1: [no-op-permanent]\t|\t\t|\t time: "),
        (6, "node_to_epoch: [0:"),
    ]:
        told, got = logged(f"--verbose={level}")
        assert said in told and said not in logged(f"--verbose={level - 1}")[0]
        assert got == wanted
    told, got = logged("--computation.debug=true")
    assert got == wanted and "Before optimization" not in told + quiet and "DebugAfter" not in quiet
    assert "matrix m1(" in told
    assert ": tdnn1.affine.Propagate(NULL, m" in told
    told = logged("--verbose=5", "--looped=true")[0]
    assert "Computation is:\nmatrix m1(" in told
    assert ": goto c" in told and "Generated computation" not in told


def test_a_request_from_options(call):
    frames = call("nnet3-compile", "model.raw", "--frames", "2", "--request")
    assert frames == REQUEST
    text = call(
        *("nnet3-compile", "model.raw", "--frames=2", "--sequences=2", "--subsampling=3"),
        *("--extra-left-context=1", "--extra-right-context=2", "--backward", "--request"),
    )
    request = nnet3.ComputationRequest.parse(text)
    assert request.need_model_derivative and request.inputs[0].has_deriv
    assert request.outputs[0].indexes.tolist() == [[0, 0, 0], [0, 3, 0], [1, 0, 0], [1, 3, 0]]
    assert request.inputs[0].indexes[:9, 1].tolist() == list(range(-2, 7))


def test_a_saved_net_runs_without_the_model(call):
    call("nnet3-compile", "model.raw", "request.txt", "--prepare-for-test", "--out", "net.pb")
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    np.save("x.npy", x)
    feed = ("--feed", "input.input=x.npy", "--fetch", "output.output")
    call("run", "net.pb", *feed, "--out", "y.npz")
    nnet = nnet3.Nnet.read("model.raw")
    nnet3.prepare_for_test(nnet)
    computer = nnet3.NnetComputer(
        nnet3.compile_request(nnet, nnet3.ComputationRequest.parse(REQUEST)), nnet
    )
    computer.accept_input("input", x)
    computer.run()
    got = np.load("y.npz")["output.output"]
    np.testing.assert_allclose(got, computer.get_output("output"), rtol=1e-5)
    assert "no error" in call("verify", "net.pb")


NORM = """\
input-node name=input dim=2
component name=n type=BatchNormComponent dim=2
component-node name=n component=n input=input
output-node name=output input=n
"""


def test_operators_are_in_test_mode_where_there_are_no_derivatives(call):
    nnet = nnet3.Nnet.from_config_text(NORM)
    nnet.write("new.raw")
    norm = nnet.components["n"]
    norm.count, norm.stats_sum, norm.stats_sumsq = 2.0, np.ones(2), np.full(2, 9.0)
    nnet.write("norm.raw")
    command = "nnet3-compile", "norm.raw", "--frames=2"
    assert "nnet3.batch_norm" not in call(*command)
    assert "nnet3.batch_norm" in call(*command, "--no-test-mode")
    assert "nnet3.batch_norm" in call(*command, "--backward")
    assert "nnet3.batch_norm" not in call(*command, "--backward", "--test-mode")
    assert "nnet3.batch_norm" in call("nnet3-compile", "new.raw", "--frames=2", "--no-test-mode")
    assert "n.Propagate" in call("nnet3-compile", "new.raw", "--frames=2", "--kaldi")
    assert "no statistics" in call("nnet3-compile", "new.raw", "--frames=2", code=1)


def test_saved_commands(call):
    call("nnet3-compile", "model.raw", "request.txt", "--commands", "--out", "commands.pb")
    assert not Path("commands.safetensors").exists()
    desc = parse_net(Path("commands.pb").read_bytes())
    topology = nnet3.Nnet.read("model.raw").topology()
    printed = call("nnet3-compile", "model.raw", "request.txt", "--kaldi")
    assert from_desc(desc, topology).to_kaldi() == printed
    assert "nnet3.command.propagate" in call("show", "commands.pb")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("model.raw",), "give a REQUEST or --frames"),
        (("model.raw", "request.txt", "--frames=2"), "give a REQUEST or --frames"),
        (("model.raw", "request.txt", "--kaldi", "--out=a.pb"), "--out saves a net"),
        (("model.raw", "request.txt", "--part=steps", "--out=a.pb"), "--part gives text"),
        (("model.raw", "request.txt", "--part=steps", "--steps"), "exclude each other"),
        (("model.raw", "request.txt", "--part=step"), "'step' is not one of"),
    ],
)
def test_wrong_use(call, args, said):
    assert said in call("nnet3-compile", *args, code=2)


def test_refusals(call):
    assert "nothing.txt: No such file" in call("nnet3-compile", "model.raw", "nothing.txt", code=1)
    Path("bad.txt").write_text("input input 1\n")
    assert "bad.txt, line 1: '1' is no index" in call(
        "nnet3-compile", "model.raw", "bad.txt", code=1
    )
    Path("far.txt").write_text("input input 0,0,0\noutput output 0,0,0\n")
    lines = call("nnet3-compile", "model.raw", "far.txt", code=1).splitlines()
    assert "rows of 'input' that are not given: [(0,-1), (0,1)]" in lines[0]
    assert len(lines) > 5 and "(0, -1, 0)" in lines[-1] + lines[-2]
    assert "frames is 0" in call("nnet3-compile", "model.raw", "--frames=0", code=1)


def test_xconfig(call):
    config = nnet3.xconfig_to_config(XCONFIG)
    assert call("nnet3-xconfig-to-config", "--xconfig-file", "layers.xconfig") == config
    call("nnet3-xconfig-to-config", "--xconfig-file=layers.xconfig", "--config-dir=exp/configs")
    folder = Path("exp/configs")
    assert (folder / "final.config").read_text() == config
    assert (folder / "xconfig").read_text() == XCONFIG
    assert (folder / "vars").read_text() == "model_left_context=1\nmodel_right_context=1\n"
    assert not (folder / "init.config").exists()
    call("nnet3-init", "exp/configs/final.config", "new.raw")


def test_xconfig_on_top_of_a_model(call):
    Path("more.xconfig").write_text("output-layer name=output2 dim=2 input=tdnn1.renorm\n")
    args = ("--xconfig-file=more.xconfig", "--existing-model=model.raw")
    assert "dim=2" in call("nnet3-xconfig-to-config", *args)
    call("nnet3-xconfig-to-config", *args, "--config-dir=configs")
    assert Path("configs/vars").read_text() == "model_left_context=1\nmodel_right_context=1\n"
    edits = "--nnet-edits=remove-output-nodes name=output"
    call("nnet3-xconfig-to-config", *args, edits, "--config-dir=other")
    assert not Path("other/vars").exists()


def test_xconfig_refusals(call):
    Path("bad.xconfig").write_text(XCONFIG.replace("relu-renorm", "relu-renor"))
    said = call("nnet3-xconfig-to-config", "--xconfig-file=bad.xconfig", code=1)
    assert "bad.xconfig:2: no such layer type" in said
    said = call("nnet3-xconfig-to-config", "--xconfig-file=layers.xconfig", "--config=init", code=1)
    assert "layers.xconfig: no layer makes a file init.config" in said


def test_they_are_no_programs_of_kaldi():
    assert not {"nnet3-compile", "nnet3-xconfig-to-config"} & set(kaldi_programs())
