"""Transforms from an image to a sample: crop, scale, color, mean, order of axes.

An image is an array [height, width, channels], channels blue, green, red as OpenCV has them: uint8,
or float32 once a transform needs it. Source: CNTK's `ImageReader/ImageTransformers.cpp`. Random
draws are not CNTK's, which depend on the order of its threads; ours depend on epoch and image.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....framework.base.untrusted.opener import read_file
from ....framework.base.untrusted.values import shown, whole_number
from ...config.parameters import ConfigParameters
from ..base.sections import complaint

Transform = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]
"""Of an image, its number and a source of random numbers."""

VIEWS = 10
_ATTEMPTS = 10
_LARGEST = 1 << 16  # pixels in a row or a column
_BORDER = -1


def transform_of(config: ConfigParameters, kind: str) -> Transform:
    """The transform that a section describes; `kind` is its `type`.

    Raises:
        FormatError: there is no such transform, or a parameter is wrong.
    """
    makers: dict[str, Callable[[ConfigParameters], Transform]] = {
        "crop": _crop,
        "scale": _scale,
        "color": _color,
        "intensity": _intensity,
        "mean": _mean,
        "transpose": lambda _: _transpose,
        "cast": lambda _: lambda image, number, random: image,
    }
    if kind.lower() not in makers:
        raise complaint(config, f"there is no transform {kind!r}: {', '.join(makers)}")
    return makers[kind.lower()](config)


def _transpose(image: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
    return image.transpose(2, 0, 1)


# -- crop


def _pair(config: ConfigParameters, name: str, default: str) -> tuple[float, float]:
    values = config.array(name, default).floats()
    return values[0], values[1]


def _ratio(config: ConfigParameters, name: str, default: str) -> tuple[float, float] | None:
    """A range within (0, 1]; None where both ends are 0."""
    low, high = _pair(config, name, default)
    if low == high == 0:
        return None
    if not 0 < low <= high <= 1:
        raise complaint(config, f"{name} {low}:{high} is no range within 0 and 1")
    return low, high


@dataclass(frozen=True)
class Crop:
    """A part of the image.

    Attributes:
        kind: center, randomside, randomarea or multiview10 (corners and center, then mirrored).
        size: width and height; 0: by the ratios.
        side, area: the side or the area of a square part, as a range of ratios.
        aspect: range of the ratio of its sides.
        jitter: whether ratios are drawn from their ranges, not taken from the lower end.
        flip: whether half of the images are mirrored.
    """

    kind: str
    size: tuple[int, int]
    side: tuple[float, float] | None
    area: tuple[float, float] | None
    aspect: tuple[float, float]
    jitter: bool
    flip: bool

    def __call__(self, image: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
        height, width = image.shape[:2]
        wide, high = self._extent(width, height, random)
        x, y = (width - wide) // 2, (height - high) // 2
        view = number % VIEWS if self.kind == "multiview10" else 4
        if self.kind.startswith("random"):
            x, y = (int(random.integers(0, free + 1)) for free in (width - wide, height - high))
        elif view % 5 != 4:  # a corner
            x = (width - wide) * (view % 5 % 2)
            y = (height - high) * (view % 5 // 2)
        part = image[y : y + high, x : x + wide]
        mirrored = view >= 5 or (self.flip and random.random() < 0.5)
        return part[:, ::-1] if mirrored else part

    def _extent(self, width: int, height: int, random: np.random.Generator) -> tuple[int, int]:
        """Width and height of the part."""
        if min(self.size) > 0:
            return min(width, self.size[0]), min(height, self.size[1])
        for _ in range(_ATTEMPTS):
            wide, high = width, height
            if self.side:
                wide = high = _rounded(min(width, height) * self._draw(self.side, random))
            elif self.area:
                wide = high = _rounded(math.sqrt(width * height * self._draw(self.area, random)))
            aspect = self._draw(self.aspect, random)
            if aspect != 1:
                area = wide * high
                wide = int(math.sqrt(area * aspect))
                high = int(math.sqrt(area / aspect))
                if random.random() >= 0.5:
                    wide, high = high, wide
            if 0 < wide <= width and 0 < high <= height:
                return wide, high
        return width, height

    def _draw(self, ends: tuple[float, float], random: np.random.Generator) -> float:
        return float(random.uniform(*ends)) if self.jitter else ends[0]


def _rounded(value: float) -> int:
    return int(math.floor(value + 0.5))


CROPS = ("center", "randomside", "randomarea", "multiview10")


def crop_kind(config: ConfigParameters) -> str:
    """The `cropType` of a section."""
    kind = config.string("cropType", "").lower() or "center"
    if kind not in CROPS:
        raise config["cropType"].error(f"cropType is one of {', '.join(CROPS)}")
    return kind


def _crop(config: ConfigParameters) -> Transform:
    kind = crop_kind(config)
    sizes = config.array("cropSize", "0").ints()
    side, area = _ratio(config, "sideRatio", "0.0"), _ratio(config, "areaRatio", "0.0")
    if side and area:
        raise complaint(config, "sideRatio and areaRatio cannot both be given")
    for needed, ratio in (("randomside", side), ("randomarea", area)):
        if kind == needed and ratio is None:
            raise complaint(config, f"cropType {kind} needs {needed[6:]}Ratio")
    if min(sizes[0], sizes[1]) < 0:
        raise config["cropSize"].error("cropSize cannot be negative")
    aspect = _ratio(config, "aspectRatio", "1.0")
    if aspect is None:
        raise config["aspectRatio"].error("aspectRatio must be above 0")
    jitter = config.string("jitterType", "").lower() or "none"
    if jitter not in ("none", "uniratio"):
        raise config["jitterType"].error("jitterType is none or uniRatio")
    flip = config.bool("hflip") if config.has("hflip") else kind.startswith("random")
    flip = flip and kind != "multiview10"
    return Crop(kind, (sizes[0], sizes[1]), side, area, aspect, jitter == "uniratio", flip)


# -- scale


def _nearest(x: np.ndarray) -> tuple[int, np.ndarray]:
    return 0, np.ones((1, len(x)))


def _linear(x: np.ndarray) -> tuple[int, np.ndarray]:
    return 0, np.stack([1 - x, x])


def _cubic(x: np.ndarray) -> tuple[int, np.ndarray]:
    a = -0.75
    far = x + 1
    near = 1 - x
    first = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    second = ((a + 2) * x - (a + 3)) * x * x + 1
    third = ((a + 2) * near - (a + 3)) * near * near + 1
    return -1, np.stack([first, second, third, 1 - first - second - third])


def _lanczos(x: np.ndarray) -> tuple[int, np.ndarray]:
    offsets = x - np.arange(-3, 5)[:, None]
    weights = np.sinc(offsets) * np.sinc(offsets / 4)
    return -3, weights / weights.sum(axis=0)


_KERNELS = {"nearest": _nearest, "linear": _linear, "cubic": _cubic, "lanczos": _lanczos}


@lru_cache(maxsize=256)
def _taps(old: int, new: int, kernel: str) -> tuple[np.ndarray, np.ndarray]:
    """For each new place the old ones that it is made of, and their weights, [taps, new]."""
    if kernel == "nearest":
        at = np.arange(new) * (old / new)
    else:
        at = (np.arange(new) + 0.5) * (old / new) - 0.5
    base = np.floor(at)
    first, weights = _KERNELS[kernel](at - base)
    places = base.astype(np.int64) + first + np.arange(len(weights))[:, None]
    return np.clip(places, 0, old - 1), weights.astype(np.float32)


def resize(image: np.ndarray, width: int, height: int, kernel: str = "linear") -> np.ndarray:
    """The image in another size, as OpenCV's `resize` makes it: without smoothing before.

    Args:
        kernel: nearest, linear, cubic or lanczos.
    """
    out = image
    for axis, (old, new) in enumerate(zip(image.shape[:2], (height, width), strict=True)):
        if old == new:
            continue
        places, weights = _taps(old, new, kernel)
        if kernel == "nearest":
            out = out.take(places[0], axis)
            continue
        shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
        terms = [
            out.take(place, axis).astype(np.float32, copy=False) * weight.reshape(shape)
            for place, weight in zip(places, weights, strict=True)
        ]
        out = sum(terms, np.zeros((), np.float32))
    if out.dtype != image.dtype and image.dtype == np.uint8:
        out = np.clip(np.floor(out + np.float32(0.5)), 0, 255).astype(np.uint8)
    return out


def _scale(config: ConfigParameters) -> Transform:
    width, height = config.int("width"), config.int("height")
    channels = config.int("channels")
    if not (0 < width < _LARGEST and 0 < height < _LARGEST and 0 < channels < _LARGEST):
        raise complaint(config, f"an image of {width} x {height} x {channels} cannot be")
    mode = config.string("scaleMode", "fill")
    if mode not in ("fill", "crop", "pad"):
        raise config["scaleMode"].error("scaleMode is fill, crop or pad")
    value = config.int("padValue", _BORDER)
    if value < _BORDER:
        raise config["padValue"].error("padValue is -1 (the border is repeated) or a color")
    kernel = config.string("interpolations", "linear").lower()
    if kernel not in _KERNELS:
        raise config["interpolations"].error(f"interpolations is one of {', '.join(_KERNELS)}")

    def apply(image: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
        high, wide = image.shape[:2]
        if mode == "fill":
            return resize(image, width, height, kernel)
        by_width = wide < high if mode == "crop" else wide > high
        if by_width:
            new_width = width
            new_height = _rounded(high * width / wide)
        else:
            new_width = _rounded(wide * height / high)
            new_height = height
        image = resize(image, max(new_width, 1), max(new_height, 1), kernel)
        return (
            _cropped(image, width, height)
            if mode == "crop"
            else _padded(image, width, height, value)
        )

    return apply


def _cropped(image: np.ndarray, width: int, height: int) -> np.ndarray:
    high, wide = image.shape[:2]
    if wide < width or high < height:
        raise ShapeError(f"an image of {wide} x {high} cannot be cropped to {width} x {height}")
    x, y = (wide - width) // 2, (high - height) // 2
    return image[y : y + height, x : x + width]


def _padded(image: np.ndarray, width: int, height: int, value: int) -> np.ndarray:
    high, wide = image.shape[:2]
    if wide > width or high > height:
        raise ShapeError(f"an image of {wide} x {high} cannot be padded to {width} x {height}")
    top, left = (height - high) // 2, (width - wide) // 2
    around = ((top, height - high - top), (left, width - wide - left), (0, 0))
    if value == _BORDER:
        return np.pad(image, around, mode="edge")
    return np.pad(image, around, constant_values=value)


# -- colors


def _radius(config: ConfigParameters, name: str) -> float:
    radius = config.float(name, 0.0)
    if not 0 <= radius <= 1:
        raise config[name].error(f"{name} is from 0 to 1")
    return radius


def _color(config: ConfigParameters) -> Transform:
    names = ("brightnessRadius", "contrastRadius", "saturationRadius")
    brightness, contrast, saturation = (_radius(config, name) for name in names)

    def apply(image: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
        if not (brightness or contrast or saturation):
            return image
        image = image.astype(np.float32)
        if brightness or contrast:
            beta = random.uniform(-brightness, brightness) * image.mean()
            alpha = 1 + random.uniform(-contrast, contrast)
            image = np.clip(image * np.float32(alpha) + np.float32(beta), 0, 255)
        if saturation and image.shape[2] == 3:
            image = _saturated(image, 1 + random.uniform(-saturation, saturation))
        return image

    return apply


def _saturated(image: np.ndarray, ratio: float) -> np.ndarray:
    """With the saturation (of hue, saturation, value) multiplied, up to 1."""
    value = image.max(axis=2, keepdims=True)
    spread = value - image.min(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = np.where(value > 0, spread / value, 0)
        factor = np.where(saturation > 0, np.minimum(saturation * ratio, 1) / saturation, 0)
    return (value - (value - image) * factor).astype(np.float32)


def _intensity(config: ConfigParameters) -> Transform:
    deviation = config.float("intensityStdDev", 0.0)
    path = config.string("intensityFile", "")
    if not path or not deviation:
        return lambda image, number, random: image

    @cache
    def matrices() -> tuple[np.ndarray, np.ndarray]:
        eigen = read_opencv(path)
        values, vectors = eigen.get("EigVal"), eigen.get("EigVec")
        if values is None or values.shape != (1, 3) or vectors is None or vectors.shape != (3, 3):
            raise FormatError(f"{path}: EigVal [1 x 3] and EigVec [3 x 3] were expected")
        return values, vectors

    def apply(image: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
        values, vectors = matrices()
        shift = vectors @ (random.normal(0, deviation, 3) * values[0])
        shift = shift[::-1][: image.shape[2]].astype(np.float32)
        return np.clip(image.astype(np.float32) + shift, 0, 255)

    return apply


def _mean(config: ConfigParameters) -> Transform:
    path = config.string("meanFile", "")
    if not path:
        return lambda image, number, random: image

    @cache
    def mean_image() -> np.ndarray:
        entries = read_opencv(path)
        sizes = [entries[name] for name in ("Row", "Col", "Channel") if name in entries]
        image_data = entries.get("MeanImg")
        if image_data is None or len(sizes) < 3 or any(size.ndim for size in sizes):
            raise FormatError(f"{path}: MeanImg, Row, Col and Channel were expected")
        shape = tuple(int(size) for size in sizes)
        if min(shape) < 1:
            raise FormatError(f"{path}: an image of {shape[0]} x {shape[1]} x {shape[2]}")
        if image_data.size != math.prod(shape):
            raise FormatError(f"{path}: MeanImg has {image_data.size} numbers, not {shape}")
        return image_data.reshape(shape).astype(np.float32)

    def apply(image: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
        mean = mean_image()
        if image.shape[:2] != mean.shape[:2]:
            return image
        if image.shape[2] != mean.shape[2]:
            raise ShapeError(
                f"{path}: a mean of {mean.shape[2]} channels for an image of {image.shape[2]}"
            )
        return image.astype(np.float32) - mean

    return apply


def read_opencv(path: str) -> dict[str, np.ndarray]:
    """The matrices and the numbers of an XML file that OpenCV wrote.

    Raises:
        FormatError: it is no such file, or a matrix has not as many numbers as it should.
    """
    try:
        root = ElementTree.fromstring(read_file(path))
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # of unknown encodings
        raise FormatError(f"{path}: no XML of OpenCV: {error}") from error
    values: dict[str, np.ndarray] = {}
    for part in root:
        try:
            if part.get("type_id") == "opencv-matrix":
                rows, columns = (
                    whole_number(part.findtext(name, "").strip(), f"{path}: {part.tag}: {name}", 0)
                    for name in ("rows", "cols")
                )
                numbers = np.array(part.findtext("data", "").split(), np.float64)
                if numbers.size != rows * columns:
                    raise FormatError(
                        f"{path}: {part.tag} has {numbers.size} numbers, not {rows} x {columns}"
                    )
                values[part.tag] = numbers.reshape(rows, columns)
            elif part.text and len(part) == 0:
                values[part.tag] = np.array(np.float64(part.text))
        except ValueError as error:
            raise FormatError(f"{path}: {part.tag}: {shown(error)}") from error
        if part.tag in values and not np.isfinite(values[part.tag]).all():
            raise FormatError(f"{path}: {part.tag} holds a number that is not finite")
    return values
