"""Registration: schema, attribute types and bounds, kernels by device, dtype and library."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, OpscopeError, UnknownOperatorError
from opscope.framework.ir.desc import make_op
from opscope.framework.ir.messages import encode_attr
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.registry import (
    AttrSpec,
    Slot,
    lookup,
    operator,
    operator_types,
    unregister,
)


def spec(kind, **fields):
    return AttrSpec("a", kind, "an attribute", **fields)


@pytest.mark.parametrize(
    ("kind", "given", "held"),
    [
        ("int", 3, 3),
        ("int", np.int64(3), 3),
        ("float", 3, 3.0),
        ("float", np.float32(0.5), 0.5),
        ("bool", True, True),
        ("string", "s", "s"),
        ("ints", (1, 2), (1, 2)),
        ("ints", 4, (4,)),
        ("ints", [], ()),
        ("floats", [1, 2], (1.0, 2.0)),
        ("floats", 1, (1.0,)),
        ("strings", ["a"], ("a",)),
        ("strings", "a", ("a",)),
        ("bools", [True, False], (True, False)),
        ("dtype", "float16", np.dtype("float16")),
        ("dtype", np.dtype("int8"), np.dtype("int8")),
    ],
)
def test_values_that_fit(kind, given, held):
    found = spec(kind).check(given, "op")
    assert found == held and type(found) is type(held)


def test_tensors():
    value = np.array([[1, 2]], np.int32)
    found = spec("tensor").check(value, "op")
    assert found.dtype == value.dtype and np.array_equal(found, value)
    assert spec("tensor").check([1.0, 2.0], "op").tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("int", 3.0),
        ("int", True),
        ("float", "x"),
        ("bool", 1),
        ("string", 1),
        ("ints", [1.5]),
        ("ints", "ab"),
        ("floats", ["a"]),
        ("strings", [1]),
        ("dtype", 3.5),
        ("net", 1),
    ],
)
def test_values_of_a_wrong_type(kind, given):
    with pytest.raises(AttributeTypeError, match=r"op 3 \(t\): a=.* is \w+, want "):
        spec(kind).check(given, "op 3 (t)")


@pytest.mark.parametrize("value", [None, object(), [1, "a"], {"a": 1}, 1j, 1 << 70])
def test_values_that_no_attribute_holds(value):
    with pytest.raises(AttributeTypeError):
        encode_attr(value)


def test_bounds_hold_for_every_item_and_refuse_nan():
    bounded = spec("ints", minimum=0, maximum=4)
    assert bounded.check((0, 4), "op") == (0, 4)
    with pytest.raises(AttributeTypeError, match="a=-1 is below 0"):
        bounded.check((2, -1), "op")
    with pytest.raises(AttributeTypeError, match="a=5 is above 4"):
        bounded.check(5, "op")
    with pytest.raises(AttributeTypeError):
        spec("float", minimum=0.0).check(float("nan"), "op")


def test_choices_with_the_nearest():
    with pytest.raises(AttributeTypeError, match=r"'meen' is none of 'mean', 'sum'.*mean\?"):
        spec("string", choices=("mean", "sum")).check("meen", "op")


def test_a_type_that_no_attribute_has():
    with pytest.raises(AttributeTypeError, match="no such type: 'integer'"):
        spec("integer")


def test_no_doc_no_registration():
    with pytest.raises(OpscopeError, match="has no doc text"):
        operator("toy_undocumented", doc="  ")
    assert "toy_undocumented" not in operator_types()


def test_one_registration_a_type():
    with pytest.raises(OpscopeError, match="'toy_add' is registered already"):
        operator("toy_add", doc="again")


def test_unknown_types_name_the_nearest():
    with pytest.raises(UnknownOperatorError, match=r"no operator of type 'toy_ad'.*toy_add"):
        lookup("toy_ad")


@pytest.fixture
def layered():
    made = operator(
        "toy_layered",
        doc="has several kernels",
        inputs=[Slot("x", "any")],
        outputs=[Slot("out", "any")],
    )
    made.kernel(lambda k: "reference")
    made.kernel(lambda k: "float32 only", dtypes=["float32"], library="fast")
    made.kernel(lambda k: "gpu", device="gpu", library="fast")
    yield made
    unregister("toy_layered")


def chosen(entry, *arguments):
    return [kernel.bind(None) for kernel in entry.kernels_for(*arguments)]


def test_kernels_of_other_modules_are_there_where_an_import_registered_the_operator():
    """A process that has looked up nothing yet."""
    program = """
import numpy
import opscope.operators.math.norm
from opscope.framework.ir.registry import REGISTERED
print(len(REGISTERED["batch_norm"].kernels_for("cpu", numpy.dtype("f4"), ("direct",))))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.strip() == b"1"


def test_kernels_are_chosen_by_device_dtype_and_library(layered):
    single, double = np.dtype("float32"), np.dtype("float64")
    assert chosen(layered, "cpu", single, ("fast", "xp")) == ["float32 only", "reference"]
    assert chosen(layered, "cpu", double, ("fast", "xp")) == ["reference"]
    assert chosen(layered, "gpu", double, ("fast", "xp")) == ["gpu", "reference"]
    assert chosen(layered, "cpu", single, ("xp",)) == ["reference"]
    assert chosen(layered, "cpu", single, ("xp", "fast")) == ["reference", "float32 only"]


def test_the_documented_class_as_a_message():
    proto = lookup("toy_square").to_proto()
    assert proto.type == "toy_square" and proto.gradient == "yes"
    (attr,) = proto.attrs
    assert (attr.name, attr.type, attr.minimum, attr.maximum) == ("bias", "float", -10, 10)
    assert attr.default_value.f == 0.0
    assert lookup("toy_sign").to_proto().gradient == "none: it is constant almost everywhere"
    assert proto.outputs[0].inplace == "x" and proto.outputs[0].not_in_gradient


def test_the_schema_of_a_gradient_follows_from_the_flags():
    grad = lookup("toy_relu_grad")
    assert [(slot.name, slot.shape_only) for slot in grad.inputs] == [
        ("x", True),
        ("out", False),
        ("out_grad", False),
    ]
    assert [(slot.name, slot.optional) for slot in grad.outputs] == [("x_grad", True)]
    assert "out" not in lookup("toy_mul_grad").input_slots, "an output that it does not read"


def test_an_operator_decodes_its_description():
    desc = make_op("toy_total", {"x": ["a", "@EMPTY@", "b"]}, {"out": "y"})
    op = Operator(desc, 4)
    assert op.input_vars() == ["a", "b"] and op.inputs["x"] == ("a", "@EMPTY@", "b")
    assert op.title() == "op 4 (toy_total)" and repr(op) == "<op 4 (toy_total)>"
    assert Operator(make_op("toy_square", {"x": "a"}, {"out": "b"})).attrs == {"bias": 0.0}
    given = {"x": "a", "out": "b", "out_grad": "c"}
    grad = Operator(make_op("toy_relu_grad", given, {"x_grad": "d"}))
    assert grad.value_reads() == ["b", "c"] and grad.input_vars() == ["a", "b", "c"]


def test_a_failed_load_is_told_every_time(monkeypatch):
    """Not once, and then a registry that seems to lack operators."""
    from opscope.framework.ir import registry

    def fail(*names):
        raise ImportError("a broken package of operators")

    monkeypatch.setattr(registry, "_load_state", "no")
    monkeypatch.setattr(registry, "_load_error", None)
    monkeypatch.setattr(registry.importlib, "import_module", fail)
    for _ in range(2):
        with pytest.raises(ImportError, match="a broken package of operators"):
            lookup("toy_nothing")
