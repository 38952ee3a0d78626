"""Loading parameters by name, from every kind of file, with a report of what matched."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope, load_parameters
from opscope.framework.base.errors import FormatError, VariableError
from opscope.framework.files.tensor_file import write_tensors
from training_runs import BATCHES

NAMES = ("body.w", "body.b", "norm.mean", "head.w", "head.b")


def net(classes=3, prefix="", head="head", dtype="float32", train=True):
    """An affine body, a running mean that forward operators keep, and an affine head."""
    b = NetBuilder("net", dtype)
    x, label = b.input("x", [-1, 6]), b.input("label", [-1], "int64")
    w, bias = b.parameter(f"{prefix}body.w", [6, 8]), b.parameter(f"{prefix}body.b", [8], 0.5)
    mean = b.state(f"{prefix}norm.mean", [8], 0.25)
    hidden = b.tanh(b.add_op("affine", x, w, bias)) - mean
    w = b.parameter(f"{prefix}{head}.w", [8, classes])
    bias = b.parameter(f"{prefix}{head}.b", [classes], 0.125)
    scores = b.add_op("affine", hidden, w, bias, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label), name="loss")
    if train:
        b.backward_from("loss")
        b.add_optimization(0.1, "adam")
    return b


@pytest.fixture
def files(tmp_path):
    """A trained net as a saved pair, as a bare safetensors file and as a checkpoint."""
    b, scope = net(), Scope()
    opscope.train(
        b, BATCHES, epochs=1, scope=scope, checkpoint=tmp_path / "run", seed=1, progress=False
    )
    opscope.save(b, scope, tmp_path / "base")
    arrays = {name: scope.numpy(name) for name in NAMES}
    write(tmp_path / "bare.safetensors", arrays)
    return tmp_path, arrays


def write(path, arrays):
    with open(path, "wb") as file:
        write_tensors(file, arrays, {})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("base", "base.pb"),
        ("base.pb", "base.pb"),
        ("base.safetensors", "base.pb"),
        ("bare", "bare.safetensors"),
        ("bare.safetensors", "bare.safetensors"),
        ("run", "run.checkpoint"),
        ("run.checkpoint", "run.checkpoint"),
    ],
)
def test_every_kind_of_file(files, given, read):
    folder, arrays = files
    scope = Scope()
    report = load_parameters(folder / given, net(), scope)
    assert report.is_complete and set(report.loaded) == set(NAMES)
    assert report.path == str(folder / read)
    assert set(scope.names()) == set(NAMES)  # no states of the optimizer
    for name, array in arrays.items():
        np.testing.assert_array_equal(scope.numpy(name), array)
    assert str(report).startswith(f"{folder / read}: loaded 5 of 5 variables\n  loaded: body.w,")


def test_a_net_runs_with_what_was_loaded(files):
    folder, _ = files
    feed = {"x": np.ones((2, 6), "float32")}
    saved = NetBuilder.from_desc(opscope.load(folder / "base").net.desc)
    wanted = saved.run(
        opscope.load(folder / "base").scope, feed=feed, fetch=["scores"], need_backward=False
    )
    b, scope = net(train=False), Scope()
    load_parameters(folder / "base", b, scope)
    found = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)
    np.testing.assert_array_equal(found["scores"], wanted["scores"])


def test_another_head(files):
    folder, arrays = files
    b, scope = net(classes=5), Scope()
    report = load_parameters(folder / "base", b, scope, strict=False)
    assert report.loaded == ("body.w", "body.b", "norm.mean")
    assert report.differing == {
        "head.w": ("float32[8, 3]", "float32[8, 5]"),
        "head.b": ("float32[3]", "float32[5]"),
    }
    assert report.missing == report.unexpected == () and not report.is_complete
    assert "other shape: head.w is float32[8, 3] there and float32[8, 5] here, head.b" in str(
        report
    )
    b.initialize(scope)  # the rest
    np.testing.assert_array_equal(scope.numpy("body.w"), arrays["body.w"])
    np.testing.assert_array_equal(scope.numpy("head.b"), np.full(5, 0.125, "float32"))


def test_a_head_of_another_name(files):
    folder, _ = files
    report = load_parameters(folder / "base", net(head="new"), Scope(), strict=False)
    assert report.missing == ("new.w", "new.b") and set(report.unexpected) == {"head.w", "head.b"}
    assert "missing there: new.w, new.b" in str(report)
    assert "left over there: head." in str(report)


def test_strict_refuses_with_the_report_and_changes_nothing(files):
    folder, _ = files
    scope = Scope()
    for other in (net(classes=5), net(head="new")):
        with pytest.raises(FormatError, match="(?s)loaded 3 of 5 variables.*strict=False loads"):
            load_parameters(folder / "base", other, scope)
    assert scope.names() == []


def test_nothing_matches(files):
    folder, _ = files
    with pytest.raises(FormatError, match="(?s)loaded 0 of 5 .*no name of the net is there"):
        load_parameters(folder / "base", net(prefix="a."), Scope(), strict=False)


def test_rename(files):
    folder, arrays = files
    scope = Scope()
    names = {"head.w": "new.w", "head.b": "new.b"}
    report = load_parameters(folder / "base", net(head="new"), scope, rename=names)
    assert report.renamed == {"new.w": "head.w", "new.b": "head.b"}
    assert "under another name: new.w from head.w, new.b from head.b" in str(report)
    np.testing.assert_array_equal(scope.numpy("new.w"), arrays["head.w"])
    report = load_parameters(folder / "base", net(prefix="a."), scope, rename=lambda n: f"a.{n}")
    assert report.is_complete
    np.testing.assert_array_equal(scope.numpy("a.head.w"), arrays["head.w"])


def test_rename_to_none_leaves_out(files):
    folder, _ = files
    leave = {"head.w": None, "head.b": None}
    report = load_parameters(folder / "base", net(head="new"), Scope(), rename=leave, strict=False)
    assert report.unexpected == () and report.missing == ("new.w", "new.b")


def test_prefix(files, tmp_path):
    _, arrays = files
    stored = {f"model.{name}": array for name, array in arrays.items()}
    write(tmp_path / "model.safetensors", stored | {"other": np.zeros(3)})
    scope = Scope()
    report = load_parameters(tmp_path / "model", net(), scope, prefix="model.")
    assert report.is_complete and report.renamed["head.w"] == "model.head.w"
    np.testing.assert_array_equal(scope.numpy("head.w"), arrays["head.w"])
    with pytest.raises(FormatError, match="no array begins with 'modell.'; there are "):
        load_parameters(tmp_path / "model", net(), scope, prefix="modell.")


def test_floating_dtypes_are_converted_and_others_are_not(files, tmp_path):
    folder, arrays = files
    scope = Scope()
    report = load_parameters(folder / "base", net(dtype="float64"), scope)
    assert report.converted["body.w"] == ("float32", "float64")
    assert scope.get("body.w").array.dtype == np.float64
    assert "converted: body.w from float32 to float64" in str(report)
    write(tmp_path / "ints.safetensors", arrays | {"head.b": np.ones(3, "int64")})
    report = load_parameters(tmp_path / "ints", net(), scope, strict=False)
    assert report.differing == {"head.b": ("int64[3]", "float32[3]")}


def test_values_go_where_a_run_finds_them(files):
    folder, arrays = files
    whole = Scope()
    net().initialize(whole)
    load_parameters(folder / "base", net(), Scope(parent=whole))
    np.testing.assert_array_equal(whole.numpy("body.w"), arrays["body.w"])


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"head.ww": "new.w"}, r"base.pb holds no 'head.ww' .did you mean head.w"),
        ({"head.w": "body.w"}, r"'body.w' and 'head.w' of .* would both be 'body.w'"),
        (lambda name: "one", "would both be 'one'"),
    ],
)
def test_bad_renamings(files, rename, message):
    with pytest.raises(VariableError, match=message):
        load_parameters(files[0] / "base", net(), Scope(), rename=rename)


def test_files_that_are_not_there_or_something_else(files):
    folder, _ = files
    with pytest.raises(
        FormatError,
        match=r"nofile: No such file or directory; looked for .*nofile.pb, .*nofile.saf",
    ):
        load_parameters(folder / "nofile", net(), Scope())
    (folder / "model.pt").write_bytes(b"PK")
    with pytest.raises(FormatError, match=r"model.pt: parameters are read from .pb, .safetensors"):
        load_parameters(folder / "model.pt", net(), Scope())
    (folder / "bare.safetensors").write_bytes(b"damaged")
    with pytest.raises(FormatError, match="no whole safetensors file"):
        load_parameters(folder / "bare", net(), Scope())
    with pytest.raises(VariableError, match="want a net"):
        load_parameters(folder / "base", Scope(), Scope())
