"""Readers put together from deserializers.

    reader = [
        randomize = true ; truncated = true ; truncationLength = 20
        deserializers = (
            [ type = "HTKFeatureDeserializer" ; input = [ features = [ dim = 13 ; ... ] ] ] :
            [ type = "HTKMLFDeserializer" ; input = [ labels = [ labelDim = 10 ; ... ] ] ]
        )
    ]

Source: CNTK's `CompositeDataReader/CompositeDataReader.cpp` and
`HTKDeserializers/HTKMLFReader.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..config.parameters import ConfigParameters
from .base.bundler import Bundler, SingleSamples
from .base.data import Deserializer
from .base.order import WHOLE_SWEEP, BlockShuffle, FileOrder
from .base.pack import FramePacker, Packer, SequencePacker, TruncatedPacker
from .base.packed_reader import PackedReader
from .base.reader import DataReader
from .base.sections import complaint, enumerator, sections_with
from .catalog import source_opening, together
from .htk.data import LabelSequences, Utterances
from .htk.lattices import LatticePacker, lattices_of, phones_of
from .htk.options import FeatureOptions, LabelOptions
from .htk.reader import opening_of, randomization
from .opening import Opening

_HTK_FEATURES = "HTKFeatureDeserializer"
_SHUFFLES = ("randomize", "randomizationWindow", "truncationLength")
_IMAGES = ("ImageDeserializer", "Base64ImageDeserializer")


def composite_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with `deserializers`.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    writing = config.match("action", "write")
    config.only_if(not writing, "action = write keeps the order of the file", *_SHUFFLES)
    frame_mode = config.bool("frameMode", False) and not writing
    truncated = config.bool("truncated", False) and not writing
    if frame_mode and truncated:
        raise config["truncated"].error("'truncated' needs frameMode = false")
    parts = [ConfigParameters.of(value) for value in config.array("deserializers")]
    if not parts:
        raise config["deserializers"].error("there is no deserializer")
    kinds = [part.string("type") for part in parts]
    if kinds[0] == "HTKMLFDeserializer":
        raise parts[0]["type"].error("labels cannot come first: they do not tell the order")
    sources = [source_opening(part) for part in parts]
    window: int | None = WHOLE_SWEEP
    if kinds[0] in _IMAGES and len(kinds) == 1 and not writing:
        window = 1
        frame_mode = True
    by_frames = frame_mode and kinds[0] == _HTK_FEATURES
    expanded = [n for n, part in enumerate(parts) if n and part.bool("expandToUtterance", False)]
    numeric = not {"CNTKTextFormatDeserializer", "ImageDeserializer"}.isdisjoint(kinds)
    join = _join(config, len(sources), expanded, by_frames, numeric)
    ordered = FileOrder if writing else enumerator(config, window)
    length = _length(config, truncated)
    if truncated and length < 1:
        raise complaint(config, "truncated = true needs a truncationLength above 0")
    ahead = config.bool("prefetch", True)
    config.only_if(not truncated, "truncated is true", "localTimeline")
    local = not truncated and config.bool("localTimeline", True)

    def opened() -> DataReader:
        source = join([source.open() for source in sources])
        order = ordered(source)
        packer: Packer = SequencePacker(order, source.streams, local=local)
        if frame_mode:
            packer = FramePacker(order, source.streams, local=local)
        elif truncated:
            packer = TruncatedPacker(order, source.streams, length)
        return PackedReader(packer, ahead=ahead)

    return together(opened, sources)


def _length(config: ConfigParameters, truncated: bool) -> int:
    config.only_if(truncated, "truncated is false", "truncationLength")
    return config.int("truncationLength", 0) if truncated else 0


def _join(
    config: ConfigParameters,
    count: int,
    expanded: list[int],
    by_frames: bool,
    numeric: bool = False,
) -> Callable[[list[Deserializer]], Deserializer]:
    """What makes one deserializer of several.

    Args:
        count: how many there are.
        expanded: numbers of those whose sequences are repeated for the whole utterance.
        by_frames: whether each frame is a sequence.
        numeric: whether names are numbers, unless useNumericSequenceKeys says otherwise.
    """
    names = ("checkData", "useNumericSequenceKeys")
    config.only_if(count > 1, "there is one deserializer", *names)
    cleanse = count > 1 and config.bool("checkData", True)
    numeric = count > 1 and config.bool("useNumericSequenceKeys", numeric)

    def join(sources: list[Deserializer]) -> Deserializer:
        source = sources[0]
        if count > 1:
            source = Bundler(
                sources, expanded=expanded, cleanse=cleanse, equal=by_frames, numeric=numeric
            )
        return SingleSamples(source) if by_frames else source

    return join


def _input(config: ConfigParameters) -> tuple[str, ConfigParameters]:
    """The only stream of a deserializer, and its section."""
    inputs = config.section("input")
    if len(inputs) != 1:
        raise config["input"].error(f"one stream was expected, not {len(inputs)}")
    (name,) = inputs.names()
    return name, inputs.section(name)


def htk_features(config: ConfigParameters) -> Opening[Deserializer]:
    """HTKFeatureDeserializer: feature files by a list."""
    name, part = _input(config)
    features = FeatureOptions.of(part, name)
    return Opening(
        lambda: Utterances([features.open()]),
        features.files,
        [features.stream],
        probe=features.probe,
    )


def htk_labels(config: ConfigParameters) -> Opening[Deserializer]:
    """HTKMLFDeserializer: the states of frames by label files."""
    name, part = _input(config)
    labels = LabelOptions.of(part, name)
    return Opening(lambda: LabelSequences(labels.open()), labels.files, [labels.stream])


def htk_deserializers_reader(config: ConfigParameters) -> Opening[DataReader]:
    """HTKDeserializers: the section of HTKMLFReader, in the orders and layouts of this reader."""
    feature_parts = sections_with(config, "scpFile")
    if not feature_parts:
        raise complaint(config, "the reader section has no stream with an scpFile")
    frame_mode, truncated = config.bool("frameMode", True), config.bool("truncated", False)
    if frame_mode and truncated:
        raise config["truncated"].error("'truncated' needs frameMode = false")
    features = [FeatureOptions.of(part, name) for name, part in feature_parts]
    label_parts = sections_with(config, "mlfFile", "mlfFileList")
    labels = [LabelOptions.of(part, name) for name, part in label_parts]
    expanded = [number for number, part in enumerate(features) if part.expand]
    if 0 in expanded:
        raise complaint(config, f"the first stream, {feature_parts[0][0]}, cannot be expanded")
    join = _join(config, len(features) + len(labels), expanded, frame_mode)
    method = config.string("readMethod", "blockRandomize").lower()
    if config.match("action", "write") and method != "none":
        raise complaint(config, "'write' needs readMethod = 'none'")
    window = randomization(config)
    if method not in ("none", "blockrandomize"):
        raise config["readMethod"].error("readMethod is 'blockRandomize' or 'none'")
    if method != "none" and window == 0:
        raise config["randomize"].error("blockRandomize cannot go with randomize = 'none'")
    length = _length(config, truncated)
    config.only_if(truncated, "truncated is false", "nbruttsineachrecurrentiter")
    slots = list(config.array("nbruttsineachrecurrentiter", "1").ints()) if truncated else []
    ahead = config.bool("prefetch", True)

    def opened() -> DataReader:
        archive = lattices_of(config, not (frame_mode or truncated))
        names: set[str] = set()
        sources: list[Deserializer] = []
        for options in features:
            given = options.open()
            names.update(entry.name for entry in given.entries)
            sources.append(Utterances([given], lattices=None if sources else archive))
        source = join([*sources, *(LabelSequences(options.open()) for options in labels)])
        order = FileOrder(source) if method == "none" else BlockShuffle(source, window)
        packer: Packer = (FramePacker if frame_mode else SequencePacker)(order, source.streams)
        if truncated:
            packer = TruncatedPacker(order, source.streams, length, slots)
        if archive is not None:
            packer = LatticePacker(packer, archive, phones_of(config, archive.hmms, names))
        return PackedReader(packer, ahead=ahead, legacy=True)

    return opening_of(config, features, labels, opened)
