"""ONNX files: what is written others read, what is read is what others wrote, damage is told."""

from __future__ import annotations

import os

import numpy as np
import pytest

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.reading import parse_model, read_model
from opscope.bridges.onnx.files.tensors import to_array
from opscope.bridges.onnx.files.writing import write_model
from opscope.framework.base.errors import FormatError
from opscope.proto import onnx_pb2 as pb


def small_graph() -> Graph:
    graph = Graph("g")
    x = graph.input("x", np.float32, ["N", 3])
    w = graph.constant(np.arange(600, dtype=np.float32).reshape(3, 200), "w")
    assert graph.constant(np.zeros(2, np.int64)) == graph.constant(np.zeros(2, np.int64))
    y = graph.node("MatMul", [x, w], "y")
    graph.output(y, np.float32, ["N", 200])
    return graph


@pytest.mark.parametrize("external", [False, True])
def test_what_is_written_runs(tmp_path, external):
    checker = pytest.importorskip("onnx.checker")
    ort = pytest.importorskip("onnxruntime")
    path = str(tmp_path / "m.onnx")
    files = write_model(path, small_graph(), external=external)
    assert len(files) == 1 + external
    checker.check_model(path, full_check=True)
    x = np.ones((2, 3), np.float32)
    (found,) = ort.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_array_equal(found, x @ np.arange(600, dtype=np.float32).reshape(3, 200))
    read = read_model(path)
    tensors = {t.name: to_array(t, read.folder, path) for t in read.model.graph.initializer}
    np.testing.assert_array_equal(tensors["w"].reshape(-1), np.arange(600, dtype=np.float32))
    write_model(path, small_graph(), external=False)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


DTYPES = (
    "float32 uint8 int8 uint16 int16 int32 int64 bool float16 float64 uint32 uint64 complex64"
    " complex128"
).split()


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_others(dtype, raw):
    helper = pytest.importorskip("onnx.helper")
    numpy_helper = pytest.importorskip("onnx.numpy_helper")
    array = np.array([[0, 1, 5], [100, 1, 0]]).astype(dtype)
    if raw:
        other = numpy_helper.from_array(array, "a")
    else:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        values = array.reshape(-1).tolist()
        other = helper.make_tensor("a", kind, array.shape, values)
    ours = pb.TensorProto.FromString(other.SerializeToString())
    found = to_array(ours, ".", "f")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_four_bits():
    helper = pytest.importorskip("onnx.helper")
    other = helper.make_tensor("a", 22, [5], [-8, 7, -1, 0, 3])
    ours = pb.TensorProto.FromString(other.SerializeToString())
    np.testing.assert_array_equal(to_array(ours, ".", "f"), [-8, 7, -1, 0, 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(dims=[2, -1]), r"shape \[2, -1\]"),
        (dict(dims=[3]), r"8 bytes; 12 are wanted"),
        (dict(data_type=17), "FLOAT8E4M3FN are not supported"),
        (dict(data_type=99), "type 99"),
        (dict(dims=[1] * 65), "65 dimensions"),
        (dict(dims=[2**32 - 1] * 3 + [0], raw_data=b""), "beyond the limit of"),
    ],
)
def test_damaged_arrays(change, message):
    tensor = pb.TensorProto(name="a", dims=[2], data_type=1, raw_data=b"\0" * 8)
    for key, value in change.items():
        tensor.ClearField(key)
        if isinstance(value, list):
            getattr(tensor, key).extend(value)
        else:
            setattr(tensor, key, value)
    with pytest.raises(FormatError, match=f"f: tensor 'a'.*{message}"):
        to_array(tensor, ".", "f")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/etc/passwd", "outside of the folder"),
        ("../x", "f: tensor 'a': external data: '.*' .*lies outside of"),
        ("link/hosts", "external data: '.*' .which is '/etc/hosts'. lies outside of"),
        ("gone", "No such file"),
        ("pipe", "external data: .*pipe: a pipe or a device, not a file"),
        ("a\0b", "external data: .*holds a NUL"),
        (".", "external data: .*a folder, not a file"),
        ("short", "bytes 0 to 8 of 'short' are wanted, which has 3"),
        ("", "without a location"),
    ],
)
def test_external_data_elsewhere(tmp_path, location, message):
    (tmp_path / "short").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    tensor = pb.TensorProto(name="a", dims=[2], data_type=1)
    tensor.data_location = pb.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    with pytest.raises(FormatError, match=message):
        to_array(tensor, str(tmp_path), "f")


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "no graph"), (b"\xff\xff", "not an ONNX file"), (b"\x3a\x00", "names no operator set")],
)
def test_no_models(data, message):
    with pytest.raises(FormatError, match=message):
        parse_model(data, "f.onnx", ".")
