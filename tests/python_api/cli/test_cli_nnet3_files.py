"""`opscope show` and `opscope verify` of Kaldi's tables, requests and configs, and of dialects."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from damage import truncations
from opscope import nnet3
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.compressed import CompressedMatrix
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.files.sparse import SparseMatrix
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.python_api.cli.main import main

XCONFIG = "input name=input dim=4\noutput-layer name=output dim=3 input=Append(-1,0)\n"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs a command in an empty folder; what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*args, code=0):
        result = CliRunner().invoke(main, args)
        assert result.exit_code == code, result.output
        return result.stderr if code else result.stdout

    return run


def write(wspecifier, kind, **entries):
    with nnet3.TableWriter(wspecifier, kind) as writer:
        for key, value in entries.items():
            writer.write(key, value)


FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("form", ["ark", "ark,t"])
def test_matrices(call, form):
    write(f"{form}:feats.ark", "matrix", a=FEATURES, b=FEATURES[:2])
    assert call("show", "feats.ark").splitlines() == [
        "a  matrix float32[4, 3]  0 .. 11",
        "b  matrix float32[2, 3]  0 .. 5",
    ]
    assert call("verify", "feats.ark") == ("feats.ark: 2 entries, 6 rows of 3 columns, no error\n")


def test_keys_that_are_no_text(tmp_path):
    (tmp_path / "feats.ark").write_bytes(b"a\xffb [ 1 2 ]\n")
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "feats.ark")])
    assert shown.stdout_bytes == b"a\xffb  vector float32[2]  1 .. 2\n"


def test_script_files_and_specifiers(call):
    write("ark,scp:feats.ark,feats.scp", "matrix", a=FEATURES, b=FEATURES[:2])
    archive = call("show", "feats.ark")
    for name in ("feats.scp", "scp:feats.scp", "ark:feats.ark"):
        assert call("show", name) == archive
    Path("feats.scp").write_text(Path("feats.scp").read_text().replace("a feats", "a none"))
    assert "none.ark" in call("verify", "feats.scp", code=1)


def test_kinds(call):
    io = [
        NnetIo("input", np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]), FEATURES),
        NnetIo("output", np.array([[0, 0, 0], [1, 0, 0]]), SparseMatrix.from_dense(np.eye(2))),
    ]
    tables = {
        "posterior": (Posterior.from_frames([[(3, 0.5), (4, 0.5)], []]), "of 2 frames, 2 pairs"),
        "vector": (np.ones(3), "vector float32[3]  1 .. 1"),
        "int_vector": ([4, 5], "vector int32[2]  4 .. 5"),
        "compressed_matrix": (CompressedMatrix.compress(FEATURES, 2), "compressed matrix CM[4, 3]"),
        "example": (
            NnetExample(io),
            "example: input matrix float32[4, 3]  0 .. 11, 2 sequences of t = 0 .. 1; "
            "output sparse matrix [2, 2], 2 elements, 2 sequences of t = 0 .. 0",
        ),
    }
    for kind, (value, told) in tables.items():
        write(f"ark:{kind}.ark", kind, a=value)
        assert call("show", f"{kind}.ark").endswith(f"{told}\n")
        assert call("verify", f"{kind}.ark").startswith(f"{kind}.ark: 1 entries")


def test_verify_finds_damage(call):
    write("ark:feats.ark", "matrix", a=FEATURES, b=FEATURES[:2])
    data = Path("feats.ark").read_bytes()
    whole = {0, len(data) - 2 - len(data) % 1, len(data)}
    for cut in list(truncations(data))[1::7]:
        Path("cut.ark").write_bytes(cut)
        result = CliRunner().invoke(main, ["verify", "cut.ark"])
        if result.exit_code == 0:
            assert "1 entries" in result.output and len(cut) not in whole
        else:
            assert "cut.ark: " in result.stderr and "byte" in result.stderr
    Path("twice.ark").write_bytes(data + data)
    assert "the key 'a' comes twice" in call("verify", "twice.ark", code=1)
    write("ark:nan.ark", "matrix", a=FEATURES, b=np.full((1, 2), np.nan))
    lines = call("verify", "nan.ark").splitlines()
    assert lines[0] == "warning: nan.ark: b: 2 of 2 numbers are infinite or nan"
    assert lines[1] == "warning: nan.ark: matrices differ in their columns: 2, 3"


def test_text_tables(call):
    Path("labels").write_text("a one\nb two three\n")
    assert call("show", "ark:labels") == "a  one\nb  two three\n"
    Path("wrong.ark").write_text("a [ 1 2 3\n  4 5 ]\n")
    assert "wrong.ark: row 1 has 2 columns, the first one has 3" in call(
        "show", "wrong.ark", code=1
    )


def test_single_values(call):
    Path("lda.mat").write_text(" [\n  1 2\n  3 4 ]\n")
    assert call("show", "lda.mat") == "matrix float32[2, 2]  1 .. 4\n"
    writer = nnet3.TableWriter("ark:one.ark", "matrix")
    with writer:
        writer.write("a", FEATURES)
    Path("one").write_bytes(Path("one.ark").read_bytes()[2:])
    assert call("verify", "one") == "one: matrix float32[4, 3]  0 .. 11, no error\n"
    Path("one").write_bytes(Path("one.ark").read_bytes()[2:] + b"xy")
    assert "something stands after the value (byte 63)" in call("verify", "one", code=1)


def test_requests_and_configs(call):
    Path("request").write_text("input input 0,0,0 0,1,0\noutput output has_deriv=1 0,1,0\n")
    assert "output-0: name=output, has-deriv=true, indexes=[(0,1)]" in call("show", "request")
    assert call("verify", "request") == (
        "request: a request with 2 input rows and 1 output rows, no error\n"
    )
    wanted = call("show", "request")
    request = nnet3.ComputationRequest.read("request")
    for binary in (True, False):
        request.write("request", binary)
        assert call("show", "request") == wanted
    Path("request").write_text("input input 0@0:1\noutput output has_deriv=1 0,1\n")
    assert call("show", "request") == wanted
    Path("request").write_text("input input 0,0,0 1\n")
    assert "request, line 1: '1' is no index" in call("verify", "request", code=1)
    Path("layers.xconfig").write_text(XCONFIG)
    Path("final.config").write_text(nnet3.xconfig_to_config(XCONFIG))
    text = call("show", "final.config")
    assert "nnet3.component" in text and text == call("show", "layers.xconfig")
    assert text.startswith("context     left ")
    assert call("show", "final.config", "--svg", "-").count("<svg") == 1
    call("show", "layers.xconfig", "--svg", "drawn.svg")
    assert Path("drawn.svg").read_text() == call("show", "final.config", "--svg", "-")
    assert "request: holds no net to draw" in call("show", "request", "--svg", "-", code=1)
    assert call("verify", "final.config") == (
        "final.config: 6 nodes, 2 components, 27 parameters, no error\n"
    )
    Path("final.config").write_text("input-node name=input dim=zero\n")
    assert call("verify", "final.config", code=1) == "final.config: 2 errors\n"


def test_dialects(call):
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(XCONFIG), 1)
    opscope.save_nnet(nnet, "net.pb")
    assert call("verify", "net.pb") == "net.pb: 6 nodes, 2 components, 27 parameters, no error\n"
    assert call("show", "net.pb").startswith(f"{nnet.summary()}\n\nnet ")
    assert call("show", "net.pb", "--svg", "-") == nnet.to_svg()
    back = opscope.load_nnet("net")
    np.testing.assert_array_equal(back.vectorize(), nnet.vectorize())
    assert back.config_lines() == nnet.config_lines()
    nnet.write("model.raw")
    call("nnet3-compile", "model.raw", "--frames=2", "--commands", "--out=commands.pb")
    assert "commands of a compiled computation, no error" in call("verify", "commands.pb")
    desc = opscope.NetDesc.FromString(Path("commands.pb").read_bytes())
    desc.ops[-1].type = "nnet3.command.nothing"
    Path("commands.pb").write_bytes(desc.SerializeToString())
    assert "no command of that name" in call("verify", "commands.pb", code=1)
    desc.metadata["dialect"] = "nnet9"
    Path("commands.pb").write_bytes(desc.SerializeToString())
    assert "the dialect 'nnet9'" in call("verify", "commands.pb", code=1)


def test_a_compiled_net_is_an_ordinary_net(call):
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(XCONFIG), 1)
    desc = nnet3.compile_request(nnet, nnet3.simple_request(nnet, 3))
    opscope.save_compiled(desc, nnet, "net.pb")
    net, scope = opscope.load("net.pb")
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    scope.feed({"input.input": x})
    net.run(scope)
    computer = nnet3.NnetComputer(desc, nnet)
    computer.accept_input("input", x)
    computer.run()
    np.testing.assert_array_equal(scope.numpy("output.output"), computer.get_output("output"))


def test_unknown_files(call):
    Path("notes").write_text("something else\n")
    said = call("show", "notes", code=1)
    assert "notes: neither a net nor a file of Kaldi's or CNTK's that is known" in said
    Path("empty").touch()
    assert "empty: the file is empty" in call("show", "empty", code=1)
    assert "empty: the file is empty" in call("view", "empty", code=1)
    with pytest.raises(FormatError, match="nothing"):
        opscope.load_nnet("nothing")
