"""Saving and loading: the pair of files, and every way in which it can be damaged."""

from __future__ import annotations

import errno
import json
import os
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import opscope
from opscope.framework.base.errors import FormatError, OpscopeError, SaveError, VariableError
from opscope.framework.base.files import atomic
from opscope.framework.base.scope import Scope
from opscope.framework.files.saved import Loaded, load, load_desc, paths_of, save
from opscope.framework.files.tensor_file import TensorFile, write_tensors
from opscope.framework.ir.desc import INPUT, PARAMETER, STATE, NetDesc, make_op, make_var
from opscope.framework.ir.messages import serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.net import Net

VALUES = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3) - 3,
    "half": np.ones((2, 2), np.float16),
    "wide": np.array([1e300]),
    "count": np.array(7, np.int64),
    "mask": np.array([True, False, True]),
    "byte": np.array([255], np.uint8),
    "none": np.zeros((0, 4), np.int8),
    '\u00e9@ADAM "x"\n': np.zeros(1, np.int16),
    "i32": np.array([-5], np.int32),
}


def make_net():
    net = OpList(name="t")
    net.metadata["who"] = "me"
    net.vars.append(make_var("x", [-1, 3], "float32", INPUT))
    for name, value in VALUES.items():
        kind = PARAMETER if value.dtype.kind == "f" else STATE
        net.vars.append(make_var(name, value.shape, value.dtype, kind))
    net.vars.append(make_var("y", [2, 3]))
    net.ops.append(make_op("relu", {"x": "w"}, {"out": "y"}))
    return net


@pytest.fixture
def saved(tmp_path):
    scope = Scope()
    scope.feed(VALUES)
    save(make_net(), scope, tmp_path / "net")
    return tmp_path / "net"


def pb_of(path):
    return path.with_name(path.name + ".pb")


def tensors_of(path):
    return path.with_name(path.name + ".safetensors")


def rewrite(path, change):
    """Let another tool rewrite the tensors, without the common mark."""
    tensors = load_file(tensors_of(path))
    change(tensors)
    save_file(tensors, tensors_of(path))


def test_round_trip(saved):
    net, scope = opscope.load(saved)
    assert sorted(scope.names()) == sorted(VALUES)
    for name, value in VALUES.items():
        found = scope.numpy(name)
        assert found.dtype == value.dtype and found.shape == value.shape
        assert np.array_equal(found, value)
    net.run(scope)
    assert np.array_equal(scope.numpy("y"), np.maximum(VALUES["w"], 0))
    assert dict(net.desc.metadata) == {"who": "me"}


def test_loaded_is_named(saved):
    loaded = load(saved)
    assert isinstance(loaded, Loaded)
    assert loaded.desc is loaded.net.desc
    assert loaded.desc.name == "t"


@pytest.mark.parametrize("suffix", ["", ".pb", ".safetensors"])
def test_paths(saved, suffix):
    path = str(saved) + suffix
    assert paths_of(path) == (f"{saved}.pb", f"{saved}.safetensors")
    load(path)
    assert paths_of("a/model.v1") == ("a/model.v1.pb", "a/model.v1.safetensors")


def test_the_safetensors_library_reads_what_we_write(saved):
    tensors = load_file(tensors_of(saved))
    assert sorted(tensors) == sorted(VALUES)
    assert all(np.array_equal(tensors[name], value) for name, value in VALUES.items())
    assert TensorFile(tensors_of(saved)).metadata["opscope.net"] == "t"


def test_equal_nets_give_equal_bytes(saved, tmp_path):
    loaded = load(saved)
    save(loaded.net, loaded.scope, tmp_path / "again.pb")
    assert pb_of(saved).read_bytes() == (tmp_path / "again.pb").read_bytes()
    again = (tmp_path / "again.safetensors").read_bytes()
    assert tensors_of(saved).read_bytes() == again


