"""CNTKTextFormatReader: the reader section of a config.

    reader = [
        readerType = "CNTKTextFormatReader" ; file = "train.ctf" ; randomize = true
        input = [
            features = [ dim = 2 ; format = "dense" ; alias = "F" ]
            labels   = [ dim = 2 ; format = "sparse" ]
        ]
    ]

Source: CNTK's `CNTKTextFormatReader/TextConfigHelper.cpp`.
"""

from __future__ import annotations

from functools import partial

from ....framework.base.errors import FormatError
from ...base.text import located
from ...config.parameters import ConfigParameters
from ..base.data import Deserializer, Stream
from ..base.pack import FramePacker, SequencePacker
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import enumerator, precision
from ..opening import Opening
from .format import CHUNK_SIZE, TextFormat, TextStream


def text_format_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType CNTKTextFormatReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    source = text_source(config)
    order = enumerator(config)
    packer = FramePacker if config.bool("frameMode", False) else SequencePacker
    ahead = config.bool("prefetch", True)

    def opened() -> DataReader:
        data = source.open()
        return PackedReader(packer(order(data), data.streams), ahead=ahead)

    return Opening(opened, source.files, source.streams, light=True)


def text_source(config: ConfigParameters) -> Opening[Deserializer]:
    """CNTKTextFormatDeserializer: the file of a section and its streams."""
    streams = text_streams(config)
    opened = partial(
        TextFormat,
        config.string("file"),
        streams,
        skip_ids=config.bool("skipSequenceIds", False),
        max_errors=config.int("maxErrors", 0),
        chunk_size=config.int("chunkSizeInBytes", CHUNK_SIZE),
    )
    return Opening(opened, config.files("file"), [text.stream for text in streams], light=True)


def text_streams(config: ConfigParameters) -> list[TextStream]:
    """The streams of the `input` section."""
    inputs = config.section("input")
    dtype = precision(config)
    by_alias: dict[str, TextStream] = {}
    for name in inputs.names():
        part = inputs.section(name)
        for needed in ("dim", "format"):
            if not part.has(needed):
                raise part.missing(needed)
        form = part["format"]
        if str(form).lower() not in ("dense", "sparse"):
            raise form.error(f"the format is 'dense' or 'sparse', not '{form}'")
        dim = part.size("dim")
        if not 0 < dim < 1 << 31:
            raise part["dim"].error(f"a sample cannot have {dim} values")
        alias = part.string("alias") if part.has("alias") else name
        if alias in by_alias:
            other = by_alias[alias].stream.name
            raise located(
                FormatError, f"the alias {alias!r} already belongs to {other}", inputs.place(name)
            )
        stream = Stream(name, dim, str(form).lower() == "sparse", dtype)
        by_alias[alias] = TextStream(stream, alias)
    if not by_alias:
        raise config["input"].error("the input section is empty")
    return list(by_alias.values())
