"""The harness is tested on toy operators: a right one passes, each kind of wrong one fails."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.errors import ShapeError
from opscope.framework.base.sizes.shape import same_as
from opscope.framework.fusion.chains import available
from opscope.framework.ir.registry import AttrSpec, Slot, operator, unregister
from opscope.testing import Case, OpTest

PLACE = CPUPlace()
needs_library = pytest.mark.skipif(not available(), reason="no native library: nothing is fused")


def twice(k):
    return partial(k.xp.multiply, k["x"], k["x"].dtype.type(2), k["out"])


def twice_grad(k):
    return partial(k.xp.multiply, k["out_grad"], k["out_grad"].dtype.type(2), k["x_grad"])


class Twice(OpTest):
    """out = 2 * x: the test of all toys here."""

    type = "toy"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))})

    def reference(self, inputs, attrs):
        return {"out": 2 * inputs["x"]}


@pytest.fixture
def toy():
    """Registers the toy operator, wrong in whatever way the arguments say, for one test."""

    def make(
        kernel=twice,
        grad=twice_grad,
        shape=None,
        scalar=None,
        x_read=False,
        out_read=False,
        inplace="x",
        grad_inplace=None,
        grad_scalar=None,
    ):
        entry = operator(
            "toy",
            doc="out = 2 * x",
            inputs=[Slot("x", "any shape", not_in_gradient=not x_read)],
            outputs=[Slot("out", "as x", inplace=inplace, not_in_gradient=not out_read)],
            attrs=[AttrSpec("factor", "float", "unused", 1.0)],
            shape=shape or same_as("x"),
            scalar=scalar,
        )
        entry.kernel(kernel)
        entry.backward("x", inplace=grad_inplace or {"x_grad": "out_grad"}, scalar=grad_scalar)(
            grad
        )
        return Twice()

    yield make
    unregister("toy")


def run_all(test):
    """Every test of the harness, as pytest would run it."""
    test.test_values(PLACE)
    test.test_strided(PLACE)
    test.test_sizes(PLACE)
    test.test_mistaken_inputs()
    test.test_optional_slots()
    test.test_leaves_inputs_alone()
    test.test_shapes()
    test.test_halves(PLACE, "float16")
    test.test_gradients(PLACE)
    test.test_fixed_inputs()
    test.test_inplace_flags(PLACE)
    test.test_not_in_gradient_flags()
    test.test_grad_names_what_there_is()
    test.test_planned_and_fused(PLACE)
    test.test_special_values(PLACE)


def test_a_right_operator_passes(toy):
    run_all(toy(scalar="2 * x", grad_scalar={"x_grad": "2 * out_grad"}))


def test_run_all_runs_all():
    checks = {name for name in dir(OpTest) if name.startswith("test_")}
    assert all(name in run_all.__code__.co_names for name in checks)


# -- kernels ---------------------------------------------------------------------------------------


def test_a_wrong_value(toy):
    test = toy(lambda k: partial(k.xp.multiply, k["x"], 3, k["out"]))
    with pytest.raises(AssertionError, match=r"toy\(x float32\[3, 4\]\).*'out' is off by"):
        test.test_values(PLACE)


def test_an_output_that_is_not_written_whole(toy):
    def kernel(k):
        return partial(k.xp.multiply, k["x"][1:], 2, k["out"][1:])

    with pytest.raises(AssertionError, match="is off by inf"):
        toy(kernel).test_values(PLACE)


def test_an_output_that_is_added_to(toy):
    def kernel(k):
        first = [True]

        def run():
            k["out"][...] = 2 * k["x"] if first.pop() else k["out"] + k["x"]
            first.append(False)

        return run

    with pytest.raises(AssertionError, match="a second call of toy gives another 'out'"):
        toy(kernel).test_values(PLACE)


def test_scratch_memory_that_is_trusted(toy):
    def kernel(k):
        scratch = k.scratch(k["x"].shape, k["x"].dtype)
        np.multiply(k["x"], 2, scratch)
        return partial(k.xp.copyto, k["out"], scratch)

    with pytest.raises(AssertionError, match="a second call of toy gives another 'out'"):
        toy(kernel).test_values(PLACE)


def test_an_input_that_is_changed(toy):
    def kernel(k):
        def run():
            np.multiply(k["x"], 2, k["out"])
            k["x"][...] = 0

        return run

    with pytest.raises(AssertionError):
        toy(kernel).test_values(PLACE)  # the second call sees it
    with pytest.raises(AssertionError):
        Twice().test_leaves_inputs_alone()


def test_a_kernel_for_contiguous_inputs_only(toy):
    def kernel(k):
        flat = np.frombuffer(k["x"].base if k["x"].base is not None else k["x"], k["x"].dtype)
        return lambda: np.multiply(flat[: k["x"].size].reshape(k["x"].shape), 2, k["out"])

    test = toy(kernel)
    test.test_values(PLACE)
    with pytest.raises(AssertionError, match="inputs columns"):
        test.test_strided(PLACE)


def test_a_kernel_for_contiguous_outputs_only(toy):
    def kernel(k):
        return partial(k.xp.multiply, k["x"].reshape(-1), 2, k["out"].reshape(-1))

    test = toy(kernel)
    test.test_values(PLACE)
    with pytest.raises(AssertionError, match="outputs that are column ranges"):
        test.test_strided(PLACE)


def test_an_axis_of_one_that_is_left_out(toy):
    def kernel(k):
        return lambda: np.copyto(k["out"], 2 * k["x"] if k["x"].shape[1] > 1 else 0)

    test = toy(kernel)
    test.test_values(PLACE)
    with pytest.raises(AssertionError, match=r"toy\(x float64\[3, 1\]\).*'out' is off by"):
        test.test_sizes(PLACE)


def test_a_gradient_that_is_wrong_for_an_axis_of_one(toy):
    def grad(k):
        factor = 2 if len(k["x_grad"]) > 1 else 3
        return partial(k.xp.multiply, k["out_grad"], factor, k["x_grad"])

    test = toy(grad=grad)
    test.test_gradients(PLACE)
    with pytest.raises(AssertionError, match=r"toy\(x float64\[1, 4\]\): the gradient of x"):
        test.test_sizes(PLACE)


def test_a_refusal_of_an_axis_of_one(toy):
    def shape(s):
        if 1 in s["x"] or 0 in s["x"]:
            s.fail("x wants more")
        s.set("out", (s["x"], s.dtype("x")))

    toy(shape=shape).test_sizes(PLACE)


def test_a_kernel_that_fails_on_nothing(toy):
    def kernel(k):
        k["x"][0]
        return twice(k)

    with pytest.raises(IndexError):
        toy(kernel).test_sizes(PLACE)


# -- shapes ----------------------------------------------------------------------------------------


def test_a_wrong_shape(toy):
    test = toy(shape=lambda s: s.set("out", (s["x"][::-1], s.dtype("x"))))
    with pytest.raises(AssertionError, match=r"inferred as \(4, 3\), the reference is \(3, 4\)"):
        test.test_shapes()


def test_a_wrong_dtype(toy):
    test = toy(shape=lambda s: s.set("out", (s["x"], "float64")))
    with pytest.raises(AssertionError, match="inferred as float64, want float32"):
        test.test_shapes()


def test_an_output_without_a_shape(toy):
    with pytest.raises(ShapeError, match="these inputs give 'out' no shape"):
        toy(shape=lambda s: None).test_shapes()


def test_a_shape_rule_that_reckons_with_unknown_dimensions(toy):
    def shape(s):
        s.set("out", ((s["x"][0] + 5 - 5 if s["x"][0] > 0 else 1, s["x"][1]), s.dtype("x")))

    with pytest.raises(AssertionError, match="with leading dimensions unknown, 'out' is inferred"):
        toy(shape=shape).test_shapes()


# -- gradients -------------------------------------------------------------------------------------


def test_a_wrong_gradient(toy):
    def grad(k):
        return partial(k.xp.multiply, k["out_grad"], 2.00001, k["x_grad"])

    with pytest.raises(AssertionError, match="finite differences give"):
        toy(grad=grad).test_gradients(PLACE)


def test_a_gradient_of_the_wrong_sign_in_one_place(toy):
    def grad(k):
        def run():
            np.multiply(k["out_grad"], 2, k["x_grad"])
            k["x_grad"][0, 0] *= -1

        return run

    with pytest.raises(AssertionError, match="finite differences give"):
        toy(grad=grad).test_gradients(PLACE)


class Both(Twice):
    """out = the sum of x, a list."""

    def cases(self, rng):
        yield Case({"x": [rng.normal(size=3), rng.normal(size=3)]})

    def reference(self, inputs, attrs):
        return {"out": sum(inputs["x"])}


@pytest.mark.parametrize("right", [True, False])
def test_a_gradient_that_wants_all_inputs_to_be_trained(right):
    parts = Slot("x", "arrays", duplicable=True, not_in_gradient=True)
    out = Slot("out", "their sum", not_in_gradient=True)
    entry = operator("toy", doc="their sum", inputs=[parts], outputs=[out], shape=same_as_first)
    entry.kernel(lambda k: partial(np.add, *k.list("x"), k["out"]))

    def grad(k):
        wanted = [x_grad for x_grad in k.list("x_grad") if x_grad is not None]
        given = k["out_grad"] if right or len(wanted) == 2 else 0
        return lambda: [np.copyto(x_grad, given) for x_grad in wanted]

    entry.backward("x")(grad)
    try:
        if right:
            Both().test_fixed_inputs()
            Both().test_gradients(PLACE)
            return
        for check in (Both().test_fixed_inputs, partial(Both().test_gradients, PLACE)):
            with pytest.raises(AssertionError, match="differs where only x_0 of x_0, x_1"):
                check()
    finally:
        unregister("toy")


def same_as_first(s):
    s.set("out", s.specs("x")[0])


def test_a_gradient_that_is_not_named(toy):
    test = toy()
    test.grad = ()
    with pytest.raises(AssertionError, match="names no slot in `grad`"):
        test.test_grad_names_what_there_is()


# -- flags -----------------------------------------------------------------------------------------


def two_steps(k):
    """Right, unless out is the memory of x."""

    def run():
        np.copyto(k["out"], 0)
        np.add(k["out"], k["x"], k["out"])
        np.add(k["out"], k["x"], k["out"])

    return run


def test_a_wrong_inplace_flag(toy):
    test = toy(two_steps)
    test.test_values(PLACE)
    with pytest.raises(AssertionError, match="outputs in the memory of inputs"):
        test.test_inplace_flags(PLACE)


def test_the_same_kernel_without_the_flag(toy):
    toy(two_steps, inplace="").test_inplace_flags(PLACE)


def test_a_wrong_inplace_flag_of_the_gradient(toy):
    def grad(k):
        def run():
            np.copyto(k["x_grad"], 0)
            np.add(k["x_grad"], k["out_grad"], k["x_grad"])
            np.add(k["x_grad"], k["out_grad"], k["x_grad"])

        return run

    test = toy(grad=grad)
    test.test_gradients(PLACE)
    with pytest.raises(AssertionError, match="`inplace` flag"):
        test.test_inplace_flags(PLACE)


def test_an_inplace_flag_that_no_case_proves(toy):
    test = toy()
    test.cases = lambda rng: [Case({"x": rng.normal(size=(1, 1))})]
    with pytest.raises(AssertionError, match="no case here proves the inplace flags"):
        test.test_inplace_flags(PLACE)


def reads_x(k):
    def run():
        np.multiply(k["out_grad"], 2, k["x_grad"])
        np.add(k["x_grad"], 0 * k["x"], k["x_grad"])

    return run


def test_a_wrong_not_in_gradient_flag_of_an_input(toy):
    test = toy(grad=reads_x)
    with pytest.raises(AssertionError, match="reads the value of 'x', which a flag"):
        test.test_not_in_gradient_flags()


def test_the_same_gradient_without_the_flag(toy):
    test = toy(grad=reads_x, x_read=True)
    test.test_not_in_gradient_flags()
    test.test_gradients(PLACE)


def test_a_wrong_not_in_gradient_flag_beside_a_gradient_maker(toy):
    test = toy()
    test.entry.gradient = lambda g: [
        g.op("add", {"x": g.output_grads("out"), "y": g.inputs("x")}, {"out": g.input_grads("x")})
    ]
    with pytest.raises(AssertionError, match="reads the value of 'x', which a flag"):
        test.test_not_in_gradient_flags()


# -- scalar expressions ----------------------------------------------------------------------------


@needs_library
def test_a_wrong_scalar_expression(toy):
    test = toy(scalar="3 * x")
    with pytest.raises(AssertionError, match="between a planned, fused run and a plain one"):
        test.test_planned_and_fused(PLACE)


@needs_library
def test_a_wrong_scalar_expression_of_the_gradient(toy):
    test = toy(scalar="2 * x", grad_scalar={"x_grad": "3 * out_grad"})
    with pytest.raises(AssertionError, match="between a planned, fused run and a plain one"):
        test.test_planned_and_fused(PLACE)


@needs_library
def test_a_scalar_expression_that_loses_nan(toy):
    test = toy(scalar="x > 0 || x < 0 ? 2 * x : 0")
    test.test_planned_and_fused(PLACE)
    with pytest.raises(AssertionError, match="between a planned, fused run and a plain one"):
        test.test_special_values(PLACE)


# -- refusals --------------------------------------------------------------------------------------


def test_refuses(toy):
    test = toy(shape=lambda s: s.set("out", (s.rank("x", 2), s.floats("x"))))
    test.refuses("floating", {"x": np.ones((2, 2), int)})
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test.refuses("floating", {"x": np.ones((2, 2))})
