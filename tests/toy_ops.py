"""Toy operators for tests of the framework: registered for a test module, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from opscope.framework.base.sizes.shape import ShapeArgs, same_as
from opscope.framework.ir.gradient_args import GradientArgs
from opscope.framework.ir.kernel_args import KernelArgs
from opscope.framework.ir.op_list import OpNode
from opscope.framework.ir.registry import AttrSpec, Slot, operator, unregister

X, Y = Slot("x", "any shape"), Slot("y", "shape of x")
OUT = Slot("out", "shape of x")


def _pairwise(s: ShapeArgs) -> None:
    s.set("out", (s.same_shape("x and y", s["x"], s["y"]), s.floats("x", "y")))


def _add() -> str:
    """out = x + y; the gradient looks at shapes only."""
    unread = {"not_in_gradient": True}
    add = operator(
        "toy_add",
        doc="out = x + y",
        inputs=[Slot("x", "any", **unread), Slot("y", "shape of x", **unread)],
        outputs=[Slot("out", "shape of x", inplace="x", **unread)],
        shape=_pairwise,
    )
    add.kernel(lambda k: partial(k.xp.add, k["x"], k["y"], out=k["out"]))

    def grad(k: KernelArgs) -> Any:
        wanted = [k.get("x_grad"), k.get("y_grad")]

        def run() -> None:
            for target in wanted:
                if target is not None:
                    np.copyto(target, k["out_grad"])

        return run

    add.backward()(grad)
    return add.type


def _mul() -> str:
    """out = x * y; the gradient reads both inputs."""
    mul = operator(
        "toy_mul",
        doc="out = x * y",
        inputs=[X, Y],
        outputs=[Slot("out", "shape of x", not_in_gradient=True, inplace="x")],
        shape=_pairwise,
    )
    mul.kernel(lambda k: partial(k.xp.multiply, k["x"], k["y"], out=k["out"]))

    def grad(k: KernelArgs) -> Any:
        pairs = [(k.get("x_grad"), k["y"]), (k.get("y_grad"), k["x"])]

        def run() -> None:
            for target, other in pairs:
                if target is not None:
                    np.multiply(k["out_grad"], other, out=target)

        return run

    mul.backward()(grad)
    return mul.type


def _relu() -> str:
    """out = max(x, 0); the gradient reads the output, so it may run in place."""
    relu = operator(
        "toy_relu",
        doc="out = max(x, 0)",
        inputs=[Slot("x", "any", not_in_gradient=True)],
        outputs=[Slot("out", "shape of x", inplace="x")],
        shape=same_as("x"),
    )
    relu.kernel(lambda k: partial(k.xp.maximum, k["x"], 0, out=k["out"]))
    relu.backward()(
        lambda k: lambda: np.copyto(k["x_grad"], np.where(k["out"] > 0, k["out_grad"], 0))
    )
    return relu.type


def _square() -> str:
    """out = x * x + bias; the gradient reads the input."""
    square = operator(
        "toy_square",
        doc="out = x * x + bias",
        inputs=[X],
        outputs=[Slot("out", "shape of x", not_in_gradient=True, inplace="x")],
        attrs=[AttrSpec("bias", "float", "added", 0.0, minimum=-10, maximum=10)],
        shape=same_as("x"),
    )

    @square.kernel
    def square_kernel(k: KernelArgs) -> Any:
        x, out, bias = k["x"], k["out"], k["x"].dtype.type(k.attrs["bias"])

        def run() -> None:
            np.multiply(x, x, out=out)
            np.add(out, bias, out=out)

        return run

    square.backward()(lambda k: lambda: np.multiply(2 * k["x"], k["out_grad"], out=k["x_grad"]))
    return square.type


def _cat() -> str:
    """Duplicable slot: out = sum of all x."""
    cat = operator(
        "toy_total",
        doc="out = sum of all x",
        inputs=[Slot("x", "any, one shape", duplicable=True, not_in_gradient=True)],
        outputs=[Slot("out", "shape of x", not_in_gradient=True)],
        shape=lambda s: s.set("out", (s.same_shape("x", *s.shapes("x")), s.floats("x"))),
    )
    cat.kernel(lambda k: lambda: np.copyto(k["out"], sum(k.list("x"))))

    def grad(k: KernelArgs) -> Any:
        def run() -> None:
            for target in k.list("x_grad"):
                if target is not None:
                    np.copyto(target, k["out_grad"])

        return run

    cat.backward()(grad)
    return cat.type


def _fork() -> str:
    """Duplicable output: every out = x."""
    fork = operator(
        "toy_fork",
        doc="each out = x",
        inputs=[Slot("x", "any", not_in_gradient=True)],
        outputs=[Slot("out", "shape of x", duplicable=True, not_in_gradient=True)],
        shape=lambda s: s.set("out", *[(s["x"], s.dtype("x"))] * len(s.op.outputs["out"])),
    )

    @fork.kernel
    def fork_kernel(k: KernelArgs) -> Any:
        def run() -> None:
            for target in k.list("out"):
                if target is not None:
                    np.copyto(target, k["x"])

        return run

    fork.backward()(lambda k: lambda: np.copyto(k["x_grad"], sum(k.list("out_grad"))))
    return fork.type


def _lookup() -> str:
    """Rows of a table: the gradient has rows for those that were read only."""
    lookup = operator(
        "toy_lookup",
        doc="out[i] = w[ids[i]]",
        inputs=[Slot("w", "[rows, n]", not_in_gradient=True), Slot("ids", "[k]")],
        outputs=[Slot("out", "[k, n]", not_in_gradient=True)],
        shape=lambda s: s.set("out", ((s["ids"][0], s["w"][1]), s.dtype("w"))),
    )
    lookup.kernel(lambda k: partial(k.xp.take, k["w"], k["ids"], axis=0, out=k["out"]))

    @lookup.gradient_maker
    def lookup_gradient(g: GradientArgs) -> list[OpNode]:
        if not g.needs("w"):
            return []
        (grad,) = g.input_grads("w")
        rows = g.sparse_rows(grad)
        return [
            g.op("toy_fork", {"x": g.output_grads("out")}, {"out": [grad]}),
            g.op("toy_fork", {"x": g.inputs("ids")}, {"out": [rows]}),
        ]

    return lookup.type


def _optimizers() -> list[str]:
    """Two update operators: one without state, one with state and the step."""
    common = [Slot("param", "any"), Slot("grad", "shape of param"), Slot("lr", "scalar")]
    updated = Slot("param_out", "param", inplace="param")
    factor = AttrSpec("lr_factor", "float", "of this parameter", 1.0)
    plain = operator(
        "toy_sgd",
        doc="param - lr * grad",
        inputs=[
            *common,
            Slot("rows", "row numbers of a sparse gradient", optional=True),
            Slot("grad_scale", "scalar", optional=True),
        ],
        outputs=[updated],
        attrs=[factor],
        shape=same_as("param"),
        no_gradient="it updates",
    )

    @plain.kernel
    def plain_kernel(k: KernelArgs) -> Any:
        def run() -> None:
            rate = k["lr"] * k.attrs["lr_factor"]
            np.subtract(k["param"], rate * k["grad"], out=k["param_out"])

        return run

    heavy = operator(
        "toy_heavy",
        doc="param - lr * speed",
        inputs=[*common, Slot("speed", "shape of param"), Slot("step", "scalar")],
        outputs=[updated, Slot("speed_out", "shape of param", inplace="speed")],
        attrs=[factor, AttrSpec("drag", "float", "of the speed", 0.5)],
        shape=same_as("param"),
        no_gradient="it updates",
    )
    heavy.kernel(lambda k: lambda: None)
    return [plain.type, heavy.type]


def _odd_ones() -> list[str]:
    """Operators that are special in one way each."""
    none = operator(
        "toy_sign",
        doc="out = sign of x",
        inputs=[X],
        outputs=[OUT],
        shape=same_as("x"),
        no_gradient="it is constant almost everywhere",
    )
    none.kernel(lambda k: partial(k.xp.sign, k["x"], out=k["out"]))
    missing = operator("toy_no_maker", doc="out = x", inputs=[X], outputs=[OUT], shape=same_as("x"))
    missing.kernel(lambda k: lambda: np.copyto(k["out"], k["x"]))
    noise = operator(
        "toy_noise",
        doc="out = x + normal noise; seen is the noise",
        inputs=[X],
        outputs=[OUT, Slot("seen", "shape of x", intermediate=True)],
        shape=same_as("x"),
        no_gradient="a test does not need it",
        random=True,
    )

    @noise.kernel
    def noise_kernel(k: KernelArgs) -> Any:
        def run() -> None:
            drawn = k.state.generator.normal(size=k["x"].shape)
            np.copyto(k["out"], k["x"] + drawn)

        return run

    mean = operator(
        "toy_mean",
        doc="out = mean of x; the square root is kept for the gradient",
        inputs=[X],
        outputs=[Slot("out", "scalar"), Slot("size", "scalar", intermediate=True)],
        shape=lambda s: (
            s.set("out", ((), s.dtype("x"))),
            s.set("size", ((), s.dtype("x"))),
        )[0],
        no_gradient="a test does not need it",
    )

    @mean.kernel
    def mean_kernel(k: KernelArgs) -> Any:
        def run() -> None:
            k["out"][...] = k["x"].mean()
            if k.get("size") is not None:
                k["size"][...] = k["x"].size

        return run

    failing = operator(
        "toy_fail",
        doc="fails where `when` says",
        inputs=[X],
        outputs=[OUT],
        attrs=[AttrSpec("when", "string", "bind or run", "run", choices=("bind", "run"))],
        shape=same_as("x"),
        no_gradient="it only fails",
    )

    @failing.kernel
    def failing_kernel(k: KernelArgs) -> Any:
        def run() -> None:
            raise ValueError("no luck")

        if k.attrs["when"] == "bind":
            run()
        return run

    holder = operator(
        "toy_holder",
        doc="holds a net",
        inputs=[X],
        outputs=[OUT],
        attrs=[AttrSpec("body", "net", "the net")],
        shape=same_as("x"),
        no_gradient="it is only looked at",
    )
    holder.kernel(lambda k: lambda: np.copyto(k["out"], k["x"]))
    pair = operator(
        "toy_pair",
        doc="stands for a product that is squared",
        inputs=[X, Y],
        outputs=[OUT],
    )

    @pair.expansion
    def pair_expansion(op: OpNode) -> list[OpNode]:
        from opscope.framework.ir.desc import make_op

        inputs, outputs = op.inputs, op.outputs
        between = f"{outputs['out'][0]}@PRODUCT"
        return [
            make_op("toy_mul", {"x": inputs["x"], "y": inputs["y"]}, {"out": between}),
            make_op("toy_square", {"x": between}, {"out": outputs["out"]}),
        ]

    return [none.type, missing.type, noise.type, mean.type, failing.type, holder.type, pair.type]


@contextmanager
def toy_operators() -> Iterator[None]:
    """The toys are registered inside."""
    made: list[str] = []
    try:
        for make in (_add, _mul, _relu, _square, _cat, _fork, _lookup):
            made.append(make())
        made += [*_optimizers(), *_odd_ones()]
        yield
    finally:
        for op_type in made:
            unregister(op_type)