def test_save_takes_strided_values(tmp_path):
    net = OpList()
    net.vars.append(make_var("w", [2, 3], "float32", PARAMETER))
    scope = Scope()
    scope.var("w").bind(np.arange(6, dtype=np.float32).reshape(3, 2).T)
    save(net, scope, tmp_path / "n")
    assert load(tmp_path / "n").scope.numpy("w").tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_net_without_parameters(tmp_path):
    net = OpList(name="bare")
    net.ops.append(make_op("relu", {"x": "x"}, {"out": "y"}))
    save(net, Scope(), tmp_path / "n")
    assert load(tmp_path / "n").scope.names() == []
    (tmp_path / "n.safetensors").unlink()
    (tmp_path / "n.pb").write_bytes(serialize_net(net))
    load(tmp_path / "n")


def test_save_names_all_missing_values(tmp_path):
    scope = Scope()
    scope.feed({name: value for name, value in VALUES.items() if name not in ("w", "mask")})
    with pytest.raises(VariableError, match="'t': no value in the scope: 'w', 'mask'"):
        save(make_net(), scope, tmp_path / "n")
    assert list(tmp_path.iterdir()) == []


def test_save_takes_nets_only(tmp_path):
    with pytest.raises(VariableError, match="want a net"):
        save(3, Scope(), tmp_path / "n")


def test_missing_folder(saved, tmp_path):
    loaded = load(saved)
    with pytest.raises(SaveError, match="there is no folder"):
        save(loaded.net, loaded.scope, tmp_path / "none" / "n")


def test_full_disk_leaves_both_files(saved, monkeypatch):
    before = pb_of(saved).read_bytes(), tensors_of(saved).read_bytes()
    net, scope = load(saved)
    scope.get("w").set(np.zeros((2, 3), np.float32))

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(SaveError, match="No space left on device"):
        save(net, scope, saved)
    assert before == (pb_of(saved).read_bytes(), tensors_of(saved).read_bytes())
    assert len(list(saved.parent.iterdir())) == 2


def test_a_save_cut_short_between_its_files_is_seen(saved):
    old = pb_of(saved).read_bytes()
    net, scope = load(saved)
    scope.get("w").set(np.zeros((2, 3), np.float32))
    save(net, scope, saved)
    pb_of(saved).write_bytes(old)
    with pytest.raises(FormatError, match="belongs to another save than"):
        load(saved)


def test_missing_files(saved):
    tensors_of(saved).unlink()
    with pytest.raises(FormatError, match=r"net\.safetensors: No such file or directory"):
        load(saved)
    pb_of(saved).unlink()
    for read in (load, load_desc):
        with pytest.raises(
            FormatError, match=r"net: No such file or directory; looked for .*net\.pb"
        ):
            read(saved)


def test_folders_in_place_of_files(saved):
    for path in (tensors_of(saved), pb_of(saved)):
        path.unlink()
        path.mkdir()
        with pytest.raises(FormatError, match=path.name):
            load(saved)


def test_every_truncation_of_the_net_is_refused(saved):
    whole = pb_of(saved).read_bytes()
    for length in range(len(whole)):
        pb_of(saved).write_bytes(whole[:length])
        with pytest.raises(OpscopeError):
            load(saved)


def test_every_truncation_of_the_tensors_is_refused(saved):
    whole = tensors_of(saved).read_bytes()
    for length in range(0, len(whole), 7):
        tensors_of(saved).write_bytes(whole[:length])
        with pytest.raises(FormatError, match="no whole safetensors file"):
            load(saved)


def test_random_bytes(saved):
    rng = np.random.default_rng(0)
    for size in (1, 30, 3000):
        for _ in range(20):
            for path in (tensors_of(saved), pb_of(saved)):
                whole = path.read_bytes()
                path.write_bytes(rng.bytes(size))
                with pytest.raises(FormatError, match=path.name):
                    load(saved)
                path.write_bytes(whole)


