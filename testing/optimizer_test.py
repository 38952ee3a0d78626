"""The harness for optimizers: what every update operator must do, beside a formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from ..framework.base.errors import AttributeTypeError, RunError
from ..framework.base.scope import Scope
from ..framework.ir.desc import INPUT, PARAMETER, STATE, make_op, make_var
from ..framework.ir.op_list import OpList
from ..framework.ir.registry import lookup
from ..framework.runtime.plain_net import PlainNet
from .op_test import Case, OpTest

CHUNK = 8


class OptimizerTest(OpTest):
    """Cases that every optimizer shares: dense and sparse gradients, in chunks and in place.

    A subclass has `update(p, g, lr, s, a, step)`, which returns the new parameter and the new
    states in the order of `states`. p is the parameter, g the gradient, which includes grad_scale
    and, except where `decoupled`, weight decay; lr includes lr_factor; s holds the states by name,
    a the attributes, and step the number of the update, counted from 1.

    Attributes:
        states: names of the state slots.
        attrs: attributes to try besides the defaults.
        step_slot: whether the operator has the slot `step`.
        numbers: slots of numbers that another operator computes for all parameters, with a value;
            `update` gets them among the states.
        sparse: whether the operator has the slot `rows`.
        decoupled: whether weight decay is not part of the gradient.
    """

    update: Callable[..., Any]
    states: ClassVar[tuple[str, ...]] = ()
    attrs: ClassVar[tuple[dict, ...]] = ({},)
    step_slot = False
    numbers: ClassVar[dict[str, float]] = {}
    sparse = True
    decoupled = False

    @pytest.fixture(autouse=True)
    def small_chunks(self, monkeypatch):
        monkeypatch.setattr("opscope.operators.optim.updates._CHUNK", CHUNK)

    def inputs(self, rng, shape):
        inputs = {"param": rng.normal(size=shape), "grad": rng.normal(size=shape)}
        inputs["lr"] = np.array(0.1)
        if self.step_slot:
            inputs["step"] = np.array(3)
        inputs |= {name: np.array(value) for name, value in self.numbers.items()}
        for state in self.states:
            inputs[state] = rng.uniform(0.5, 1.5, shape)
        return inputs

    def case(self, inputs, attrs=None):
        return Case(inputs, attrs or {}, outputs=tuple(f"{state}_out" for state in self.states))

    def share(self):
        return {f"{slot}_out": slot for slot in ("param", *self.states)}

    def cases(self, rng):
        for attrs in ({}, {"weight_decay": 0.3, "lr_factor": 0.5}, *self.attrs):
            for shape in ((3, 4), (2 * CHUNK + 3,), ()):
                inputs = self.inputs(rng, shape)
                yield Case(inputs, attrs)
                yield Case(inputs | {"grad_scale": np.array(0.25)}, attrs, share=self.share())
            if not self.sparse:
                continue
            inputs = self.inputs(rng, (6, 2))
            for rows in ([4, 1], [4, 1, 4, 4, -1, 0], [-1, -1]):
                inputs |= {"rows": np.array(rows), "grad": rng.normal(size=(len(rows), 2))}
                yield Case(inputs, attrs)
                yield Case(inputs | {"grad_scale": np.array(0.25)}, attrs, share=self.share())

    def reference(self, inputs, attrs):
        grad = inputs["grad"]
        touched = ...
        if "rows" in inputs:
            rows = inputs["rows"]
            touched = np.unique(rows[rows >= 0])
            sums = [grad[rows == row].sum(0) for row in touched]
            grad = np.array(sums).reshape(len(touched), *grad.shape[1:])
        old = {slot: inputs[slot] for slot in ("param", *self.states)}
        new = {slot: value.copy() for slot, value in old.items()}
        p = old["param"][touched]
        states = {name: old[name][touched] for name in self.states}
        g = grad * inputs.get("grad_scale", 1)
        if not self.decoupled:
            g = g + attrs["weight_decay"] * p
        rate = inputs["lr"] * attrs["lr_factor"]
        states |= {name: inputs[name] for name in self.numbers}
        results = self.update(p, g, rate, states, attrs, inputs.get("step"))
        for slot, value in zip(("param", *self.states), results, strict=True):
            new[slot][touched] = value
        return {f"{slot}_out": value for slot, value in new.items()}

    def test_refuses(self):
        good = self.inputs(np.random.default_rng(0), (3, 2))
        self.refuses("param and grad", good | {"grad": np.zeros((2, 3))})
        self.refuses("lr wants 0 dimensions", good | {"lr": np.zeros(1)})
        self.refuses("one floating dtype", good | {"grad": np.zeros((3, 2), "float32")})
        if self.sparse:
            self.refuses("integer dtype", good | {"rows": np.zeros(3)})
            self.refuses("length of rows", good | {"rows": np.zeros(2, int)})
            rows = {"rows": np.zeros(4, int)}
            self.refuses("rows of param and grad", good | rows | {"grad": np.zeros((4, 3))})
        self.refuses("is below", good, {"weight_decay": -1.0}, AttributeTypeError)
        for state in self.states:
            self.refuses(f"param and {state}", good | {state: np.zeros((2, 2))})

    def test_row_out_of_range(self):
        if not self.sparse:
            return
        inputs = self.inputs(np.random.default_rng(0), (3, 2)) | {"rows": np.array([0, 7, 1])}
        with pytest.raises(RunError, match="rows 'rows' holds 7, want below 3"):
            self.output(self.case(inputs))

    def test_learning_rate_of_another_dtype(self):
        inputs = self.inputs(np.random.default_rng(0), (3, 2))
        wanted = self.output(self.case(inputs), "float64")["param_out"]
        setup = self.setup(self.case(inputs), "float64", want=False)
        net = PlainNet(setup.net(tails=False)[0])
        net.vars["lr"] = net.vars["lr"].changed(dtype=np.dtype("float32"))
        scope = Scope()
        scope.feed(setup.arrays | {"lr": np.float32(0.1)})
        net.run(scope)
        np.testing.assert_allclose(scope.numpy("param_out"), wanted, rtol=1e-6)


class TorchOptimizerTest(OptimizerTest):
    """Compared with PyTorch's optimizer step for step, besides."""

    def torch_optimizer(self, torch, parameters, attrs):
        raise AssertionError

    def test_equals_torch_step_for_step(self):
        torch = pytest.importorskip("torch")
        for attrs in ({}, {"weight_decay": 0.1}, *self.attrs):
            rng = np.random.default_rng(0)
            start = rng.normal(size=(3, 4))
            grads = rng.normal(size=(12, 3, 4))
            tensor = torch.tensor(start.copy(), requires_grad=True)
            peer = self.torch_optimizer(torch, [tensor], attrs)
            net = self.one_update(attrs)
            scope = Scope()
            scope.feed({"p": start, "lr": np.array(0.1), "step": np.array(0)})
            scope.feed({f"p_{state}": np.zeros((3, 4)) for state in self.states})
            scope.feed({f"p_{number}": np.array(0.0) for number in self.numbers})
            for step, grad in enumerate(grads, 1):
                tensor.grad = torch.tensor(grad)
                peer.step()
                scope.feed({"grad": grad, "step": np.array(step)})
                net.run(scope)
                np.testing.assert_allclose(
                    scope.numpy("p"), tensor.detach().numpy(), rtol=1e-11, atol=1e-13
                )

    def one_update(self, attrs):
        desc = OpList()
        states = {state: f"p_{state}" for state in self.states}
        inputs = {"param": "p", "grad": "grad", "lr": "lr"} | states
        if self.step_slot:
            inputs["step"] = "step"
        outputs = {"param_out": "p"} | {f"{s}_out": name for s, name in states.items()}
        desc.vars.append(make_var("p", (3, 4), "float64", PARAMETER))
        desc.vars.append(make_var("grad", (3, 4), "float64", INPUT))
        desc.vars.append(make_var("lr", (), "float64", STATE))
        desc.vars.append(make_var("step", (), "int64", STATE))
        desc.vars.extend(make_var(name, (3, 4), "float64", STATE) for name in states.values())
        for number in self.numbers:
            inputs[number] = f"p_{number}"
            desc.vars.append(make_var(f"p_{number}", (), "float64", STATE))
            entry = lookup(f"{self.type}_{number}")
            given = {name: value for name, value in attrs.items() if name in entry.attr_specs}
            reads = {"step": "step", "previous": f"p_{number}"}
            desc.ops.append(make_op(entry.type, reads, {"out": f"p_{number}"}, given))
        desc.ops.append(make_op(self.type, inputs, outputs, attrs))
        return PlainNet(desc)


def torch_names(attrs):
    named = dict(attrs)
    if "epsilon" in named:
        named["eps"] = named.pop("epsilon")
    if "beta1" in named:
        named["betas"] = (named.pop("beta1"), named.pop("beta2"))
    return named
