"""Maps of ImageReader, their images, and means of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opscope.cntk.config import ConfigParameters
from opscope.cntk.readers.base.sections import sections_with

from .base import MadeData, write

_LARGE, _FEW = 100, 8  # the side of an image that is large, and how many of those are made
_PICTURES = 4  # classes of images: some maps are read with several numbers of labels


def images(made: MadeData, section: ConfigParameters) -> None:
    """A map, its images, and the mean of images."""
    parts = [part for _, part in sections_with(section, "width")]
    if section.has("input"):
        inputs = section.section("input")
        for _, part in sections_with(inputs, "transforms"):
            parts += [ConfigParameters.of(value) for value in part.array("transforms")]
        labels = sections_with(inputs, "labelDim")
    else:
        labels = sections_with(section, "labelDim")
    sizes = [part.size(key) for part in parts for key in ("width", "height") if part.has(key)]
    crops = [max(part.array("cropSize").ints()) for part in parts if part.has("cropSize")]
    side = max([32, *crops, *(min(size, 256) for size in sizes)])
    if side > _LARGE:
        made.costly = True
        made.count = min(made.count, _FEW)
        made.minibatch = 1 << 20  # rates of ImageNet's minibatches are too large for fewer
    classes = min(_PICTURES, labels[0][1].size("labelDim"))
    path = Path(section.string("file"))
    lines = []
    for number in range(made.count):
        kind = number % classes
        image = _picture(kind, number, side)
        file = made.folder / f"{path.name}.{number}.{'jpg' if number % 2 else 'png'}"
        image.save(file)
        lines.append(f"{file}\t{kind}\n")
    write(path, "".join(lines))
    for part in parts:
        if part.string("meanFile", ""):
            _mean(part, parts)
        if part.string("intensityFile", ""):
            basis = _opencv(EigVal=np.ones((1, 3)), EigVec=np.eye(3))
            write(part.string("intensityFile"), basis)


def _mean(part: ConfigParameters, parts: Sequence[ConfigParameters]) -> None:
    sized = next((one for one in parts if one.has("width")), part)
    width, height, channels = (sized.size(key) for key in ("width", "height", "channels"))
    mean = np.full((1, width * height * channels), 120.0)
    write(
        part.string("meanFile"),
        _opencv(Channel=channels, Row=height, Col=width, MeanImg=mean),
    )


def _picture(kind: int, number: int, side: int):
    """An image with the color of its class, and some noise."""
    from PIL import Image

    random = np.random.default_rng(number)
    color = np.random.default_rng(kind + 100).integers(40, 215, 3)
    noise = random.integers(-30, 30, (side, side, 3))
    return Image.fromarray((color + noise).astype(np.uint8))


def _opencv(**values: float | np.ndarray) -> str:
    """Numbers and matrices in the XML of OpenCV."""
    parts = []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            rows, columns = value.shape
            numbers = " ".join(f"{one:g}" for one in value.reshape(-1))
            inner = f"<rows>{rows}</rows><cols>{columns}</cols><dt>f</dt><data>{numbers}</data>"
            parts.append(f'<{name} type_id="opencv-matrix">{inner}</{name}>')
        else:
            parts.append(f"<{name}>{value}</{name}>")
    return f'<?xml version="1.0"?>\n<opencv_storage>{"".join(parts)}</opencv_storage>\n'