def test_a_flipped_bit_in_the_data_is_seen(saved):
    whole = bytearray(tensors_of(saved).read_bytes())
    whole[-1] ^= 1
    tensors_of(saved).write_bytes(bytes(whole))
    with pytest.raises(FormatError, match="damaged"):
        load(saved)


def test_a_huge_size_allocates_nothing(saved):
    entry = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}
    header = json.dumps({"w": entry}).encode()
    tensors_of(saved).write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(FormatError, match="no whole safetensors file"):
        load(saved)


def test_a_newer_format_is_refused_by_name(saved):
    net = NetDesc.FromString(pb_of(saved).read_bytes())
    assert net.format_version == 1
    net.format_version = 7
    pb_of(saved).write_bytes(net.SerializeToString())
    with pytest.raises(FormatError, match="format version 7 is newer than 1"):
        load(saved)


def test_tensors_of_another_tool_are_taken(saved):
    rewrite(saved, lambda tensors: tensors.update(w=tensors["w"] + 1, more=np.zeros(3)))
    scope = load(saved).scope
    assert np.array_equal(scope.numpy("w"), VALUES["w"] + 1)
    assert "more" not in scope


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("w"), "lacks the variable 'w'"),
        (lambda t: t.update(w=t["w"].T.copy()), r"'w' is float32\[3, 2\], but the net wants"),
        (lambda t: t.update(w=t["w"].astype(float)), "'w' is float64"),
        (lambda t: t.update(count=np.zeros(1, np.int64)), r"'count' is int64\[1\]"),
        (lambda t: t.update(w=np.zeros((2, 3), np.uint16)), "'w' is of dtype U16"),
    ],
)
def test_parameters_that_do_not_fit_leave_the_scope(saved, change, message):
    rewrite(saved, change)
    scope = Scope()
    scope.feed({"w": np.full((2, 3), 9, np.float32)})
    with pytest.raises(FormatError, match=message):
        load(saved, scope=scope)
    assert scope.names() == ["w"]
    assert scope.numpy("w").tolist() == [[9] * 3] * 2


def test_an_unknown_operator_leaves_the_scope(saved):
    net = NetDesc.FromString(pb_of(saved).read_bytes())
    net.ops[0].type = "rellu"
    pb_of(saved).write_bytes(net.SerializeToString())
    scope = Scope()
    with pytest.raises(OpscopeError, match="did you mean relu"):
        load(saved, scope=scope)
    assert scope.names() == []


def test_load_into_a_scope_that_is_in_use(saved):
    net, scope = load(saved)
    net.run(scope)
    changed = Net.create(net.desc)
    scope.get("w").set(np.zeros((2, 3), np.float32))
    net.run(scope)
    load(saved, scope=scope)
    for one in (net, changed):
        one.run(scope)
        assert np.array_equal(scope.numpy("y"), np.maximum(VALUES["w"], 0))


def test_a_variable_without_a_name_is_refused(saved):
    """It is no variable that the scope may hold: found by the campaign, with a view of it."""
    message = NetDesc.FromString(pb_of(saved).read_bytes())
    message.vars.add().name = ""
    pb_of(saved).write_bytes(message.SerializeToString())
    with pytest.raises(FormatError, match="a variable is named ''"):
        load(saved)


def test_a_file_of_arrays_that_shrinks(tmp_path):
    path = tmp_path / "a.safetensors"
    arrays = {"a": np.ones(3, np.float32), "b": np.ones((512, 512)), "c": np.zeros((0, 2))}
    with path.open("wb") as file:
        write_tensors(file, arrays, {})
    tensors = TensorFile(path)
    assert all(np.array_equal(tensors.read(name), arrays[name]) for name in arrays)
    tensors.read("a")[0] = 2  # memory of its own
    os.truncate(path, 5000)
    with pytest.raises(FormatError, match=r"a\.safetensors: 'b' cannot be read: .* ends at byte"):
        tensors.read("b")
