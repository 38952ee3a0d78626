"""Images in examples, changed at random: flipped, shifted, turned.

An image is the `input` of an example: a row for each x, and in it for each y the values of all
channels.

Source: Kaldi's `nnet3bin/nnet3-egs-augment-image.cc`; bilinear interpolation as in Gonzalez and
Woods, "Digital Image Processing".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import AttributeTypeError, FormatError, ShapeError
from ...framework.base.options.option_fields import option
from ...kaldi.files.sparse import to_dense
from ..files.examples import NnetExample, NnetIo


@dataclass(frozen=True)
class AugmentationOptions:
    """Kaldi's ImageAugmentationConfig.

    Raises:
        AttributeTypeError: a value out of bounds.
    """

    num_channels: int = option(1, "Colors of a pixel")
    horizontal_flip_prob: float = option(0.0, "How often left and right are exchanged")
    horizontal_shift: float = option(0.0, "The largest shift, as a share of the width")
    vertical_shift: float = option(0.0, "The largest shift, as a share of the height")
    rotation_degree: float = option(0.0, "The largest rotation")
    rotation_prob: float = option(0.0, "How often an image is turned")
    fill_mode: str = option("nearest", "What stands beyond the edges: nearest or reflect")

    def __post_init__(self) -> None:
        if self.num_channels < 1:
            raise AttributeTypeError("num-channels must be positive")
        most = {"rotation_degree": 180}
        shares = ("horizontal_flip_prob", "horizontal_shift", "vertical_shift", "rotation_prob")
        for name in (*shares, *most):
            if not 0 <= getattr(self, name) <= most.get(name, 1):
                option = name.replace("_", "-")
                raise AttributeTypeError(f"{option} must be from 0 to {most.get(name, 1)}")
        if self.fill_mode not in ("nearest", "reflect"):
            raise AttributeTypeError(f"fill-mode {self.fill_mode!r}: want nearest or reflect")


def augmented(
    example: NnetExample, options: AugmentationOptions, rng: np.random.Generator
) -> NnetExample:
    """With a changed image, which is not compressed.

    Raises:
        FormatError: there is no `input`.
        ShapeError: the columns are no multiple of the channels.
    """
    parts = []
    for io in example.io:
        if io.name == "input":
            io = NnetIo(io.name, io.indexes, changed(to_dense(io.features), options, rng))
        parts.append(io)
    if all(io.name != "input" for io in example.io):
        raise FormatError("the example has no 'input'")
    return NnetExample(parts)


def changed(
    image: np.ndarray, options: AugmentationOptions, rng: np.random.Generator
) -> np.ndarray:
    """An image, [width, height * channels], after a change drawn by `rng`."""
    width, columns = image.shape
    if columns % options.num_channels:
        raise ShapeError(f"{columns} columns of an image with {options.num_channels} channels")
    height = columns // options.num_channels
    move, turn = np.eye(3), np.eye(3)
    shifts = (2 * rng.random(2) - 1) * (options.horizontal_shift, options.vertical_shift)
    move[:2, 2] = np.round(shifts * (width, height))
    if rng.random() < options.horizontal_flip_prob:
        move[0, 0] = -1.0
    if rng.random() < options.rotation_prob:
        angle = np.deg2rad((2 * rng.random() - 1) * options.rotation_degree)
        turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    center = np.eye(3)
    center[:2, 2] = (width - 1) / 2, (height - 1) / 2
    transform = center @ turn @ move @ np.linalg.inv(center)
    return transformed(image, transform, options.num_channels, options.fill_mode)


def transformed(
    image: np.ndarray, transform: np.ndarray, channels: int, fill_mode: str
) -> np.ndarray:
    """The image whose point (x, y) is the old one's at `transform` @ (x, y, 1).

    Args:
        image: [width, height * channels].
        transform: affine, [3, 3].
    """
    pixels = image.reshape(len(image), -1, channels)
    width, height = pixels.shape[:2]
    if np.array_equal(transform, np.eye(3)):
        return image
    x, y = np.meshgrid(np.arange(width), np.arange(height), indexing="ij")
    old = np.tensordot(transform[:2, :2], np.stack((x, y)), 1) + transform[:2, 2, None, None]
    first = np.floor(old).astype(int)
    share = (old - first)[..., None].astype(image.dtype)
    place = _reflected if fill_mode == "reflect" else _nearest
    (x1, x2), (y1, y2) = (
        (place(start, size), place(start + 1, size))
        for start, size in zip(first, (width, height), strict=True)
    )
    dx, dy = share
    left = (1 - dy) * pixels[x1, y1] + dy * pixels[x1, y2]
    right = (1 - dy) * pixels[x2, y1] + dy * pixels[x2, y2]
    return ((1 - dx) * left + dx * right).reshape(image.shape)


def _nearest(place: np.ndarray, size: int) -> np.ndarray:
    return place.clip(0, size - 1)


def _reflected(place: np.ndarray, size: int) -> np.ndarray:
    """Mirrored at the middles of the outermost pixels, as often as it takes."""
    period = max(2 * size - 2, 1)
    place = place % period
    return np.minimum(place, period - place) if size > 1 else np.zeros_like(place)
