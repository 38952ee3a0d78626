"""Images in examples are flipped, shifted and turned."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, FormatError, ShapeError
from opscope.nnet3.egs.augment import AugmentationOptions, augmented, changed, transformed
from opscope.nnet3.egs.rows import example_io
from opscope.nnet3.files.examples import NnetExample

RNG = np.random.default_rng(0)
IMAGE = RNG.random((6, 4 * 3)).astype(np.float32)  # 6 wide, 4 high, 3 colors


def move(x, y):
    transform = np.eye(3)
    transform[:2, 2] = x, y
    return transform


def test_flipped():
    options = AugmentationOptions(3, horizontal_flip_prob=1.0)
    np.testing.assert_allclose(changed(IMAGE, options, RNG), IMAGE[::-1], atol=1e-6)


@pytest.mark.parametrize("mode, columns", [("nearest", [0, 0, 0, 1]), ("reflect", [2, 1, 0, 1])])
def test_shifted_over_the_edge(mode, columns):
    found = transformed(IMAGE, move(0, -2), 3, mode).reshape(6, 4, 3)
    np.testing.assert_array_equal(found, IMAGE.reshape(6, 4, 3)[:, columns])
    np.testing.assert_array_equal(transformed(IMAGE, np.eye(3), 3, mode), IMAGE)


def test_between_two_pixels():
    found = transformed(IMAGE, move(0.25, 0), 3, "nearest")
    np.testing.assert_allclose(found[0], 0.75 * IMAGE[0] + 0.25 * IMAGE[1], rtol=1e-5)
    np.testing.assert_allclose(found[5], IMAGE[5], rtol=1e-5)


def test_turned_by_a_right_angle():
    square = RNG.random((5, 5))
    turn = np.array([[0.0, -1, 4], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(transformed(square, turn, 1, "nearest"), square[::-1].T, atol=1e-12)
    options = AugmentationOptions(rotation_degree=20, rotation_prob=1)
    assert not np.allclose(changed(square, options, RNG), square)


def test_drawn_shifts():
    options = AugmentationOptions(3, horizontal_shift=0.5, vertical_shift=0.25)
    seen = {changed(IMAGE, options, RNG).tobytes() for _ in range(40)}
    assert 10 < len(seen) <= 7 * 3


def test_mistakes():
    example = NnetExample([example_io("input", IMAGE), example_io("output", IMAGE)])
    found = augmented(example, AugmentationOptions(3, horizontal_flip_prob=1.0), RNG)
    assert found.io[1] is example.io[1] and not np.array_equal(found.io[0].features, IMAGE)
    with pytest.raises(FormatError, match="'input'"):
        augmented(NnetExample(example.io[1:]), AugmentationOptions(), RNG)
    with pytest.raises(ShapeError, match="12 columns of an image with 5"):
        augmented(example, AugmentationOptions(5), RNG)
    for bad in ({"num_channels": 0}, {"rotation_degree": 181}, {"fill_mode": "zero"}):
        with pytest.raises(AttributeTypeError):
            AugmentationOptions(**bad)
