"""Made data for the readers of CNTK configs: a few samples, in the format that each section wants.

What a sample holds follows from its class and the name of its stream, with some noise, so that
inputs tell labels and a training has something to learn. Networks say what a stream means:
whether its axis has several steps, and which node reads it (`streams_of`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from opscope.cntk.config import ConfigParameters
from opscope.cntk.lattices import Hmms, Lattice
from opscope.cntk.lattices.archive_writer import write_archive
from opscope.cntk.network.network import Network
from opscope.cntk.network.nodes.node import DEFAULT_AXIS
from opscope.cntk.readers.base.data import ChunkInfo, Deserializer, Samples, Stream
from opscope.cntk.readers.base.htk_files import write_htk
from opscope.cntk.readers.base.sections import (
    file_sections,
    sections_with,
    tagged_text_sections,
)
from opscope.cntk.readers.binary.format import write_binary
from opscope.cntk.readers.catalog import reader_opening
from opscope.cntk.readers.htk.mlf import FRAME, HEADER
from opscope.cntk.readers.htk.options import FeatureOptions, LabelOptions, window_stream
from opscope.cntk.readers.text.format import TextStream
from opscope.cntk.readers.text.reader import text_streams
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.files.transition_model import HmmState, TransitionModel
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight
from opscope.kaldi.tables.tables import TableWriter

CLASSES = 6
_STEPS = 6  # frames or words of a class in a row: sequences have several classes
_FRAMES = 32  # of a minibatch
_RECORDS = 64  # of LibSVMBinaryReader: more than a network compares each with
_WRONG = 0.15  # of the frames of an utterance
_LARGE, _FEW = 100, 8  # the side of an image that is large, and how many of those are made
_SPOKEN, _LINE = 400, 20  # words of a text, and of a line of it
_PICTURES = 4  # classes of images: some maps are read with several numbers of labels
_PIXELS = (784, 3072)  # dimensions of the images of MNIST and CIFAR-10, whose values are bytes
_ONE_HOT = {"CrossEntropyWithSoftmax", "ClassificationError", "CrossEntropy", "SequenceWithSoftmax"}


@dataclass(frozen=True)
class Meaning:
    """What networks say of a stream.

    Attributes:
        shape: of a sample.
        role: "label" (one-hot), "boxes", "gain", "group", or "" for anything.
        axis: the name of its dynamic axis.
        steps: whether sequences on that axis have several steps.
        sparse: whether samples are sparse.
        name: of the stream.
    """

    shape: tuple[int, ...] = ()
    role: str = ""
    axis: str = DEFAULT_AXIS
    steps: bool = False
    sparse: bool = False
    name: str = ""


# The role of an input by the operation that reads it, and the slot.
_ROLES = {
    ("ROIPooling", 1): "boxes",
    ("LambdaRank", 0): "gain",
    ("LambdaRank", 2): "group",
    **{(operation, slot): "label" for operation in _ONE_HOT for slot in (0, 1)},
}


def streams_of(networks: Iterable[Network]) -> dict[str, Meaning]:
    """What the inputs of networks are, by their names in lower case."""
    found: dict[str, Meaning] = {}
    for network in networks:
        stepping = set()
        for node in network.nodes.values():
            if node.axis is not None and (node.delay or node.kind.whole):
                stepping |= {one.axis for one in node.inputs if one.axis is not None}
        for node in network.nodes.values():
            if not node.is_input:
                continue
            readers = [
                _ROLES[reader.operation, slot]
                for reader in network.nodes.values()
                for slot, given in enumerate(reader.inputs)
                if given is node and (reader.operation, slot) in _ROLES
            ]
            axis = node.axis.name if node.axis is not None else DEFAULT_AXIS
            steps = node.axis in stepping
            role = readers[0] if readers else ""
            sparse = node.operation == "SparseInputValue"
            shape = tuple(node.shape)
            found[node.name.lower()] = Meaning(shape, role, axis, steps, sparse, node.name)
    return found


@dataclass
class MadeData:
    """Makes the files that readers name.

    Args:
        meanings: of streams, see `streams_of`.
        folder: for images, which maps name.
        count: sequences, or samples where there are no sequences.
        classes_of_words: of lists of words with classes.

    Attributes:
        minibatch: samples of a minibatch, at most, that suit the data.
    """

    meanings: dict[str, Meaning]
    folder: Path
    count: int = 24
    classes_of_words: int = 50
    minibatch: int = field(default=8, init=False)
    _lists: set[Path] = field(default_factory=set, init=False)
    _vocabularies: set[str] = field(default_factory=set, init=False)
    _texts: dict[str, dict[str, TextStream]] = field(default_factory=dict, init=False)

    def make(self, section: ConfigParameters) -> None:
        """The files of the reader of a section.

        Raises:
            FormatError: the section is wrong, or there is no data for such a reader.
        """
        if section.has("readers"):
            for name in section.array("readers").strings():
                self.make(section.section(name))
            return
        if section.has("deserializers") and not section.has("readerType"):
            for value in section.array("deserializers"):
                part = ConfigParameters.of(value)
                self._make(part.string("type"), part)
            return
        self._make(section.string("readerType", "CNTKTextFormatReader"), section)

    def _make(self, kind: str, section: ConfigParameters) -> None:
        maker = _MAKERS.get(kind.lower())
        if maker is None:
            reader_opening(section)  # whether there is such a reader
            raise FormatError(f"no data are made for {kind}")
        maker(self, section)

    def lists(self, section: ConfigParameters) -> None:
        """The lists of files that HTKMLFWriter writes, where none of a reader has their place."""
        for _, part in sections_with(section, "scpFile"):
            path = Path(part.string("scpFile"))
            if path not in self._lists:
                names = (f"{path}.{utterance}.out" for utterance in self._utterances())
                _write(path, "".join(f"{name}\n" for name in names))

    # -- samples

    def _meaning(self, stream: str) -> Meaning:
        return self.meanings.get(stream.lower(), Meaning())

    def _length(self, meaning: Meaning, sequence: int) -> int:
        """Steps of a sequence; streams on one axis have as many."""
        if not meaning.steps:
            return 1
        return 4 + (sequence // CLASSES + zlib.crc32(meaning.axis.encode())) % 3

    def _classes(self, dim: int) -> int:
        return min(CLASSES, dim)

    def row(self, stream: str, dim: int, kind: int) -> np.ndarray:
        """A dense sample of a class."""
        meaning = self._meaning(stream)
        random = np.random.default_rng(zlib.crc32(f"{stream} {kind}".encode()))
        if meaning.role == "label":
            first = meaning.shape[0] if meaning.shape else dim
            row = np.zeros((dim // first, first))
            row[np.arange(len(row)), (kind + np.arange(len(row))) % self._classes(first)] = 1
            return row.reshape(-1)
        if meaning.role == "boxes":  # left, top, width, height, in parts of the image
            corners = random.uniform(0, 0.5, (dim // 4, 2))
            return np.hstack([corners, random.uniform(0.2, 0.5, (dim // 4, 2))]).reshape(-1)
        if meaning.role == "gain":
            return np.full(dim, kind % 3, float)
        if meaning.role == "group":
            return np.zeros(dim)
        if dim in _PIXELS:
            return np.rint(random.uniform(0, 255, dim))
        return random.normal(size=dim)

    def _index(self, dim: int, kind: int) -> int:
        """Where a one-hot sample of a class has its one."""
        return kind % dim

    # -- CNTKTextFormatReader

    def text(self, section: ConfigParameters) -> None:
        """A file of CNTKTextFormatReader."""
        path = section.string("file")
        known = self._texts.setdefault(path, {})  # other sections may read it, too
        known.update((one.alias, one) for one in text_streams(section))
        streams = list(known.values())
        lines = []
        for sequence in range(self.count):
            meanings = [self._meaning(one.stream.name) for one in streams]
            lengths = [self._length(meaning, sequence) for meaning in meanings]
            for step in range(max(lengths)):
                words = [str(sequence)]
                for one, length in zip(streams, lengths, strict=True):
                    if step < length:
                        sample = self._text_sample(one.stream, sequence, step)
                        words.append(f"|{one.alias} {sample}")
                lines.append(" ".join(words) + "\n")
        _write(path, "".join(lines))

    def _text_sample(self, stream: Stream, sequence: int, step: int) -> str:
        kind = (sequence + step) % CLASSES
        role = self._meaning(stream.name).role
        if stream.sparse:
            return f"{self._index(stream.dim, kind)}:1"
        row = self.row(stream.name, stream.dim, kind)
        if role == "group":
            row[:] = sequence // CLASSES
        elif not role:
            random = np.random.default_rng((sequence, step))
            row = row + random.normal(scale=0.1, size=len(row))
        return " ".join(f"{value:.4g}" for value in row)

    # -- HTK

    def htk(self, section: ConfigParameters) -> None:
        """Lists, feature files, label files and lattices of HTKMLFReader and HTKDeserializers."""
        for name, part in sections_with(section, "scpFile"):
            self.htk_features(name, part)
        labels = sections_with(section, "mlfFile", "mlfFileList")
        for name, part in labels:
            self.htk_labels(name, part)
        lattices = sections_with(section, "denLatTocFile")
        if lattices:
            self._lattices(section, labels[0][1], lattices[0][1])

    def _states(self, utterance: int) -> np.ndarray:
        """The class of each frame of an utterance."""
        changes = 3 + utterance % 3
        return np.repeat((utterance + np.arange(changes)) % CLASSES, _STEPS)

    def _utterances(self) -> list[str]:
        return [f"made{number:03}" for number in range(max(self.count // 2, 8))]

    def _frames(self, stream: str, dim: int, utterance: int) -> np.ndarray:
        """The frames of an utterance, float32, [frames, dim]."""
        random = np.random.default_rng(utterance)
        kinds = self._states(utterance)
        # Some frames sound like another state: there is something left to learn after an epoch.
        kinds = np.where(random.random(len(kinds)) < _WRONG, random.integers(CLASSES), kinds)
        rows = np.stack([self.row(stream, dim, kind) for kind in kinds.tolist()])
        return (rows + random.normal(scale=0.3, size=rows.shape)).astype(np.float32)

    def htk_features(self, name: str, part: ConfigParameters) -> None:
        """The list of a stream of features, and its files."""
        self.minibatch = _FRAMES
        options = FeatureOptions.of(part, name)
        dim = options.stream.dim // (1 + options.left + options.right)
        path = Path(options.path)
        folder = Path(options.prefix) if options.prefix else path.parent
        lines = []
        for number, utterance in enumerate(self._utterances()):
            rows = self._frames(name, dim, number)[: 1 if options.expand else None]
            file = folder / f"{path.name}.{utterance}.htk"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_htk(file, rows)
            named = file.name if options.prefix else file.resolve()
            lines.append(f"{utterance}.htk={named}[0,{len(rows) - 1}]\n")
        self._lists.add(path)
        _write(path, "".join(lines))

    def htk_labels(self, name: str, part: ConfigParameters) -> None:
        """A label file, with its lists of states and targets."""
        options = LabelOptions.of(part, name)
        dim = part.size("labelDim" if part.has("labelDim") else "dim")
        states = [f"s{number}" for number in range(dim)]
        if options.mapping:
            _write(options.mapping, "".join(f"{state}\n" for state in states))
        if options.targets:
            targets = np.eye(dim, options.stream.dim, dtype=int)
            rows = ("".join(map(str, row)) for row in targets.tolist())
            _write(
                options.targets,
                "".join(f"{state} {row}\n" for state, row in zip(states, rows, strict=True)),
            )
        lines = [f"{HEADER}\n"]
        for number, utterance in enumerate(self._utterances()):
            lines.append(f'"{utterance}.lab"\n')
            kinds = self._states(number)
            for begin in range(0, len(kinds), _STEPS):
                kind = int(kinds[begin]) % dim
                times = f"{begin * FRAME:.0f} {(begin + _STEPS) * FRAME:.0f}"
                word = f"s{kind} 0 p{kind}" if options.mapping else f"x {kind}"
                lines.append(f"{times} {word}\n")
            lines.append(".\n")
        path = part.string("mlfFile") if part.has("mlfFile") else ""
        if not path:
            listed = part.string("mlfFileList")
            path = f"{listed}.mlf"
            _write(listed, f"{path}\n")
        _write(path, "".join(lines))

    def _lattices(
        self, section: ConfigParameters, labels: ConfigParameters, part: ConfigParameters
    ) -> None:
        """Phones of one state each, and lattices of the words that were said and of others."""
        [(_, phones), *_] = sections_with(section, "phoneFile")
        dim = labels.size("labelDim")
        names = [f"s{number}" for number in range(dim)]
        lines = [f"p{number} T s{number}\n" for number in range(dim)]
        _write(phones.string("phoneFile"), "".join(lines))
        _write(phones.string("transPFile"), "T 1 1 0 1 1\n")
        hmms = Hmms.read(phones.string("phoneFile"), phones.string("transPFile"), names)
        given = []
        for number, utterance in enumerate(self._utterances()):
            said = self._states(number)[::_STEPS]
            times = np.arange(len(said) + 1) * _STEPS
            edges, units = [], []
            for at, kind in enumerate(said.tolist()):
                for other in (kind, (kind + 1) % CLASSES, (kind + 2) % CLASSES):
                    edges.append((at, at + 1))
                    units.append((hmms.numbers[f"p{other}"], _STEPS))
            first = np.arange(len(edges) + 1)
            scores = np.zeros(len(edges))
            given.append((utterance, Lattice(times, edges, scores, np.array(units), first)))
        toc = Path(part.string("denLatTocFile").replace("*", "made"))
        write_archive(toc.with_suffix(""), hmms, given)

    # -- Kaldi's tables

    def kaldi(self, section: ConfigParameters) -> None:
        """Tables, files of rspecifiers and lengths of Kaldi2Reader."""
        utterances = self._utterances()
        self.minibatch = _FRAMES
        for name, part in sections_with(section, "rx"):
            if not part.has("scpFile"):
                continue
            stream, *_ = window_stream(part, name)
            lengths = [len(self._states(number)) for number in range(len(utterances))]
            pairs = zip(utterances, lengths, strict=True)
            self._lists.add(Path(part.string("scpFile")))
            _write(part.string("scpFile"), "".join(f"{key} {length}\n" for key, length in pairs))
            with _table(part.string("rx"), "matrix") as table:
                for number, utterance in enumerate(utterances):
                    table.write(utterance, self._frames(name, stream.dim, number))
        for _, part in sections_with(section, "mlfFile"):
            dim = part.size("labelDim")
            if part.string("labelMappingFile", ""):
                _write(part.string("labelMappingFile"), "".join(f"{n}\n" for n in range(dim)))
            with _table(part.string("mlfFile"), "posterior") as table:
                for number, utterance in enumerate(utterances):
                    states = [[(int(kind) % dim, 1.0)] for kind in self._states(number)]
                    table.write(utterance, Posterior.from_frames(states))
            if section.has("seqTrainCriterion"):
                self._sequence_training(section, dim)

    def _sequence_training(self, section: ConfigParameters, pdfs: int) -> None:
        """A model whose phones have a state each, lattices in which other phones compete with the
        spoken ones, and alignments."""
        lattices = section.section("denlats")
        _mkdir(lattices.string("kaldiModel"))
        writer = Writer()
        _phones_of_one_state(pdfs).write_to(writer)
        writer.save(lattices.string("kaldiModel"))
        path = section.section("alignments").string("rx")
        with (
            _table(path, "int_vector") as alignments,
            _table(lattices.string("rx"), "compact_lattice") as table,
        ):
            for number, utterance in enumerate(self._utterances()):
                said = self._states(number)[::_STEPS].tolist()
                ids = [one for kind in said for one in _transition_ids(kind)]
                alignments.write(utterance, np.array(ids, np.int32))
                table.write(utterance, _competing(said))

    # -- images

    def images(self, section: ConfigParameters) -> None:
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
            self.count = min(self.count, _FEW)
            self.minibatch = 1 << 20  # rates of ImageNet's minibatches are too large for fewer
        classes = min(_PICTURES, labels[0][1].size("labelDim"))
        path = Path(section.string("file"))
        lines = []
        for number in range(self.count):
            kind = number % classes
            image = _picture(kind, number, side)
            file = self.folder / f"{path.name}.{number}.{'jpg' if number % 2 else 'png'}"
            image.save(file)
            lines.append(f"{file}\t{kind}\n")
        _write(path, "".join(lines))
        for part in parts:
            if part.string("meanFile", ""):
                self._mean(part, parts)
            if part.string("intensityFile", ""):
                basis = _opencv(EigVal=np.ones((1, 3)), EigVec=np.eye(3))
                _write(part.string("intensityFile"), basis)

    def _mean(self, part: ConfigParameters, parts: Sequence[ConfigParameters]) -> None:
        sized = next((one for one in parts if one.has("width")), part)
        width, height, channels = (sized.size(key) for key in ("width", "height", "channels"))
        mean = np.full((1, width * height * channels), 120.0)
        _write(
            part.string("meanFile"),
            _opencv(Channel=channels, Row=height, Col=width, MeanImg=mean),
        )

    # -- sentences

    def language(self, section: ConfigParameters) -> None:
        """Text and lists of words of LMSequenceReader."""
        _, labels = tagged_text_sections(section)
        dim = max(part.size("labelDim", 0) for _, part in labels)
        words = ["</s>", "<unk>", *(f"w{number}" for number in range(dim - 2))]
        end = labels[0][1].string("endSequence", "</s>") or "</s>"
        self.minibatch = 1 << 20  # as the config has it: it is cut by sentences
        path = section.string("file")
        if path not in self._vocabularies:
            self.sentences(path, _SPOKEN, end)
        files = {part.string("labelMappingFile", "") for _, part in labels} - {""}
        for file in files:
            _write(file, "".join(f"{word}\n" for word in words))
        listed = section.string("wordclass", "")
        if listed:
            each = -(-dim // self.classes_of_words)
            rows = (f"{n}\t{dim - n}\t{word}\t{n // each}\n" for n, word in enumerate(words))
            _write(listed, "".join(rows))

    def sentences(self, path: str, words: int, end: str = "</s>") -> None:
        """A text with all words, those of the first ones often."""
        names = ["</s>", "<unk>", *(f"w{number}" for number in range(words - 2))]
        random = np.random.default_rng(1)
        lines = []
        self._vocabularies.add(path)
        for begin in range(2, words, _LINE):
            frequent = random.integers(2, 2 + CLASSES, 2).tolist()
            chosen = [*frequent, *range(begin, min(begin + _LINE, words)), *frequent]
            lines.append(" ".join([end, *(names[n] for n in chosen), end]) + "\n")
        _write(path, "".join(lines))

    def understanding(self, section: ConfigParameters) -> None:
        """Tagged text and lists of words of LUSequenceReader."""
        features, labels = tagged_text_sections(section)
        parts = dict(labels)
        (in_name, _), (out_name, _) = labels
        if section.has("inputLabel"):
            in_name, out_name = section.string("inputLabel"), section.string("outputLabel")
        context = len(list(section.array("wordContext", "0").ints()))
        stream = features[0][0] if features else in_name
        size = int(np.prod(self._meaning(stream).shape)) // context
        tags = int(np.prod(self._meaning(out_name).shape))
        unknown = section.string("unk", "<unk>")
        words = _words([unknown, *_ends(parts[in_name])], "w", size)
        marks = _words(_ends(parts[out_name]), "t", tags)
        classes = parts[out_name].match("mode", "class")
        listed = [f"{mark} {n // 10}\n" if classes else f"{mark}\n" for n, mark in enumerate(marks)]
        _write(parts[in_name].string("token"), "".join(f"{word}\n" for word in words))
        _write(parts[out_name].string("token"), "".join(listed))
        if section.string("wordmap", ""):
            _write(section.string("wordmap"), "".join(f"{word} {word}\n" for word in words))
        lines = []
        for number in range(self.count):
            for step in range(4 + number % 3):
                kind = (number + step) % CLASSES
                lines.append(f"w{kind} t{kind}\n")
            lines.append("\n")
        _write(section.string("file"), "".join(lines))

    # -- tables

    def table(self, section: ConfigParameters) -> None:
        """A table of UCIFastReader, with its list of labels."""
        features, labels = file_sections(section)
        name, part = features[0]
        columns = part.size("start", 0) + part.size("dim")
        place = columns
        if labels:
            place = labels[0][1].size("start", 0)
        width = max(columns, place + 1)
        rows = []
        for number in range(self.count):
            kind = number % CLASSES
            row = [f"{value:.4g}" for value in self.row(name, width, kind)]
            if labels:
                kind %= labels[0][1].size("labelDim", 1)
                row[place] = str(kind)
            rows.append(" ".join(row) + "\n")
        _write(part.string("file"), "".join(rows))
        if labels and labels[0][1].string("labelMappingFile", ""):
            count = labels[0][1].size("labelDim")
            _write(labels[0][1].string("labelMappingFile"), "".join(f"{n}\n" for n in range(count)))

    def libsvm(self, section: ConfigParameters) -> None:
        """A batch of LibSVMBinaryReader: the sparse inputs of the networks, one-hot samples."""
        self.minibatch = self.count = _RECORDS  # those of a batch are read together
        sparse = [one for one in self.meanings.values() if one.sparse]
        head = struct.pack("<qqii", self.count, 1, len(sparse), 0)
        batch = struct.pack("<i", self.count)
        kinds = np.arange(self.count, dtype="<i4") % CLASSES
        for one in sparse:
            head += struct.pack("<i", len(one.name)) + one.name.encode()
            head += struct.pack("<i", int(np.prod(one.shape)))
            begin = np.arange(self.count + 1, dtype="<i4")
            batch += struct.pack("<i", self.count) + np.ones(self.count, "<f4").tobytes()
            batch += kinds.tobytes() + begin.tobytes()
        path = section.string("file")
        _mkdir(path)
        Path(path).write_bytes(head + struct.pack("<q", 0) + batch)

    def binary(self, section: ConfigParameters) -> None:
        """A file of CNTKBinaryReader: features and one-hot labels of 10 numbers."""
        inputs = section.section("input")
        streams = []
        for name in inputs.names():
            part = inputs.section(name)
            alias = part.string("alias", name)
            streams.append(Stream(alias, 10, "label" in name.lower(), np.dtype(np.float32)))
        path = section.string("file")
        _mkdir(path)
        write_binary(path, _Made(self, streams))


class _Made(Deserializer):
    """Single samples in memory."""

    def __init__(self, maker: MadeData, streams: list[Stream]) -> None:
        self.streams = streams
        self.chunks = [ChunkInfo(np.ones(maker.count, np.int64))]
        self._maker = maker

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        kinds = np.arange(self._maker.count) % CLASSES
        begin = np.arange(len(kinds) + 1)
        chunk = []
        for stream in self.streams:
            if stream.sparse:
                ones = np.ones(len(kinds), stream.dtype)
                chunk.append(Samples(begin, ones, kinds.astype(np.int64), begin))
            else:
                rows = [self._maker.row(stream.name, stream.dim, kind) for kind in kinds.tolist()]
                chunk.append(Samples(begin, np.array(rows, stream.dtype)))
        return chunk


def _ends(part: ConfigParameters) -> list[str]:
    """The words that begin and end the sentences of a section, where it names some."""
    return [part.string(f"{end}Sequence", "") for end in ("begin", "end")]


def _words(special: list[str], prefix: str, count: int) -> list[str]:
    """A list of words, special ones first."""
    first = list(dict.fromkeys(filter(None, special)))
    return [*first, *(f"{prefix}{number}" for number in range(count - len(first)))]


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


def _mkdir(path: str | Path) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)


def _table(path: str, kind: str) -> TableWriter:
    """A table of Kaldi beside the file that holds its rspecifier, which is written."""
    _write(path, f"ark:{path}.ark\n")
    return TableWriter(f"ark:{path}.ark", kind)


def _phones_of_one_state(count: int) -> TransitionModel:
    """A transition model: phone p, from 1 on, has the pdf p - 1."""
    states = [HmmState(0, 0, [(0, 0.5), (1, 0.5)]), HmmState()]
    phones = list(range(1, count + 1))
    tuples = np.array([(phone, 0, phone - 1) for phone in phones], np.int32)
    log_probs = np.log(np.full(1 + 2 * count, 0.5, np.float32))
    return TransitionModel(phones, [-1] + [0] * count, [states], "<Triples>", tuples, log_probs)


def _transition_ids(kind: int) -> tuple[int, ...]:
    """Of the frames of a class: loops, and the transition that leaves the phone."""
    return (2 * kind + 1,) * (_STEPS - 1) + (2 * kind + 2,)


def _competing(said: Sequence[int]) -> CompactLattice:
    """A lattice where each spoken class has two that it is to be told from."""
    lattice = CompactLattice(0)
    for at, kind in enumerate(said):
        lattice.add_state()
        for other in (kind, (kind + 1) % CLASSES, (kind + 2) % CLASSES):
            weight = Weight(1.0, 50.0, _transition_ids(other))
            lattice.arcs[-1].append(Arc(other + 1, weight, at + 1))
    lattice.final[lattice.add_state()] = Weight()
    return lattice


def _write(path: str | Path, text: str) -> None:
    _mkdir(path)
    Path(path).write_text(text)


def _deserialized(make):
    """For a deserializer, whose only stream is in its `input`."""

    def maker(made: MadeData, section: ConfigParameters) -> None:
        inputs = section.section("input")
        (name,) = inputs.names()
        make(made, name, inputs.section(name))

    return maker


_MAKERS = {
    "cntktextformatreader": MadeData.text,
    "cntktextformatdeserializer": MadeData.text,
    "htkmlfreader": MadeData.htk,
    "htkdeserializers": MadeData.htk,
    "htkfeaturedeserializer": _deserialized(MadeData.htk_features),
    "htkmlfdeserializer": _deserialized(MadeData.htk_labels),
    "kaldi2reader": MadeData.kaldi,
    "libsvmbinaryreader": MadeData.libsvm,
    "imagereader": MadeData.images,
    "imagedeserializer": MadeData.images,
    "lmsequencereader": MadeData.language,
    "lusequencereader": MadeData.understanding,
    "ucifastreader": MadeData.table,
    "cntkbinaryreader": MadeData.binary,
}
