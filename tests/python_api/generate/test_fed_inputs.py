"""Other inputs of imported decoders: which of them have a row for each sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counting_decoder import V, counting
from opscope.framework.base.errors import ShapeError

PROMPTS = [[1, 2, 2], [3, 3, 3]]


def tokens(found: list[Any]) -> list[Any]:
    return [[one.tokens for one in best] for best in found]


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("bias", [None, ["N", 1, V]])
def test_each_hypothesis_has_the_rows_of_its_sequence(
    tmp_path: Path, bias: list[Any] | None, mask: bool
) -> None:
    generator = counting(tmp_path / "m.onnx", bias, mask)
    rows = np.array([[[1, 1, 0.4, 1]], [[1, 1, 1, -1]]], np.float32)
    feed = {"bias": rows}
    assert [row.tolist() for row in generator.greedy(PROMPTS, 3, feed=feed)] == [[1] * 3, [0] * 3]
    both = generator.beam(PROMPTS, 3, width=3, feed=feed)
    alone = [
        generator.beam([prompt], 3, width=3, feed={"bias": rows[n : n + 1]})[0]
        for n, prompt in enumerate(PROMPTS)
    ]
    assert tokens(both) == tokens(alone)
    for one, two in zip(sum(both, []), sum(alone, []), strict=True):
        assert one.log_prob == pytest.approx(two.log_prob)
    begun = generator.read([prompt[:1] for prompt in PROMPTS], feed=feed)
    assert tokens(generator.beam([p[1:] for p in PROMPTS], 3, width=3, after=begun)) == tokens(both)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("value", [2.0, [1, 1, 0.4, 1]], ids=["scalar", "tokens"])
def test_what_has_no_rows_serves_all_sequences(tmp_path: Path, value: Any, mask: bool) -> None:
    generator = counting(tmp_path / "m.onnx", None, mask)
    found = generator.beam(PROMPTS, 3, width=3, feed={"bias": value})
    each = [generator.beam([prompt], 3, width=3, feed={"bias": value})[0] for prompt in PROMPTS]
    assert tokens(found) == tokens(each)
    wanted = [2 if np.ndim(value) == 0 else 1, 3]
    written = generator.greedy(PROMPTS, 2, feed={"bias": value})
    assert [row.tolist() for row in written] == [[token] * 2 for token in wanted]


def test_one_value_is_no_row(tmp_path: Path) -> None:
    generator = counting(tmp_path / "m.onnx", ["N"])
    for prompts, value, fed in (
        (PROMPTS[:1], 3.0, r"\[\]"),
        (PROMPTS, 3.0, r"\[\]"),
        (PROMPTS[:1], [3.0, 4.0], r"\[2\]"),
    ):
        text = rf"'bias' is \[N\]; fed was {fed} for {len(prompts)} sequences"
        with pytest.raises(ShapeError, match=text):
            generator.greedy(prompts, 2, feed={"bias": value})
    written = generator.greedy(PROMPTS, 2, feed={"bias": [1.0, -1.0]})
    assert [row.tolist() for row in written] == [[2, 2], [0, 1]]
