"""The harness of component tests: a config line and a formula describe a type, the rest follows.

    class TestTanh(ComponentTest):
        type = "TanhComponent"
        line = "dim=3"

        def reference(self, component, x):
            return np.tanh(x)

Checked: config line, both forms of files, info text; output against the formula; gradients of the
input and of all parameters against differences, in float64; and that the component's properties say
what its backward operators read. It is for simple components: one output row for each input row.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from component_lines import from_config
from component_runs import arrays, backprop, backprop_reads, propagate
from opscope.framework.base.errors import FormatError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.components import Component, ComponentOps, Properties


class ComponentTest:
    """Base of component tests; see the module's text.

    Attributes:
        type: the component type.
        line: the keys of a config line.
        refused: lines that must be refused, with a part of the message.
        rows: of the input. Its elements keep away from 0 by a quarter.
        tolerance: of outputs and gradients, relative to 1 or to the larger of two numbers.
    """

    type: ClassVar[str]
    line: ClassVar[str]
    refused: ClassVar[dict[str, str]] = {}
    rows: ClassVar[int] = 5
    tolerance: ClassVar[float] = 1e-6

    def reference(self, component: Component, x: np.ndarray) -> np.ndarray:
        """The output for an input in float64, from the component's attributes."""
        raise AssertionError(f"{type(self).__name__} gives no reference")

    def component(self) -> Component:
        return from_config(self.type, self.line)

    def inputs(self, component: Component) -> np.ndarray:
        rng = np.random.default_rng(1)
        x = rng.uniform(0.25, 1.5, (self.rows, component.input_dim))
        return x * rng.choice((-1, 1), x.shape)

    # Files and text

    @pytest.mark.parametrize("binary", [True, False])
    def test_files(self, binary: bool) -> None:
        component = self.component()
        written = as_bytes(component, binary)
        again = read(written, binary)
        assert as_bytes(again, binary) == written
        assert again.type == component.type == self.type
        np.testing.assert_allclose(again.vectorize(), component.vectorize(), rtol=1e-6)

    def test_info(self) -> None:
        component = self.component()
        assert component.info().startswith(self.type)
        assert read(as_bytes(component, True), True).info() == component.info()

    def test_refused_lines(self) -> None:
        for line, message in {**self.refused, f"{self.line} no-such-key=1": "no-such-key"}.items():
            with pytest.raises(FormatError, match=message):
                from_config(self.type, line)

    # Computation

    def test_output(self) -> None:
        component = self.component()
        x = self.inputs(component)
        ops = ComponentOps(component, "c")
        got = run(propagate(ops, "x", "y"), arrays(ops) | {"x": x}, "y")["y"]
        np.testing.assert_allclose(got, self.reference(component, x), atol=self.tolerance)

    def test_gradients(self) -> None:
        component = self.component()
        x = self.inputs(component)
        ops = ComponentOps(component, "c", natural_gradient=False, statistics=False)
        forward, parameters = propagate(ops, "x", "y"), list(ops.parameters())
        backward = backprop(ops, "x", "y", "dy", "dx", trained=True)
        feeds = {name: np.asarray(a, np.float64) for name, a in arrays(ops).items()} | {"x": x}
        output = run(forward, feeds, "y")["y"]
        dy = np.random.default_rng(2).standard_normal(output.shape)
        found = {"x": "dx"} | {name: f"{name}@GRAD" for name in parameters}
        made = run(forward + backward, feeds | {"dy": dy}, *found.values())
        for name, gradient in found.items():
            for place in np.ndindex(feeds[name].shape):
                values = []
                for step in (1e-5, -1e-5):
                    moved = feeds[name].copy()
                    moved[place] += step
                    values.append((run(forward, feeds | {name: moved}, "y")["y"] * dy).sum())
                difference = (values[0] - values[1]) / 2e-5
                got = made[gradient][place]
                assert abs(got - difference) <= self.tolerance * max(1, abs(got)), (name, place)

    def test_properties_say_what_backprop_reads(self) -> None:
        component = self.component()
        reads_input, reads_output = backprop_reads(ComponentOps(component, "c"))
        assert not reads_input or component.properties & Properties.BACKPROP_NEEDS_INPUT
        assert not reads_output or component.properties & Properties.BACKPROP_NEEDS_OUTPUT


def as_bytes(component: Component, binary: bool) -> bytes:
    """The component as its file holds it."""
    writer = Writer(binary)
    component.write(writer)
    return writer.getvalue()


def read(data: bytes, binary: bool) -> Component:
    """The component in a file."""
    return Component.read_new(Reader(data) if binary else Reader(data, binary=False))


def run(ops: list, feeds: dict[str, np.ndarray], *wanted: str) -> dict[str, np.ndarray]:
    """Values of variables after running operators in float64."""
    net = OpList(ops=ops)
    for name, array in feeds.items():
        net.vars.append(make_var(name, array.shape, "float64", INPUT))
    for name in wanted:
        net.vars.append(make_var(name, None, "float64", OUTPUT))
    scope = Scope()
    scope.feed({name: np.asarray(array, np.float64) for name, array in feeds.items()})
    PlainNet(net).run(scope)
    return {name: scope.numpy(name) for name in wanted}
