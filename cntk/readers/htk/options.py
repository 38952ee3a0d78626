"""The sections of streams in HTKMLFReader, HTKDeserializers and their deserializers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ..base.data import Stream
from ..base.htk_files import read_script
from ..base.sections import precision
from .data import Features, Labels
from .mlf import mlf_files, read_mlf, read_states, read_targets


def context(part: ConfigParameters) -> tuple[int, int]:
    """Neighbors on each side, by `contextWindow`: frames of a window, or left and right."""
    window = part.array("contextWindow", "1").ints()
    if len(window) == 2 and min(window) >= 0:
        return window[0], window[1]
    if len(window) != 1:
        raise part["contextWindow"].error("contextWindow is one number or two")
    if window[0] < 1 or window[0] % 2 == 0:
        raise part["contextWindow"].error(f"a window of {window[0]} frames has no middle")
    return window[0] // 2, window[0] // 2


def window_stream(part: ConfigParameters, name: str) -> tuple[Stream, int, int]:
    """The stream of a section of features, with the neighbors on each side.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    left, right = context(part)
    if part.has("type") and not part.match("type", "real"):
        raise part["type"].error("features are of the type 'real'")
    dim = part.size("dim")
    if not 0 < dim * (1 + left + right) < 1 << 31:
        raise part["dim"].error(f"a sample cannot have {dim} values")
    return Stream(name, dim * (1 + left + right), dtype=precision(part)), left, right


@dataclass(frozen=True)
class FeatureOptions:
    """A section with an scpFile: a stream of frames.

    Attributes:
        stream: its `dim` counts all frames of a window.
        path, prefix: the list of files, and what is put before their paths.
        left, right, expand: see `Features`.
        files: the value that names the list.
    """

    stream: Stream
    path: str
    prefix: str
    left: int
    right: int
    expand: bool
    files: list[ConfigValue]

    @classmethod
    def of(cls, part: ConfigParameters, name: str) -> FeatureOptions:
        """The settings of a section.

        Raises:
            FormatError: a parameter is missing or wrong.
        """
        stream, left, right = window_stream(part, name)
        expand = part.bool("expandToUtterance", False)
        if expand and (left or right):
            raise part["contextWindow"].error("expandToUtterance leaves no room for neighbors")
        path = part.string("scpFile")
        prefix = part.string("prefixPathInSCP", "")
        return cls(stream, path, prefix, left, right, expand, part.files("scpFile"))

    def probe(self) -> None:
        """Look at the first file of the list.

        Raises:
            FormatError: the list or the file is not as it should be, or has frames of another size.
        """
        if self.path:
            features = self.open(1)
            features.context(features.file(features.entries[0]))

    def open(self, most: int | None = None) -> Features:
        """Read the list; `most`: how many entries of it are wanted, None: all.

        Raises:
            FormatError: it cannot be read, or is empty.
        """
        entries = read_script(self.path, self.prefix, most)
        if not entries:
            raise FormatError(f"{self.path}: the list is empty")
        return Features(self.stream, entries, self.left, self.right, self.expand, self.path)


@dataclass(frozen=True)
class LabelOptions:
    """A section with an mlfFile or an mlfFileList: a stream of labels.

    Attributes:
        stream: of one-hot vectors, or of targets.
        part: the section.
        mapping: the file of the states' names; "" where labels are numbers.
        targets: the file of their targets; "" for one-hot vectors.
        files: the values that name files.
    """

    stream: Stream
    part: ConfigParameters
    mapping: str
    targets: str
    files: list[ConfigValue]

    @classmethod
    def of(cls, part: ConfigParameters, name: str) -> Self:
        """The settings of a section.

        Raises:
            FormatError: a parameter is missing or wrong.
        """
        if not part.has("labelDim") and not part.has("dim"):
            raise part.missing("labelDim")
        dim = part.size("labelDim" if part.has("labelDim") else "dim")
        if not 0 < dim < 1 << 31:
            raise part["labelDim"].error(f"there cannot be {dim} labels")
        for key in ("labelType", "type"):
            if part.has(key) and not part.match(key, "category"):
                raise part[key].error("labels are of the type 'category'")
        mapping = part.string("labelMappingFile", "")
        targets = part.string("labelToTargetMappingFile", "")
        part.only_if(bool(targets), "there is no labelToTargetMappingFile", "targetDim")
        if targets and not mapping:
            raise part["labelToTargetMappingFile"].error("it also needs a labelMappingFile")
        if targets:
            dim = part.size("targetDim")
        files = part.files(
            "mlfFile" if part.has("mlfFile") else "mlfFileList",
            "labelMappingFile",
            "labelToTargetMappingFile",
        )
        return cls(Stream(name, dim, not targets, precision(part)), part, mapping, targets, files)

    def open(self, wanted: Collection[str] | None = None) -> Labels:
        """Read the labels of all or some utterances.

        Raises:
            FormatError: a file is wrong.
        """
        names = read_states(self.mapping) if self.mapping else None
        numbers = None if names is None else {state: at for at, state in enumerate(names)}
        states = self._states(numbers, wanted)
        if not self.targets or names is None:
            return Labels(self.stream, states)
        targets = read_targets(self.targets, names).astype(self.stream.dtype)
        if targets.shape[1] != self.stream.dim:
            raise self._wrong_targets(targets.shape[1])
        return Labels(self.stream, states, targets)

    def _states(
        self, numbers: Mapping[str, int] | None, wanted: Collection[str] | None
    ) -> dict[str, np.ndarray]:
        """The state of each frame, int32, by utterance.

        Args:
            numbers: of the states; None: the files have numbers.
            wanted: utterances that are needed; None: all.
        """
        states: dict[str, np.ndarray] = {}
        for path in mlf_files(self.part):
            labels = read_mlf(path, numbers, wanted)
            twice = next((utterance for utterance in labels if utterance in states), None)
            if twice is not None:
                raise FormatError(f"{path}: the utterance {twice!r} is also in another label file")
            states |= labels
        return states

    def _wrong_targets(self, width: int) -> OpscopeError:
        message = f"{self.targets} has targets of {width} numbers"
        return self.part["targetDim"].error(message)
