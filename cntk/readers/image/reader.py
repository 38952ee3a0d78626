"""ImageReader, ImageDeserializer and Base64ImageDeserializer: images and their classes.

    reader = [
        readerType = "ImageReader" ; file = "map.txt" ; randomize = "auto"
        features = [ width = 32 ; height = 32 ; channels = 3 ; cropType = "randomside"
                     sideRatio = 0.8 ; meanFile = "mean.xml" ]
        labels = [ labelDim = 10 ]
    ]

A line of the map is `image tab class` or `key tab image tab class`; an image is a file, `...` its
folder the map's, or `archive.zip@/file`. Base64: `key tab class tab image`. Files are decoded
by Pillow. Source: CNTK's `ImageReader/ImageDataDeserializer.cpp`, `Base64ImageDeserializer.cpp`,
`ImageReader.cpp`.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ....framework.base.cpu.executors import executor
from ....framework.base.errors import FormatError, OpscopeError, ShapeError
from ....framework.base.untrusted.archives import Archive
from ....framework.base.untrusted.limits import check_limit
from ....framework.base.untrusted.opener import read_file
from ....framework.base.untrusted.values import whole_number
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ..base.data import ChunkInfo, Deserializer, Samples, Stream
from ..base.order import BlockShuffle, Enumerator, FileOrder
from ..base.pack import FramePacker
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, precision, sections_with
from ..base.words import read_lines
from ..opening import Opening
from .transforms import VIEWS, Transform, crop_kind, transform_of

# Those that are decoded without another program, which Pillow starts for PostScript.
_FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "PPM", "JPEG2000", "SUN", "TGA", "TIFF", "WEBP")
_STEPS = ("crop", "scale", "color", "intensity", "mean")
_SEED = 5489


@dataclass(frozen=True)
class Entry:
    """A line of a map.

    Attributes:
        key: name of the image.
        image: its path, or its bytes in Base64.
        label: its class.
        place: file and line, for messages.
    """

    key: str
    image: str
    label: int
    place: str


def read_map(path: str, classes: int, *, embedded: bool = False) -> list[Entry]:
    """The lines of a map.

    Args:
        path: of the map.
        classes: how many there are.
        embedded: whether the map holds the images, in Base64.

    Raises:
        FormatError: the file is wrong; the message names file and line.
    """
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        parts = line.rstrip("\r").split("\t")
        key = parts.pop(0) if len(parts) > 2 else str(number - 1)
        if len(parts) < 2 or not all(parts[:2]):
            raise FormatError(f"{place}: two or three columns with tabs between were expected")
        image, label = (parts[1], parts[0]) if embedded else parts[:2]
        number_of = whole_number(label.strip(), f"{place}: the class", 0)
        if number_of >= classes:
            raise FormatError(f"{place}: class {number_of} is not below {classes}, labelDim")
        entries.append(Entry(key, image, number_of, place))
    if not entries:
        raise FormatError(f"{path}: the map is empty")
    return entries


@dataclass(eq=False)
class _Files:
    """Bytes of images: from files, archives, or Base64."""

    folder: str
    embedded: bool
    _archives: dict[str, Archive] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def close(self) -> None:
        """Close the archives."""
        for archive in self._archives.values():
            archive.close()
        self._archives.clear()

    def read(self, entry: Entry) -> bytes:
        """The bytes of an image.

        Raises:
            FormatError: the file cannot be read, or the text is no Base64.
        """
        if self.embedded:
            try:
                return base64.b64decode(entry.image.strip(), validate=True)
            except ValueError as error:  # characters that are no Base64, or no ASCII
                raise FormatError(f"{entry.place}: the image is no Base64: {error}") from None
        path = entry.image.replace("...", self.folder, 1)
        archive, at, inside = path.partition("@")
        try:
            if not at:
                return read_file(path)
            with self._lock:
                return self._unpacked(archive, inside[1:].replace("\\", "/"))
        except FormatError as error:
            raise type(error)(f"{entry.place}: {error}") from error

    def _unpacked(self, path: str, name: str) -> bytes:
        """The bytes of a file in an archive.

        Raises:
            FormatError: it is not there or damaged, or too large once unpacked.
        """
        if path not in self._archives:
            self._archives[path] = Archive(path)
        archive = self._archives[path]
        check_limit("unpack", archive.sizes.get(name, 0), f"{path}@{name}")
        with archive.open(name) as member:
            return member.read()


def decode(data: bytes, place: str, *, grayscale: bool) -> np.ndarray:
    """An image, uint8, [height, width, channels]: blue, green, red, or gray.

    Raises:
        FormatError: it is no image that Pillow knows; `place` is put before the message.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise FormatError(
            "images are decoded by Pillow, which is not installed (pip install opscope[image])"
        ) from None
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            width, height = image.size
            check_limit("pixels", width * height, f"{place}: an image of {width} x {height}")
            mode = "L" if grayscale else "RGB"
            pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    except OpscopeError:
        raise
    except UnidentifiedImageError as error:
        raise FormatError(f"{place}: the image cannot be decoded: unknown format") from error
    except Exception as error:  # the decoders of damaged images raise anything
        raise FormatError(f"{place}: the image cannot be decoded: {error}") from error
    return pixels[:, :, None] if grayscale else pixels[:, :, ::-1]


