"""Made data for the readers of CNTK configs: a few samples, in the format that each section wants.

What a sample holds follows from its class and the name of its stream, with some noise, so that
inputs tell labels and a training has something to learn. Networks say what a stream means:
whether its axis has several steps, and which node reads it (`streams_of`). A module for each family
of formats has a function for each reader.
"""

from __future__ import annotations

from opscope.cntk.config import ConfigParameters
from opscope.cntk.readers.catalog import reader_opening
from opscope.framework.base.errors import FormatError

from .base import MadeData, streams_of
from .htk import deserialized, htk, htk_features, htk_labels, writer_lists
from .images import images
from .kaldi import kaldi
from .records import binary, libsvm, table
from .sentences import language, sentences, understanding
from .text import text

__all__ = ["MadeData", "make", "sentences", "streams_of", "writer_lists"]


def make(made: MadeData, section: ConfigParameters) -> None:
    """The files of the reader of a section.

    Raises:
        FormatError: the section is wrong, or there is no data for such a reader.
    """
    if section.has("readers"):
        for name in section.array("readers").strings():
            make(made, section.section(name))
        return
    if section.has("deserializers") and not section.has("readerType"):
        for value in section.array("deserializers"):
            part = ConfigParameters.of(value)
            _make(made, part.string("type"), part)
        return
    _make(made, section.string("readerType", "CNTKTextFormatReader"), section)


def _make(made: MadeData, kind: str, section: ConfigParameters) -> None:
    maker = _MAKERS.get(kind.lower())
    if maker is None:
        reader_opening(section)  # whether there is such a reader
        raise FormatError(f"no data are made for {kind}")
    maker(made, section)


_MAKERS = {
    "cntktextformatreader": text,
    "cntktextformatdeserializer": text,
    "htkmlfreader": htk,
    "htkdeserializers": htk,
    "htkfeaturedeserializer": deserialized(htk_features),
    "htkmlfdeserializer": deserialized(htk_labels),
    "kaldi2reader": kaldi,
    "libsvmbinaryreader": libsvm,
    "imagereader": images,
    "imagedeserializer": images,
    "lmsequencereader": language,
    "lusequencereader": understanding,
    "ucifastreader": table,
    "cntkbinaryreader": binary,
}
