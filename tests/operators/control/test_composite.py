"""fc and net: what they stand for, values and gradients, refusals."""

import numpy as np
import pytest

from opscope.framework.base.errors import (
    AttributeTypeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
)
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import (
    BACKWARD,
    INPUT,
    OUTPUT,
    PARAMETER,
    RECURRENT,
    STATE,
    make_op,
    make_var,
)
from opscope.framework.ir.infer import infer_one
from opscope.framework.ir.op_list import OpList, View
from opscope.framework.ir.operation import Operator, expand_op
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest


def text(op):
    """One line: outputs = type(inputs)."""
    reads = ", ".join(f"{slot}={'+'.join(names)}" for slot, names in op.inputs.items())
    return f"{'+'.join(op.output_names())} = {op.type}({reads})"


def expanded(*args, **kwargs):
    return [text(op) for op in expand_op(make_op(*args, **kwargs))]


class TestFc(OpTest):
    type = "fc"
    grad = ("x", "w", "b")

    def cases(self, rng):
        def inputs(*shapes, bias=True, flattened=1):
            made = {"x": [rng.normal(size=shape) for shape in shapes]}
            rows = [int(np.prod(shape[-flattened:])) for shape in shapes]
            made["w"] = [rng.normal(size=(k, 3)) for k in rows]
            return made | ({"b": rng.normal(size=3)} if bias else {})

        yield Case(inputs((4, 5)))
        yield Case(inputs((4, 5), bias=False), {"activation": "tanh"})
        yield Case(inputs((4, 5), (4, 2), (4, 1)), {"activation": "sigmoid"})
        yield Case(inputs((2, 3, 5)), {"activation": "tanh"})
        yield Case(inputs((2, 3, 5), (2, 2, 2), flattened=2), {"num_flatten_dims": 1})

    def reference(self, inputs, attrs):
        lead = [x.shape[: attrs["num_flatten_dims"]] for x in inputs["x"]]
        parts = zip(inputs["x"], inputs["w"], lead, strict=True)
        linear = sum(x.reshape(*s, len(w)) @ w for x, w, s in parts) + inputs.get("b", 0)
        functions = {"": lambda x: x, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
        return {"out": functions[attrs["activation"]](linear)}

    def test_stands_for(self):
        assert expanded("fc", {"x": "x", "w": "w", "b": "b"}, {"out": "y"}) == [
            "y = affine(x=x, w=w, b=b)"
        ]
        several = {"x": ["x0", "x1"], "w": ["w0", "w1"], "b": "b"}
        assert expanded("fc", several, {"out": "y"}, {"activation": "relu"}) == [
            "y@INNER@PRODUCT0 = affine(x=x0, w=w0, b=b)",
            "y@INNER@PRODUCT1 = affine(x=x1, w=w1)",
            "y@INNER@LINEAR = sum(x=y@INNER@PRODUCT0+y@INNER@PRODUCT1)",
            "y = relu(x=y@INNER@LINEAR)",
        ]

    def test_infers_its_own_shape(self):
        op = Operator(make_op("fc", {"x": ["x", "y"], "w": ["w", "v"], "b": "b"}, {"out": "out"}))
        shapes = {"x": (-1, 5), "y": (-1, 2), "w": (5, 3), "v": (2, 3), "b": (3,)}
        specs = {name: (shape, np.dtype("float32")) for name, shape in shapes.items()}
        assert infer_one(op, specs, {})["out"] == ((-1, 3), np.float32)

    def test_refuses(self):
        inputs = {"x": "x", "w": ["w", "v"]}
        with pytest.raises(SlotError, match="1 x want as many w, not 2"):
            expanded("fc", inputs, {"out": "y"})
        inputs = {"x": "x", "w": "w"}
        with pytest.raises(UnknownOperatorError, match="reul.*did you mean relu"):
            expanded("fc", inputs, {"out": "y"}, {"activation": "reul"})
        with pytest.raises(AttributeTypeError, match="'matmul' is no operator from x to out"):
            expanded("fc", inputs, {"out": "y"}, {"activation": "matmul"})


def inner_net():
    """h = x w; t = tanh(h); y = h + t, and the state `count` is counted up."""
    desc = OpList(name="block")
    desc.vars.append(make_var("x", (-1, 3), "float32", INPUT))
    desc.vars.append(make_var("w", (3, 2), "float32", PARAMETER))
    desc.vars.append(make_var("count", (), "int64", STATE))
    desc.ops.append(make_op("fc", {"x": "x", "w": "w"}, {"out": "h"}))
    desc.ops.append(make_op("tanh", {"x": "h"}, {"out": "t"}))
    desc.ops.append(make_op("increment", {"x": "count"}, {"out": "count"}))
    desc.ops.append(make_op("add", {"x": "h", "y": "t"}, {"out": "y"}))
    return desc


SLOTS = {"inputs": "a", "parameters": ["w", "count"]}
ATTRS = {"input_names": ["x"], "output_names": ["y"]}


def net_op(inner=None, inputs=SLOTS, outputs="b", **attrs):
    attrs = {"net": inner or inner_net(), **ATTRS, **attrs}
    return make_op("net", inputs, {"outputs": outputs}, attrs)


class TestNet:
    def test_stands_for(self):
        assert [text(op) for op in expand_op(net_op())] == [
            "b@INNER@h = affine(x=a, w=w)",
            "b@INNER@t = tanh(x=b@INNER@h)",
            "count = increment(x=count)",
            "b = add(x=b@INNER@h, y=b@INNER@t)",
        ]

    def test_nests(self):
        outer = OpList(name="outer")
        outer.vars.extend(inner_net().vars)
        outer.ops.append(net_op())
        op = net_op(outer, outputs="c", input_names=["a"], output_names=["b"])
        names = {name for made in expand_op(op) for name in made.output_names()}
        assert names == {"c@INNER@h", "c@INNER@t", "count", "c"}

    def test_runs_and_trains_as_its_operators_do(self):
        rng = np.random.default_rng(0)
        a, w = rng.normal(size=(4, 3)).astype("f"), rng.normal(size=(3, 2)).astype("f")
        desc = OpList()
        desc.vars.extend(inner_net().vars[1:])
        desc.vars.append(make_var("a", (-1, 3), "float32", INPUT))
        desc.ops.append(net_op())
        desc.ops.append(net_op(inputs={**SLOTS, "inputs": "a2"}, outputs="b2"))
        desc.vars.append(make_var("a2", (-1, 3), "float32", INPUT))
        desc.vars.append(make_var("b", (-1, 2), "float32", OUTPUT))
        net, scope = PlainNet(desc), Scope()
        gradients = net.add_backward_ops(targets=["b", "b2"])
        scope.feed({"a": a, "a2": 2 * a, "w": w, "count": np.array(0)})
        net.run(scope)
        h, h2 = a @ w, 2 * a @ w
        np.testing.assert_allclose(scope.numpy("b"), h + np.tanh(h), rtol=1e-5)
        wanted = a.T @ (2 - np.tanh(h) ** 2) + 2 * a.T @ (2 - np.tanh(h2) ** 2)
        np.testing.assert_allclose(scope.numpy(gradients["w"]), wanted, rtol=1e-4)
        assert scope.numpy("count") == 2

    def test_infers_its_own_shape(self):
        specs = {"a": ((-1, 3), np.dtype("f")), "w": ((3, 2), np.dtype("f"))}
        specs["count"] = ((), np.dtype("int64"))
        assert infer_one(Operator(net_op()), specs, {}) == {"b": ((-1, 2), np.dtype("f"))}

    @pytest.mark.parametrize(
        ("change", "error", "match"),
        [
            ({"inputs": {"inputs": "a"}}, VariableError, "declare 'w' in the outer net too"),
            ({"inputs": {"parameters": ["w", "count"]}}, SlotError, "1 input_names want as many"),
            ({"outputs": ["b", "c"]}, SlotError, "1 output_names want as many outputs, not 2"),
            ({"output_names": ["z"]}, VariableError, "does not write 'z' of output_names"),
            ({"input_names": ["h"]}, VariableError, "reads 'x' in fc: nothing writes it"),
            (
                {"outputs": ["b", "c"], "output_names": ["y", "y"]},
                AttributeTypeError,
                "output_names names a variable twice",
            ),
        ],
    )
    def test_refuses_wrong_use(self, change, error, match):
        with pytest.raises(error, match=match):
            expand_op(net_op(**change))

    def test_refuses_inner_nets_that_names_cannot_carry_over(self):
        def broken(change):
            inner = inner_net()
            change(inner)
            return net_op(inner)

        def backward(inner):
            inner.ops[1].role = BACKWARD

        def recurrent(inner):
            inner.type = RECURRENT

        def view(inner):
            inner.vars.append(make_var("v", None, None, view=View(base="h", col_end=1)))

        def stopped(inner):
            inner.vars.append(make_var("t", stop_gradient=True))

        def overwriting(inner):
            inner.ops.append(make_op("relu", {"x": "h"}, {"out": "x"}))

        for change, error, match in (
            (backward, AttributeTypeError, "holds the BACKWARD operator tanh"),
            (recurrent, AttributeTypeError, "is RECURRENT, want PLAIN"),
            (view, VariableError, "holds the view 'v'"),
            (stopped, VariableError, "stops the gradient at 't'"),
            (overwriting, VariableError, "overwrites its input 'x' in relu"),
        ):
            with pytest.raises(error, match=f"inner net 'block' {match}"):
                expand_op(broken(change))
