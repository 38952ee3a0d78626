"""Nets in memory and the messages of net.proto: attributes, variables, locations, files."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.dtypes import to_dtype, to_pb
from opscope.framework.base.errors import (
    FormatError,
    OpscopeError,
    ShapeError,
    format_shape,
    nearest,
    spelled,
)
from opscope.framework.ir.desc import (
    PARAMETER,
    caller_location,
    format_location,
    make_op,
    make_var,
)
from opscope.framework.ir.messages import (
    ATTR_FIELDS,
    FORMAT_VERSION,
    attr_type,
    attr_value,
    decode_attr,
    encode_attr,
    from_message,
    parse_net,
    serialize_net,
    to_message,
)
from opscope.framework.ir.op_list import Link, OpList, SourceLocation, StepDecl
from opscope.proto import net_pb2 as pb


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"),
        (np.bool_(False), "bool"),
        (-3, "int"),
        (np.int32(7), "int"),
        (0.5, "float"),
        (np.float32(0.5), "float"),
        ("text", "string"),
        ((1, 2), "ints"),
        ((0.5, 1), "floats"),
        (("a", "b"), "strings"),
        ((True, False), "bools"),
        (np.dtype("int16"), "dtype"),
    ],
)
def test_values_come_back_with_their_type(value, kind):
    attr = encode_attr(value)
    assert attr_type(attr) == kind
    assert decode_attr(attr) == value
    held = attr_value(value)
    assert attr_type(held) == kind and held == value
    assert type(held) in (bool, int, float, str, tuple) or isinstance(held, np.dtype)


def test_every_declared_type_has_a_field():
    fields = {field.name for field in pb.Attr.DESCRIPTOR.fields}
    assert set(ATTR_FIELDS.values()) == fields


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "float16", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_tensors_come_back_whatever_their_strides(dtype, shape):
    value = np.arange(int(np.prod(shape)), dtype="int64").reshape(shape).astype(dtype)
    for given in (value, value.T.copy().T):
        found = decode_attr(encode_attr(given))
        assert found.dtype == value.dtype and found.shape == shape
        assert np.array_equal(found, value)


@pytest.mark.parametrize(
    ("dims", "data"), [([2], b"1234567"), ([-1], b""), ([1 << 40], b""), ([1 << 62, 4], b"")]
)
def test_damaged_tensors(dims, data):
    attr = pb.Attr()
    attr.tensor.dtype, attr.tensor.data = pb.FLOAT32, data
    attr.tensor.dims.extend(dims)
    with pytest.raises(FormatError, match="a tensor attribute"):
        decode_attr(attr)


def test_an_unset_attribute():
    assert attr_type(pb.Attr()) == ""
    with pytest.raises(FormatError, match="holds no value"):
        decode_attr(pb.Attr())


def test_operators_from_python_values():
    op = make_op("t", {"x": "a", "y": ["b", "c"], "z": []}, {"out": "d"}, {"n": 1, "none": None})
    assert op.inputs == {"x": ("a",), "y": ("b", "c")}
    assert list(op.input_names()) == ["a", "b", "c"] and list(op.output_names()) == ["d"]
    assert list(op.attrs) == ["n"], "None leaves an attribute to its default"
    renamed = op.renamed({"a": "A", "d": "D"})
    assert list(renamed.input_names()) == ["A", "b", "c"] and list(op.output_names()) == ["d"]


def test_variables_of_unknown_shape_and_dtype():
    known = make_var("v", (-1, 3), "float16", PARAMETER)
    assert known.shape == (-1, 3) and known.dtype == np.float16
    unknown = make_var("v", None, None)
    assert unknown.shape is None and unknown.dtype is None
    assert make_var("v", ()).shape == ()


def test_copies_have_lists_of_their_own():
    desc = OpList(ops=[make_op("t", {"x": "a"}, {})], steps=[StepDecl(in_links=[Link("a", "b")])])
    copy = desc.copy()
    copy.ops[0] = copy.ops[0].renamed({"a": "b"})
    copy.steps[0].in_links[0].inner = "c"
    copy.metadata["k"] = "v"
    assert desc.ops[0].inputs == {"x": ("a",)} and desc.metadata == {}
    assert desc.steps[0].in_links == [Link("a", "b")]


def test_what_nothing_renames_stays_the_same_object():
    op = make_op("t", {"x": "a"}, {"out": "b"})
    assert op.renamed({"c": "d"}) is op
    assert op.renamed({"b": "d"}).outputs == {"out": ("d",)}


def test_arrays_in_attributes_cannot_be_changed():
    given = np.arange(3.0)
    held = attr_value(given)
    given[0] = 7
    assert held.tolist() == [0, 1, 2] and attr_value(held) is held
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 1


def test_locations():
    here = caller_location()
    assert here.file == __file__ and here.line > 0
    assert format_location(SourceLocation("f", 3, 4)) == "f:3:4"
    assert format_location(SourceLocation("f")) == "f"
    assert format_location(SourceLocation(line=3)) == ""


# -- the wire form -----------------------------------------------------------------------------


def net():
    desc = OpList("n", metadata={"b": "2", "a": "1"})
    desc.vars.append(make_var("x", (-1, 3)))
    desc.ops.append(make_op("toy_square", {"x": "x"}, {"out": "y"}, {"bias": 0.5}))
    return desc


def test_equal_nets_give_equal_bytes():
    one, other = net(), net()
    other.metadata.clear()
    other.metadata["a"], other.metadata["b"] = "1", "2"
    assert serialize_net(one) == serialize_net(other)


def test_a_net_comes_back():
    found = parse_net(serialize_net(net()))
    assert found.format_version == FORMAT_VERSION
    found.format_version = 0
    assert found == to_message(net())


def test_a_newer_format_is_refused_by_name():
    desc = net()
    desc.format_version = FORMAT_VERSION + 1
    with pytest.raises(FormatError, match=f"x.pb: format version {FORMAT_VERSION + 1} is newer"):
        parse_net(to_message(desc).SerializeToString(), "x.pb")


def test_older_formats_load():
    for version in range(1, FORMAT_VERSION + 1):
        desc = net()
        desc.format_version = version
        assert parse_net(to_message(desc).SerializeToString()).name == "n"


def test_bytes_that_are_no_net():
    with pytest.raises(FormatError, match="file.pb: holds no format version"):
        parse_net(b"", "file.pb")
    with pytest.raises(FormatError, match=r"file.pb: \d+ bytes are no NetDesc"):
        parse_net(b"\xff" * 40, "file.pb")


def test_every_truncation_is_refused_or_is_a_shorter_net():
    data = serialize_net(net())
    for length in range(len(data)):
        try:
            found = parse_net(data[:length])
        except FormatError:
            continue
        assert len(found.ops) <= 1


def test_random_bytes_raise_nothing_else():
    rng = np.random.default_rng(0)
    data = serialize_net(net())
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        try:
            parse_net(bytes(damaged))
        except OpscopeError:
            pass


def test_messages_come_back_as_they_were():
    """Whatever a file says, right or wrong, is written again as it was read."""
    desc = to_message(net())
    op = desc.ops[0]
    op.inputs.add(name="x", vars=["again"])
    op.outputs.add(name="none")
    op.source.SetInParent()
    op.attrs["unset"].SetInParent()
    op.attrs["dtype"].dtype = 99
    op.attrs["hurt"].tensor.dims.append(5)
    for kind in ("ints", "floats", "strings", "bools"):
        getattr(op.attrs[kind], kind).SetInParent()
    op.attrs["net"].net.CopyFrom(to_message(net()))
    var = desc.vars[0]
    var.dtype, var.kind, var.lr_factor, var.sequence_levels = 99, 77, 0.0, 2
    var.view.SetInParent()
    var.initializer.SetInParent()
    desc.vars.add(name="rank 0", has_dims=True)
    step = desc.steps.add(reverse=True, arity=3, parents="p", positions="q")
    step.net.ops.append(op)
    step.child_net.SetInParent()
    for links in (step.in_links, step.out_links, step.static_links, step.sum_links):
        links.add(outer="o", inner="i")
    step.child_links.add(outer="c")
    step.memories.add(state="s", previous="p", boot_value=-0.0, delay=3, final="f", child=1)
    desc.type, desc.format_version = 7, 1
    found = to_message(from_message(desc))
    assert found == desc
    assert found.SerializeToString(deterministic=True) == desc.SerializeToString(deterministic=True)


# -- dtypes and texts --------------------------------------------------------------------------


def test_dtypes_by_name_type_and_number():
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float64"):
        dtype = np.dtype(name)
        assert to_dtype(name) == to_dtype(dtype) == to_dtype(dtype.type) == dtype
        assert to_dtype(to_pb(name)) == dtype


@pytest.mark.parametrize("value", ["flaot32", "complex64", "object", 77, np.dtype("U3"), [], 0])
def test_dtypes_that_no_net_holds(value):
    with pytest.raises(ShapeError):
        to_dtype(value)


def test_dtype_hints():
    with pytest.raises(ShapeError, match=r"'flaot32' is not a dtype.*did you mean float32"):
        to_dtype("flaot32")


def test_texts():
    assert format_shape((-1, 3)) == "[?, 3]" and format_shape(()) == "[]"
    assert format_shape(None) == "[...]"
    assert nearest("wieght", ["weight", "bias"]) == " (did you mean weight?)"
    assert nearest("zzz", ["weight"]) == ""
    assert nearest("acc", ["cost", "accuracy"]) == " (did you mean accuracy?)", "short for it"
    assert nearest("ac", ["cost", "accuracy"]) == ""


def test_messages_escape_what_commands_a_terminal():
    raw = "net \x1b[31ma\x9b\u202eb\u2066\r\x00\u2028: \u00e4 \u3042\n\tc\x7f"
    assert str(OpscopeError(raw)) == (
        "net \\x1b[31ma\\x9b\\u202eb\\u2066\\x0d\\x00\\u2028: \u00e4 \u3042\n\tc\\x7f"
    )
    longest = str(FormatError("\x1b" * 1000))
    assert len(longest) <= 500 and longest.isprintable()


def test_names_are_spelled_in_any_case_with_any_separators():
    names = ["adam", "adam_w", "log_softmax", "a1", "A1", "Ab", "ab"]
    for typed in ("AdamW", "adam-w", "ADAM W", "adam_w"):
        assert spelled(typed, names) == "adam_w"
    assert spelled("LogSoftMax", names) == "log_softmax"
    assert [spelled(name, names) for name in ("A1", "a1", "AB", "adm", "-", "")] == [
        "A1", "a1", "AB", "adm", "-", ""
    ], "exact names, several that could be meant, and none"  # fmt: skip
