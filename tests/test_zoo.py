"""The zoo's table, and some of its rows once more: `build.py zoo` runs all of them."""

from __future__ import annotations

from typing import Any

import pytest

from zoo import table

ROWS = table.read()


def test_the_table_has_rows_enough() -> None:
    """Shares are those of what PyTorch exports; nothing is wrong, and nothing crashes."""
    assert len(ROWS) >= 60
    for (route, part), count in table.counts(ROWS).items():
        exported = count.total() - count["not exported"]
        least = {"forward": 0.95, "gradients": 0.9}[part]
        assert count["right"] >= least * exported, f"{route}, {part}: {count}"
        assert not count["wrong"] + count["crash"], f"{route}, {part}: {count}"


def test_a_row_may_only_get_better() -> None:
    right, refused = ({"onnx 1": {"forward": word}} for word in ("right", "refused: why"))
    wrong = {"onnx 1": {"forward": "wrong: output 0"}}
    assert not table.worse(refused, right) + table.worse(right, right) + table.worse({}, refused)
    assert table.worse(right, refused) and table.worse({}, wrong) and table.worse(refused, wrong)
    two = {"onnx 1": {"forward": "right"}, "onnx 2": {"forward": "refused: why"}}
    assert table.counts({"a": two}) == {("onnx", "forward"): {"refused": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_mixer", "llama"])
def test_rows_again(name: str) -> None:
    """The runner itself, on two small rows."""
    listed: Any = pytest.importorskip("zoo.architectures", exc_type=ImportError)
    measuring: Any = pytest.importorskip("zoo.measuring", exc_type=ImportError)
    (one,) = (each for each in listed.ARCHITECTURES if each.name == name)
    assert not table.worse(ROWS[name], measuring.measure(one))
