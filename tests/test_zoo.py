"""The zoo's table, and some of its rows once more: `build.py zoo` runs all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo import table

ROWS = table.read()


def test_the_table_has_rows_enough() -> None:
    """Shares are those of what PyTorch exports; nothing is wrong, and nothing crashes."""
    assert len(ROWS) >= 150
    for (route, part), count in table.counts(ROWS).items():
        exported = count.total() - count["not exported"]
        least = {"forward": 0.97, "gradients": 0.93}[part]
        assert count["right"] >= least * exported, f"{route}, {part}: {count}"
        assert not count["wrong"] + count["crash"], f"{route}, {part}: {count}"


def test_a_row_may_only_get_better() -> None:
    right, refused = ({"onnx 1": {"forward": word}} for word in ("right", "refused: why"))
    wrong = {"onnx 1": {"forward": "wrong: output 0"}}
    assert not table.worse(refused, right) + table.worse(right, right) + table.worse({}, refused)
    assert table.worse(right, refused) and table.worse({}, wrong) and table.worse(refused, wrong)
    two = {"onnx 1": {"forward": "right"}, "onnx 2": {"forward": "refused: why"}}
    assert table.counts({"a": two}) == {("onnx", "forward"): {"refused": 1}}


def test_what_pytorch_gets_wrong_is_not_the_reference() -> None:
    """Batch normalization at batch 1, whose gradient comes back transposed."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    measuring: Any = pytest.importorskip("zoo.measuring", exc_type=ImportError)

    class Transposed(torch.nn.BatchNorm2d):
        def forward(self, x: Any) -> Any:
            return super().forward(x).flatten(2).transpose(1, 2)

    inputs = [torch.randn(1, 3, 4, 4)]
    found = measuring.computed(Transposed(3).eval(), inputs, torch.float64).gradients["bias"]
    (weights,) = measuring.weights_of([(1, 16, 3)])
    np.testing.assert_allclose(found, weights.sum((0, 1)), rtol=1e-12)


def test_equal_parameters_are_told_apart() -> None:
    """The exporter on TorchScript writes equal tensors once."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    measuring: Any = pytest.importorskip("zoo.measuring", exc_type=ImportError)

    def make() -> Any:
        parts = [torch.nn.Linear(3, 3) for _ in range(3)]
        for part in parts[1:]:
            part.load_state_dict(parts[0].state_dict())
        return torch.nn.Sequential(*parts)

    one = measuring.Architecture("three", "torch", make, lambda batch: [torch.randn(batch, 3)])
    assert set(measuring.measure(one, ["onnx script"])["onnx script 1"].values()) == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_mixer", "llama"])
def test_rows_again(name: str) -> None:
    """The runner itself, on two small rows."""
    listed: Any = pytest.importorskip("zoo.architectures", exc_type=ImportError)
    measuring: Any = pytest.importorskip("zoo.measuring", exc_type=ImportError)
    (one,) = (each for each in listed.ARCHITECTURES if each.name == name)
    assert not table.worse(ROWS[name], measuring.measure(one))
