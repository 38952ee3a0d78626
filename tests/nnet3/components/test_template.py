"""Templates of operators: what is checked once holds for each, and what differs is put in."""

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, SlotError, UnknownOperatorError
from opscope.framework.ir.desc import BACKWARD
from opscope.framework.ir.operation import Operator
from opscope.nnet3 import Nnet, compile_request, simple_request, xconfig_to_config
from opscope.nnet3.components.base.lowered_op import Attrs, LoweredOp, field_of_indexes, of_indexes
from opscope.nnet3.components.base.lowering import IN_DERIV, OUT, OUT_DERIV, PARAMETER, X
from opscope.nnet3.components.base.template import Template

XCONFIG = """
input name=input dim=4
relu-batchnorm-layer name=tdnn1 dim=6 input=Append(-1,0,1)
tdnnf-layer name=tdnnf2 dim=6 bottleneck-dim=3 time-stride=1
fast-lstmp-layer name=lstm3 cell-dim=6 recurrent-projection-dim=3 non-recurrent-projection-dim=2
output-layer name=output dim=5
"""


@pytest.mark.parametrize("natural_gradient", [False, True])
def test_what_is_known_of_operators_is_what_a_check_finds(natural_gradient):
    nnet = Nnet.from_config_text(xconfig_to_config(XCONFIG), 0)
    request = simple_request(nnet, 4, 2, left_context=3, right_context=3, derivatives=True)
    net = compile_request(nnet, request, natural_gradient=natural_gradient)
    known = 0
    for node in net.ops:
        made, checked = Operator(node), Operator(node.changed(attrs=dict(node.attrs)))
        known += node.checked is not None
        assert made.entry is checked.entry
        assert made.inputs == checked.inputs and made.outputs == checked.outputs
        assert list(made.attrs) == list(checked.attrs)
        for name, value in made.attrs.items():
            assert type(value) is type(checked.attrs[name])
            np.testing.assert_array_equal(value, checked.attrs[name])
    assert known == len(net.ops) > 50


def test_names_of_variables():
    own = f"{PARAMETER}w"
    steps = [
        LoweredOp.of("matmul", {"x": X, "y": own}, {"out": "temp/0"}),
        LoweredOp.of("sum", {"x": ["temp/0", OUT_DERIV, X]}, {"out": OUT}),
        LoweredOp.of("matmul_grad", {"x": X, "y": own, "out_grad": OUT}, {"y_grad": f"{own}@D"}),
        LoweredOp.of("assign", {"x": "natural_gradient@FROZEN"}, {"out": IN_DERIV}),
    ]
    made = []
    Template(steps, BACKWARD).append(made, ("m1", "m2", "step7", "tdnn1", "g", "dx"))
    assert [(op.type, op.inputs, op.outputs) for op in made] == [
        ("matmul", {"x": ("m1",), "y": ("tdnn1/w",)}, {"out": ("step7/0",)}),
        ("sum", {"x": ("step7/0", "g", "m1")}, {"out": ("m2",)}),
        (
            "matmul_grad",
            {"x": ("m1",), "y": ("tdnn1/w",), "out_grad": ("m2",)},
            {"y_grad": ("tdnn1/w@GRAD",)},
        ),
        ("assign", {"x": ("natural_gradient@FROZEN",)}, {"out": ("dx",)}),
    ]
    assert all(op.role == BACKWARD and op.source is None for op in made)


def test_attributes_of_indexes():
    step = LoweredOp.of(
        "nnet3.copy_rows", {"x": X}, {"out": OUT}, {"rows": of_indexes(), "alpha": 2.0}
    )
    template, made = Template([step], 0), []
    for rows in ([1, 0], [2]):
        template.append(made, ("x", "y"), np.array(rows, np.int32))
    assert [op.attrs["rows"].tolist() for op in made] == [[1, 0], [2]]
    assert [Operator(op).attrs["rows"].tolist() for op in made] == [[1, 0], [2]]
    assert all(Operator(op).attrs["alpha"] == 2.0 for op in made)
    with pytest.raises(AttributeTypeError, match=r"rows='text' is string, want tensor"):
        template.append(made, ("x", "y"), "text")
    assert field_of_indexes(of_indexes("first")) == "first" and field_of_indexes("first") is None


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (LoweredOp.of("relu", {"y": X}, {"out": OUT}), SlotError),
        (LoweredOp.of("relu", {"x": [X, X]}, {"out": OUT}), SlotError),
        (LoweredOp.of("rleu", {"x": X}, {"out": OUT}), UnknownOperatorError),
        (LoweredOp.of("scale", {"x": X}, {"out": OUT}, {"scale": "text"}), AttributeTypeError),
    ],
)
def test_wrong_steps_are_refused(step, error):
    with pytest.raises(error):
        Template([step], 0)


def test_attributes_are_equal_where_values_and_types_are():
    one = {"a": 1, "b": [0.0, 1.0], "c": np.arange(3)}
    assert Attrs.of(one) == Attrs.of(dict(reversed(one.items())))
    assert hash(Attrs.of(one)) == hash(Attrs.of(dict(one)))
    for name, other in (("a", 1.0), ("a", True), ("b", [-0.0, 1.0]), ("c", np.arange(3.0))):
        assert Attrs.of(one) != Attrs.of(one | {name: other})
    assert Attrs.of({"a": float("nan")}) == Attrs.of({"a": float("nan")})
    assert Attrs.of({"a": 0.0}).values == {"a": 0.0}
