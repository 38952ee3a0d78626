"""Readers, writers and deserializers by the names that configs call them.

The tables hold this package's own: a new one has its module and its line here. A running
program makes others known by `add_reader`, `add_writer` and `add_deserializer`, an installed
package by entry points of the groups `opscope.readers`, `opscope.writers` and
`opscope.deserializers`, each under the name of the config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Generic, TypeAlias, TypeVar

from ...framework.base.errors import RunError, doubled, nearest
from ...framework.base.options.plugins import Plugins, call_plugin
from ..config.parameters import ConfigParameters
from ..config.value import ConfigValue
from .base.data import Deserializer, Stream
from .base.reader import DataReader
from .base.sections import check_not_read
from .base.writer import DataWriter
from .foreign import ForeignDeserializer
from .multi import MultiReader
from .opening import Opening

T = TypeVar("T")
Maker: TypeAlias = Callable[[ConfigParameters], T]
"""Makes a reader, or the like, of its section: a function, or the class itself."""


class Catalog(Generic[T]):
    """The functions that make readers, or the like, from sections of a config, by name.

    Args:
        what: the catalog holds, for errors.
        group: of the entry points.
        base: the class of what is made.
        own: module of this package and name of the function, by the name in configs.
        any_case: whether configs may write the names in any case.
    """

    def __init__(
        self,
        what: str,
        group: str,
        base: type[T],
        own: Mapping[str, tuple[str, str]],
        *,
        any_case: bool = True,
    ) -> None:
        self.own = own
        self._base = base
        self.plugins: Plugins[Maker[T]] = Plugins(what, group, own, any_case=any_case)

    def names(self) -> list[str]:
        """All names, also from other packages."""
        return self.plugins.names()

    def opening(self, name: str, value: ConfigValue, config: ConfigParameters) -> Opening[T]:
        """What a section says, read by the function of a name; nothing is opened yet.

        Args:
            name: to look up.
            value: of the config, for the place in errors.
            config: the section.

        Raises:
            FormatError: there is no such name, or the section is wrong.
        """
        for known, (module, function) in self.own.items():
            if self.plugins.same(known, name):
                return getattr(import_module(f".{module}", __package__), function)(config)
        maker = self.plugins.find(name)
        if maker is None:
            message = f"there is no {self.plugins.what} {name!r}{nearest(name, self.names())}"
            raise value.error(message, needed=True)
        return Opening(
            partial(self._instance, self.plugins.owner(name), maker, config), foreign=True
        )

    def _instance(self, owner: str, maker: Maker[T], config: ConfigParameters) -> T:
        instance = call_plugin(owner, maker, config)
        if not isinstance(instance, self._base):
            class_name = type(instance).__name__
            wanted = self._base.__name__
            raise RunError(
                f"{owner} gave an object of the class {class_name}, which is no {wanted}"
            )
        for name in self._base.__annotations__:
            part = call_plugin(owner, getattr, instance, name, None)
            if part is None or isinstance(part, str):
                held = "no attribute" if part is None else "a text, no list, as"
                raise RunError(f"{owner}: {type(instance).__name__} has {held} {name!r}")
        return instance


READERS: Catalog[DataReader] = Catalog(
    "reader type",
    "opscope.readers",
    DataReader,
    {
        "BinaryReader": ("binary.reader", "binary_reader"),
        "CNTKBinaryReader": ("binary.format", "cntk_binary_reader"),
        "CNTKTextFormatReader": ("text.reader", "text_format_reader"),
        "CompositeDataReader": ("composite", "composite_reader"),
        "DSSMReader": ("sparse.dssm", "dssm_reader"),
        "HTKDeserializers": ("composite", "htk_deserializers_reader"),
        "HTKMLFReader": ("htk.reader", "htk_mlf_reader"),
        "ImageReader": ("image.reader", "image_reader"),
        "Kaldi2Reader": ("kaldi.reader", "kaldi2_reader"),
        "LMSequenceReader": ("language.lm_reader", "lm_sequence_reader"),
        "LUSequenceReader": ("language.lu_reader", "lu_sequence_reader"),
        "LibSVMBinaryReader": ("sparse.libsvm", "libsvm_binary_reader"),
        "SparsePCReader": ("sparse.parallel_corpus", "sparse_pc_reader"),
        "UCIFastReader": ("uci.reader", "uci_fast_reader"),
    },
)
WRITERS: Catalog[DataWriter] = Catalog(
    "writer type",
    "opscope.writers",
    DataWriter,
    {
        "BinaryWriter": ("binary.writer", "binary_writer"),
        "HTKMLFWriter": ("htk.writer", "htk_mlf_writer"),
        "Kaldi2Writer": ("kaldi.writer", "kaldi2_writer"),
        "LMSequenceWriter": ("language.lu_writer", "lm_sequence_writer"),
        "LUSequenceWriter": ("language.lu_writer", "lu_sequence_writer"),
    },
)
DESERIALIZERS: Catalog[Deserializer] = Catalog(
    "deserializer",
    "opscope.deserializers",
    Deserializer,
    {
        "CNTKBinaryFormatDeserializer": ("binary.format", "binary_source"),
        "CNTKTextFormatDeserializer": ("text.reader", "text_source"),
        "HTKFeatureDeserializer": ("composite", "htk_features"),
        "HTKMLFDeserializer": ("composite", "htk_labels"),
        "ImageDeserializer": ("image.reader", "image_source"),
        "Base64ImageDeserializer": ("image.reader", "base64_image_source"),
    },
    any_case=False,
)
_WRITER_OF = {  # CNTK takes the names of readers, too
    name.replace("Writer", "Reader").lower(): name for name in WRITERS.own
}


def add_reader(name: str, maker: Maker[DataReader]) -> None:
    """Let `readerType = name` of a config make a reader. A package does the same by an entry point
    of the group `opscope.readers`.

    Args:
        name: in configs, in any case.
        maker: makes the reader of its section, as a `DataReader` of one's own does.

    Raises:
        OpscopeError: there is such a reader.
    """
    READERS.plugins.add(name, maker)


def add_writer(name: str, maker: Maker[DataWriter]) -> None:
    """The same for `writerType = name`, a `DataWriter` and the group `opscope.writers`."""
    WRITERS.plugins.add(name, maker)


def add_deserializer(name: str, maker: Maker[Deserializer]) -> None:
    """The same for `type = name` of a deserializer, and the group `opscope.deserializers`. Capitals
    count in the name."""
    DESERIALIZERS.plugins.add(name, maker)


def create_reader(config: ConfigParameters) -> DataReader:
    """The reader that a reader section asks for by its `readerType`, by its `deserializers`, or by
    a list of sections, `readers`; CNTKTextFormatReader where it has none of these.

    Raises:
        FormatError: there is no such reader; or the reader refuses the section or its data.
    """
    return reader_opening(config).open()


def reader_opening(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section, its data not opened yet; see `create_reader`.

    Raises:
        FormatError: there is no such reader; or the reader refuses the section.
    """
    if config.has("readers"):
        return _multi_reader(config)
    composed = config.has("deserializers") and not config.has("readerType")
    default = "CompositeDataReader" if composed else "CNTKTextFormatReader"
    value = config.find("readerType", default)
    assert value is not None
    return READERS.opening(default if composed else str(value), value, config)


