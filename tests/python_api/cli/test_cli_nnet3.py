"""Kaldi's programs that make, copy and tell nnet3 models; `opscope show` and `verify` of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import CONFIG, MORE, done, refused
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet

# -- nnet3-init ------------------------------------------------------------------------------------


def test_init(call):
    err = "Initialized raw neural net and wrote it to out.raw"
    done(call("nnet3-init", "net.config", "out.raw"), err)
    nnet = Nnet.read("out.raw")
    assert nnet.config_lines() == Nnet.from_config_text(CONFIG).config_lines()
    done(call("nnet3-init", "--srand=0", "net.config", "same.raw"))
    assert Path("same.raw").read_bytes() == Path("out.raw").read_bytes()
    done(call("nnet3-init", "--srand=-5", "net.config", "other.raw"))
    assert Path("other.raw").read_bytes() != Path("out.raw").read_bytes()


def test_init_adds_to_a_network(call):
    result = call("nnet3-init", "--binary=false", "net.raw", "-", "out.txt", input=MORE.encode())
    done(
        result,
        "Read raw neural net from net.raw",
        "WARNING (nnet3-init[",
        "Node d is never used to compute any output.",
    )
    nnet = Nnet.read("out.txt")
    assert nnet.output_dim("output") == 3 and Path("out.txt").read_bytes()[:8] == b"<Nnet3> "
    np.testing.assert_allclose(
        nnet.components["a"].linear_params,
        Nnet.read("net.raw").components["a"].linear_params,
        rtol=1e-6,
    )


def test_init_to_standard_output(call):
    out = done(call("nnet3-init", "net.config", "-"))
    assert out[:10] == b"\0B<Nnet3> "


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (CONFIG.replace("input-dim=12", "input-dim=13"), "13"),
        (CONFIG.replace("Affine", "Afine", 1), "unknown component type"),
        ("\0B" + CONFIG, "a config file must be text"),
        ("input-node name=input dim=4\n", "output node"),
        ("input-node name=input dim\n", "net.config:1"),
    ],
)
def test_init_refused(call, text, part):
    Path("net.config").write_text(text)
    refused(call("nnet3-init", "net.config", "out.raw"), part)
    assert not os.path.exists("out.raw")


def test_init_of_what_is_no_text(call):
    Path("net.config").write_bytes(b"input-node name=\xff dim=4\n")
    refused(call("nnet3-init", "net.config", "out.raw"), "net.config: no text (byte 16)")


# -- nnet3-copy and nnet3-info ---------------------------------------------------------------------


def test_copy_converts(call):
    """Batch normalization leaves test mode in a copy, as with Kaldi, unless an option says so."""
    done(call("nnet3-copy", "--batchnorm-test-mode", "net.raw", "out.raw"))
    assert Path("out.raw").read_bytes() == Path("net.raw").read_bytes()
    done(call("nnet3-copy", "--batchnorm-test-mode=true", "--binary=false", "out.raw", "out.txt"))
    assert Path("out.txt").read_bytes() == Path("net.txt").read_bytes()
    done(call("nnet3-copy", "net.raw", "out.raw"))
    assert not Nnet.read("out.raw").components["n"].test_mode


def test_copy_through_standard_streams(call):
    data = Path("net.raw").read_bytes()
    assert done(call("nnet3-copy", "--batchnorm-test-mode", "-", "-", input=data)) == data


def test_copy_of_the_network_in_a_model(call):
    done(call("nnet3-copy", "--batchnorm-test-mode", "--binary=false", "net.mdl", "out.txt"))
    assert Path("out.txt").read_bytes() == Path("net.txt").read_bytes()


def test_copy_onto_itself(call):
    done(call("nnet3-copy", "--learning-rate=0.5", "net.raw", "net.raw"))
    assert Nnet.read("net.raw").components["a"].learning_rate == 0.5


def test_copy_sets_learning_rates(call):
    done(call("nnet3-copy", "--learning-rate=0.5", "net.raw", "out.raw"))
    components = Nnet.read("out.raw").components
    assert components["a"].learning_rate == 0.5 and components["b"].learning_rate == 0.25


def test_copy_with_edits(call):
    Path("edits").write_text("set-learning-rate name=* learning-rate=0.5\n")
    Path("more.config").write_text(MORE)
    result = call(
        "nnet3-copy",
        "--learning-rate=0.1",
        "--nnet-config=more.config",
        "--edits-config=edits",
        "--edits=remove-orphans;rename-node old-name=c new-name=last",
        "net.raw",
        "out.raw",
    )
    done(
        result,
        "Set learning rates for 4 components.",
        "Removed 2 orphan nodes. Removed 2 orphan components.",
        "Renamed node c to last.",
    )
    nnet = Nnet.read("out.raw")
    assert list(nnet.components) == ["a", "r", "b", "c"] and nnet.has_node("last")
    assert nnet.components["c"].learning_rate == 0.5


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("--edits=remove-orphan", "--edits:1: 'remove-orphan' is no edit directive"),
        ("--edits=remove-output-nodes name=*", "this would remove all outputs"),
        ("--edits-config=none", "none: No such file"),
        ("--nnet-config=net.raw", "a config file must be text"),
    ],
)
def test_edits_refused(call, option, part):
    refused(call("nnet3-copy", option, "net.raw", "out.raw"), part)
    assert not os.path.exists("out.raw")


def test_prepare_for_test(call):
    result = call("nnet3-copy", "--prepare-for-test", "--edits=remove-orphans", "net.raw", "-")
    Path("out.raw").write_bytes(done(result))
    nnet = Nnet.read("out.raw")
    assert nnet.components["n"].test_mode and nnet.components["d"].test_mode


def test_info(call):
    out = done(call("nnet3-info", "net.txt")).decode()
    assert out == Nnet.read("net.txt").info()
    assert out.startswith("left-context: 3\nright-context: 1\n")


@pytest.mark.parametrize("program", ["nnet3-copy", "nnet3-am-copy"])
def test_pipes_want_an_opt_in(call, program):
    refused(call(program, "cat net.raw |", "out.raw"), "OPSCOPE_PIPES=1")
    refused(call(program, "net.mdl", "| cat > out.raw"), "OPSCOPE_PIPES=1")
    assert not os.path.exists("out.raw")


def test_pipes(call, monkeypatch):
    monkeypatch.setenv("OPSCOPE_PIPES", "1")
    done(call("nnet3-copy", "--batchnorm-test-mode", "cat net.raw |", "| cat > out.raw"))
    assert Path("out.raw").read_bytes() == Path("net.raw").read_bytes()


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (None, "No such file"),
        (b"", "the end of the file"),
        (b"\0A", "neither binary nor text"),
        (b"utt1 [ 1 2 ]\n", "<Nnet3> was expected"),
        (b"<Nnet3> \n\n<NumComponents> 1 <ComponentName> a <FooComponent> ", "unknown component"),
    ],
)
def test_no_model(call, data, part):
    if data is not None:
        Path("bad").write_bytes(data)
    for program in ("nnet3-info", "nnet3-copy"):
        refused(call(program, "bad", *["out"][: program == "nnet3-copy"]), "bad", part)


def test_truncated_model(call):
    data = Path("net.raw").read_bytes()
    for size in range(2, len(data), 211):
        Path("bad").write_bytes(data[:size])
        refused(call("nnet3-info", "bad"), "bad: ", "byte ")


def test_output_cannot_be_written(call):
    refused(call("nnet3-copy", "net.raw", "none/out.raw"), "none")


# -- acoustic models -------------------------------------------------------------------------------


def test_am_copy_converts(call):
    """Text to binary and back: the transition model as well."""
    done(call("nnet3-am-copy", "net.mdl", "out.mdl"), "Copied neural net from net.mdl to out.mdl")
    model = AmNnetSimple.read("out.mdl")
    assert model.binary and model.transition_model.startswith(b"<TransitionModel> <Topology> \4")
    assert (model.left_context, model.right_context) == (3, 1)
    done(call("nnet3-am-copy", "--binary=false", "out.mdl", "out.txt"))
    assert Path("out.txt").read_bytes() == Path("net.mdl").read_bytes()
    done(call("nnet3-am-copy", "out.mdl", "same.mdl"))
    assert Path("same.mdl").read_bytes() == Path("out.mdl").read_bytes()


def test_am_copy_raw(call):
    result = call("nnet3-am-copy", "--raw=true", "--binary=false", "net.mdl", "out.txt")
    done(result, "Copied neural net from net.mdl to raw format as out.txt")
    assert Path("out.txt").read_bytes() == Path("net.txt").read_bytes()


def test_am_copy_sets_the_network(call):
    done(call("nnet3-init", "--srand=3", "net.config", "other.raw"))
    done(call("nnet3-am-copy", "--set-raw-nnet=other.raw", "--binary=false", "net.mdl", "out.mdl"))
    model = AmNnetSimple.read("out.mdl")
    other = Nnet.read("other.raw")
    np.testing.assert_allclose(model.nnet.vectorize(), other.vectorize(), rtol=1e-6)
    assert model.priors.size == 5


def test_am_copy_drops_priors(call):
    result = call("nnet3-am-copy", "--nnet-config=more.config", "net.mdl", "out.mdl")
    done(result, "WARNING (nnet3-am-copy[", "Removed 5 priors: the output is 3 wide.")
    assert AmNnetSimple.read("out.mdl").priors.size == 0


def test_am_copy_converts_repeated_components(call):
    result = call("nnet3-am-copy", "--convert-repeated-to-block", "--scale=2", "net.mdl", "out.mdl")
    done(result, "Converted 1 components to BlockAffineComponent.")
    old, new = (AmNnetSimple.read(name).nnet.components["r"] for name in ("net.mdl", "out.mdl"))
    assert (old.type, new.type) == ("RepeatedAffineComponent", "BlockAffineComponent")
    both = np.concatenate([old.linear_params, old.linear_params])
    np.testing.assert_array_equal(new.linear_params, 2 * both)


def test_am_info(call):
    out = done(call("nnet3-am-info", "net.mdl")).decode()
    assert out.startswith(
        "input-dim: 4\nivector-dim: -1\nnum-pdfs: 5\nprior-dimension: 5\nprior-sum: 1\n"
        "prior-min: 0.2\nprior-max: 0.2\n# Nnet info follows.\nleft-context: 3\n"
    )


@pytest.mark.parametrize("args", [["nnet3-am-info", "net.raw"], ["nnet3-am-copy", "net.raw", "x"]])
def test_raw_network_is_no_acoustic_model(call, args):
    refused(call(*args), "net.raw: a raw network, not an acoustic model: nnet3-copy and nnet3-info")


def test_damaged_transition_model(call):
    data = Path("net.mdl").read_bytes()
    Path("bad.mdl").write_bytes(data.replace(b"<Triples> 2", b"<Triples> 900000000"))
    refused(call("nnet3-am-copy", "bad.mdl", "out.mdl"), "transition model: 900000000 entries")
    done(call("nnet3-am-copy", "--binary=false", "bad.mdl", "out.mdl"))  # kept as it stands


# -- show and verify ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["net.raw", "net.txt", "net.mdl"])
def test_show_and_verify(call, file):
    out = done(call("show", file)).decode()
    nnet = Nnet.read(file)
    assert out.startswith(f'{nnet.summary()}\n\nnet "nnet3" PLAIN version 1\n')
    assert out.startswith("context     left ") and "nnet3.component_node" in out
    assert done(call("show", "--dot", file)).startswith(b"digraph")
    assert done(call("show", "--svg", "-", file)).decode() == nnet.to_svg()
    count = Nnet.read(file).num_parameters
    told = f"{file}: 12 nodes, 5 components, {count} parameters, no error\n"
    assert done(call("verify", file)).decode() == told


def test_verify_warns(call):
    done(call("nnet3-init", "net.raw", "more.config", "out.raw"))
    lines = done(call("verify", "out.raw")).decode().splitlines()
    assert lines[:2] == [
        "warning: out.raw: Node n is never used to compute any output.",
        "warning: out.raw: Node d is never used to compute any output.",
    ]
    assert lines[-1].endswith("no error")


def test_verify_finds_damage(call):
    data = Path("net.txt").read_bytes()
    Path("bad.raw").write_bytes(data.replace(b"<DropoutProportion> 0.5", b"<DropoutProportion> x"))
    code, out, err = call("verify", "bad.raw")
    assert (code, err) == (1, "bad.raw: 1 error\n")
    assert out.startswith(b"error: bad.raw: ") and b"line " in out


def test_verify_finds_a_damaged_transition_model(call):
    data = Path("net.mdl").read_bytes()
    Path("bad.mdl").write_bytes(data.replace(b"<Triples> 2", b"<Triples> 3"))
    code, out, err = call("verify", "bad.mdl")
    assert (code, err) == (1, "bad.mdl: 1 error\n")
    assert b"bad.mdl: an integer was expected here" in out and b"line 13" in out
