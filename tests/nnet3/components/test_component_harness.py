"""The harness of component tests, on components that are known otherwise."""

import numpy as np
import pytest

from component_test import ComponentTest


class TestTanh(ComponentTest):
    type = "TanhComponent"
    line = "dim=3"

    def reference(self, component, x):
        return np.tanh(x)


class TestAffine(ComponentTest):
    type = "NaturalGradientAffineComponent"
    line = "input-dim=4 output-dim=3 max-change=0.75"
    refused = {"input-dim=4": "wants input-dim= and output-dim=", "input-dim=x": "input-dim"}

    def reference(self, component, x):
        return x @ component.linear_params.T.astype(np.float64) + component.bias_params


class TestComposite(ComponentTest):
    type = "CompositeComponent"
    line = (
        "num-components=2 component1='type=LinearComponent input-dim=3 output-dim=4'"
        " component2='type=SumBlockComponent input-dim=4 output-dim=2 scale=0.5'"
    )

    def reference(self, component, x):
        linear = x @ component.components[0].params.T.astype(np.float64)
        return (linear[:, :2] + linear[:, 2:]) / 2


class TestWhatIsFound:
    """A wrong formula, a wrong gradient and a property that is missing are found."""

    def test_formula(self):
        class Wrong(TestTanh):
            def reference(self, component, x):
                return np.sin(x)

        with pytest.raises(AssertionError):
            Wrong().test_output()

    def test_gradient(self):
        class Clipped(ComponentTest):
            type = "NoOpComponent"
            line = "dim=3 backprop-scale=0.5"

        with pytest.raises(AssertionError):
            Clipped().test_gradients()

    def test_properties(self, monkeypatch):
        component = TestAffine().component()
        monkeypatch.setattr(type(component), "flags", type(component).flags & ~0x40)
        with pytest.raises(AssertionError):
            TestAffine().test_properties_say_what_backprop_reads()