def _multi_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The readers that `readers` names, each by its own section.

    Raises:
        FormatError: there is none; two give streams of one name; or one refuses its section.
    """
    value = config["readers"]
    openings = [reader_opening(config.section(name)) for name in value.array().strings()]
    if not openings:
        raise value.error("there is no reader")

    def different(streams: Sequence[Stream]) -> None:
        twice = doubled(stream.name.lower() for stream in streams)
        if twice:
            raise value.error(f"two readers give {twice[0]!r}")

    def opened() -> DataReader:
        with ExitStack() as stack:
            readers = [stack.enter_context(opening.open()) for opening in openings]
            different([stream for reader in readers for stream in reader.streams])
            stack.pop_all()
        return MultiReader(readers)

    opening = together(opened, openings)
    different(opening.streams or ())
    return opening


def together(
    opened: Callable[[], DataReader],
    parts: Sequence[Opening[DataReader]] | Sequence[Opening[Deserializer]],
) -> Opening[DataReader]:
    """A reader put together from readers or deserializers."""
    files = [file for part in parts for file in part.files]
    given = [part.streams for part in parts if part.streams is not None]
    streams = [stream for part in given for stream in part] if len(given) == len(parts) else None
    foreign = any(part.foreign for part in parts)
    light = all(part.light for part in parts)
    probes = [part.probe for part in parts if part.probe is not None]
    return Opening(
        opened,
        files,
        streams,
        foreign=foreign,
        light=light,
        probe=lambda: [probe() for probe in probes],
    )


def create_writer(config: ConfigParameters, reader: ConfigParameters | None = None) -> DataWriter:
    """The writer that a writer section asks for by its `writerType`.

    Args:
        config: the section.
        reader: the section of the reader that is used at the same time.

    Raises:
        FormatError: there is no such writer; or the writer refuses the section.
        SaveError: it would write a file that the reader reads.
    """
    writer = writer_opening(config).open()
    if reader is not None:
        check_not_read(reader, writer.files)
    return writer


def writer_opening(config: ConfigParameters) -> Opening[DataWriter]:
    """The writer of a section, nothing opened yet; see `create_writer`.

    Raises:
        FormatError: there is no such writer; or the writer refuses the section.
    """
    value = config.find("writerType", "BinaryWriter")
    assert value is not None
    name = _WRITER_OF.get(str(value).lower(), str(value))
    return WRITERS.opening(name, value, config)


def create_deserializer(config: ConfigParameters) -> Deserializer:
    """The deserializer that a section asks for by its `type`.

    Raises:
        FormatError: there is no such type; or the deserializer refuses the section or its data.
    """
    return source_opening(config).open()


def source_opening(config: ConfigParameters) -> Opening[Deserializer]:
    """The deserializer of a section, its data not opened yet; see `create_deserializer`.

    Raises:
        FormatError: there is no such type; or the deserializer refuses the section.
    """
    value = config["type"]
    name = str(value)
    opening = DESERIALIZERS.opening(name, value, config)
    if not opening.foreign:
        return opening
    owner = DESERIALIZERS.plugins.owner(name)
    return replace(opening, open=lambda: ForeignDeserializer(owner, opening.open()))