class Images(Deserializer):
    """Images and their classes; each is a chunk.

    Args:
        names: of the streams of images and of classes.
        entries: the lines of the map.
        transforms: applied to each image in order.
        classes: how many there are.
        folder: of the map.
        embedded: whether the map holds the images.
        grayscale: whether colors are dropped.
        views: how often each image is given.
        threads: that decode; 0: as many as there are processors.
        seed: of random crops and colors, which depend on it, the epoch and the image alone.
        dtype: of values.
    """

    def __init__(
        self,
        names: tuple[str, str],
        entries: Sequence[Entry],
        transforms: Sequence[Transform],
        classes: int,
        *,
        folder: str,
        embedded: bool = False,
        grayscale: bool = False,
        views: int = 1,
        threads: int = 0,
        seed: int = 0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self._entries = list(entries)
        self._transforms = list(transforms)
        self._views = views
        self._files = _Files(folder, embedded)
        self._grayscale = grayscale
        self._dtype = np.dtype(dtype)
        self._seed = _SEED + seed
        self._epoch = 0
        self._threads = executor(threads or None, "opscope-images")
        first = self._image(0)
        self._shape = first.shape
        self.streams = [
            Stream(names[0], first.size, False, self._dtype, first.shape[::-1]),
            Stream(names[1], classes, True, self._dtype),
        ]
        one = np.ones(1, np.int64)
        self.chunks = [ChunkInfo(one, [entry.key]) for entry in self._entries for _ in range(views)]

    def start_epoch(self, epoch: int) -> None:
        """See `Deserializer.start_epoch`."""
        self._epoch = epoch

    def close(self) -> None:
        """See `Deserializer.close`."""
        self._threads.shutdown()
        self._files.close()

    def _image(self, number: int) -> np.ndarray:
        entry = self._entries[number // self._views]
        image = decode(self._files.read(entry), entry.place, grayscale=self._grayscale)
        random = np.random.default_rng((self._seed, self._epoch, number))
        try:
            for transform in self._transforms:
                image = transform(image, number, random)
        except ShapeError as error:
            raise ShapeError(f"{entry.place}: {error}") from error
        return image

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        return self.read_chunks([number])[0]

    def read_chunks(self, numbers: Sequence[int]) -> list[list[Samples]]:
        """See `Deserializer.read_chunks`; several threads decode.

        Raises:
            ShapeError: an image has another size than the first one after all transforms.
        """
        images = list(self._threads.map(self._image, numbers))
        rows = []
        bounds = np.arange(2)
        one = np.ones(1, self._dtype)
        for number, image in zip(numbers, images, strict=True):
            entry = self._entries[number // self._views]
            if image.shape != self._shape:
                raise ShapeError(
                    f"{entry.place}: the image has the shape {image.shape}, the first one "
                    f"{self._shape}; scale them to one size"
                )
            row = np.ascontiguousarray(image, self._dtype).reshape(1, -1)
            label = Samples(bounds, one, np.array([entry.label]), bounds)
            rows.append([Samples(bounds, row), label])
        return rows


def image_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType ImageReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    name, part, label_name, classes = _streams(config, "width")
    size = part.int("width"), part.int("height"), part.int("channels")
    layout = part.string("mbFormat", "nchw").lower()
    if layout not in ("nchw", "nhwc", "legacy"):
        raise part["mbFormat"].error("mbFormat is nchw or nhwc")
    steps = [*_STEPS, "transpose"] if layout == "nchw" else [*_STEPS]
    source = _images(
        config,
        (name, label_name),
        [transform_of(part, step) for step in steps],
        classes,
        grayscale=config.bool("grayscale", size[2] == 1),
        views=VIEWS if crop_kind(part) == "multiview10" else 1,
        threads=config.size("numCPUThreads", 0),
        seed=part.size("seed", 0),
        files=part.files("meanFile", "intensityFile"),
        size=math.prod(size),
    )
    random = config.string("randomize", "auto").lower()
    if random not in ("auto", "none"):
        raise config["randomize"].error("randomize is 'auto' or 'none'")
    ahead = config.bool("prefetch", True)

    def opened() -> DataReader:
        data = source.open()
        order: Enumerator = FileOrder(data) if random == "none" else BlockShuffle(data, 1)
        return PackedReader(FramePacker(order, data.streams, local=True), ahead=ahead)

    return Opening(opened, source.files, source.streams)


def image_source(config: ConfigParameters) -> Opening[Deserializer]:
    """ImageDeserializer: images by a map, with a list of transforms."""
    return _source(config, embedded=False)


def base64_image_source(config: ConfigParameters) -> Opening[Deserializer]:
    """Base64ImageDeserializer: images within the map."""
    return _source(config, embedded=True)


def _source(config: ConfigParameters, *, embedded: bool) -> Opening[Deserializer]:
    name, part, label_name, classes = _streams(config.section("input"), "transforms")
    steps = [ConfigParameters.of(value) for value in part.array("transforms")]
    return _images(
        config,
        (name, label_name),
        [transform_of(step, step.string("type")) for step in steps],
        classes,
        embedded=embedded,
        grayscale=config.bool("grayscale", False),
        views=VIEWS if config.bool("multiViewCrop", False) else 1,
        threads=config.size("numCPUThreads", 0),
        seed=sum(step.size("seed", 0) for step in steps),
        files=[file for step in steps for file in step.files("meanFile", "intensityFile")],
    )


def _streams(config: ConfigParameters, key: str) -> tuple[str, ConfigParameters, str, int]:
    features = sections_with(config, key)
    labels = sections_with(config, "labelDim")
    if len(features) != 1 or len(labels) != 1:
        raise complaint(
            config,
            f"one section of images (with {key}) and one of labels (with labelDim) are needed, not "
            f"{len(features)} and {len(labels)}",
        )
    classes = labels[0][1].size("labelDim")
    if not 0 < classes < 1 << 31:
        raise labels[0][1]["labelDim"].error(f"there cannot be {classes} classes")
    return *features[0], labels[0][0], classes


def _images(
    config: ConfigParameters,
    names: tuple[str, str],
    transforms: list[Transform],
    classes: int,
    *,
    embedded: bool = False,
    files: list[ConfigValue],
    size: int | None = None,
    **settings: Any,
) -> Opening[Deserializer]:
    """Images of a map.

    Args:
        files: that must be there besides the map.
        size: numbers of an image; None: only the data tell.
        settings: further ones of `Images`.
    """
    path = config.string("file")
    dtype = precision(config)

    def opened() -> Deserializer:
        return Images(
            names,
            read_map(path, classes, embedded=embedded),
            transforms,
            classes,
            folder=str(PurePosixPath(path).parent),
            embedded=embedded,
            dtype=dtype,
            **settings,
        )

    streams = None
    if size is not None:
        streams = [Stream(names[0], size, dtype=dtype), Stream(names[1], classes, True, dtype)]
    return Opening(opened, [*config.files("file"), *files], streams)
