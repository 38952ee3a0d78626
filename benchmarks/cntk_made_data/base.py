"""What samples hold, whatever their format; what networks say of streams."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from opscope.cntk.network.network import Network
from opscope.cntk.network.nodes.node import DEFAULT_AXIS
from opscope.cntk.readers.text.format import TextStream

CLASSES = 6
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
            if not role and node in network.groups["label"] and len(node.shape) > 1:
                role = "label"  # of regions, whose cross entropy is made of plain operations
            sparse = node.operation == "SparseInputValue"
            shape = tuple(node.shape)
            found[node.name.lower()] = Meaning(shape, role, axis, steps, sparse, node.name)
    return found


@dataclass
class MadeData:
    """What is made for the readers of a config.

    Args:
        meanings: of streams, see `streams_of`.
        folder: for images, which maps name.
        count: sequences, or samples where there are no sequences.
        classes_of_words: of lists of words with classes.

    Attributes:
        minibatch: samples of a minibatch, at most, that suit the data.
        costly: whether samples are so large that few are made.
    """

    meanings: dict[str, Meaning]
    folder: Path
    count: int = 24
    classes_of_words: int = 50
    minibatch: int = field(default=8, init=False)
    costly: bool = field(default=False, init=False)
    lists: set[Path] = field(default_factory=set, init=False)
    vocabularies: set[str] = field(default_factory=set, init=False)
    texts: dict[str, dict[str, TextStream]] = field(default_factory=dict, init=False)

    def meaning(self, stream: str) -> Meaning:
        return self.meanings.get(stream.lower(), Meaning())

    def length(self, meaning: Meaning, sequence: int) -> int:
        """Steps of a sequence; streams on one axis have as many."""
        if not meaning.steps:
            return 1
        return 4 + (sequence // CLASSES + zlib.crc32(meaning.axis.encode())) % 3

    def row(self, stream: str, dim: int, kind: int) -> np.ndarray:
        """A dense sample of a class."""
        meaning = self.meaning(stream)
        random = np.random.default_rng(zlib.crc32(f"{stream} {kind}".encode()))
        if meaning.role == "label":
            first = meaning.shape[0] if meaning.shape else dim
            row = np.zeros((dim // first, first))
            row[np.arange(len(row)), (kind + np.arange(len(row))) % min(CLASSES, first)] = 1
            return row.reshape(-1)
        if meaning.role == "boxes":  # left, top, width, height, in parts of the image
            corners = random.uniform(0, 0.5, (dim // 4, 2))
            return np.hstack([corners, random.uniform(0.2, 0.5, (dim // 4, 2))]).reshape(-1)
        if meaning.role == "gain":
            return np.full(dim, (CLASSES - 1 - kind) // 2, float)  # falls within a group
        if meaning.role == "group":
            return np.zeros(dim)
        if dim in _PIXELS:
            return np.rint(random.uniform(0, 255, dim))
        return random.normal(size=dim)


def make_folder_of(path: str | Path) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)


def write(path: str | Path, text: str) -> None:
    make_folder_of(path)
    Path(path).write_text(text)
