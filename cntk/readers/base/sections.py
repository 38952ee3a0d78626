"""Parameters that several readers take from their section of a config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError, SaveError
from ...base.text import located
from ...config.parameters import ConfigParameters
from .data import Deserializer
from .htk_files import read_script
from .order import WHOLE_SWEEP, BlockShuffle, Enumerator, FileOrder


def complaint(config: ConfigParameters, message: str) -> OpscopeError:
    """An error about a whole section."""
    return located(FormatError, f"{message} in {config.path}", config.text.locate())


def precision(config: ConfigParameters) -> np.dtype:
    """The type of values, by `precision`: float or double."""
    name = config.string("precision", "float").lower()
    types = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
    if name not in types:
        raise config["precision"].error(f"precision is 'float' or 'double', not {name!r}")
    return types[name]


def enumerator(
    config: ConfigParameters, window: int | None = WHOLE_SWEEP
) -> Callable[[Deserializer], Enumerator]:
    """What puts sequences in the order that `randomize` and `randomizationWindow` ask for.

    Args:
        config: the section of the reader.
        window: to shuffle within, in samples, where the section gives none; None: the whole data.
    """
    shuffles = not config.match("randomize", "none") and config.bool("randomize", True)
    config.only_if(shuffles, "nothing is randomized", "randomizationWindow")
    if shuffles and "randomizationWindow" in config:
        window = config.size("randomizationWindow")
        shuffles = window > 0
    return partial(BlockShuffle, window=window) if shuffles else FileOrder


def sections_with(config: ConfigParameters, *names: str) -> list[tuple[str, ConfigParameters]]:
    """The sections inside, sorted by name, that have one of these parameters themselves."""
    sections = []
    for name in config.names():
        if not config.is_section(name):
            continue
        if any(config.peek(name).holds(wanted) for wanted in names):
            sections.append((name, config.section(name)))
    return sections


_LABEL_KEYS = ("labelMappingFile", "labelDim", "labelType")


Named = list[tuple[str, ConfigParameters]]
"""Sections with their names."""


def file_sections(config: ConfigParameters) -> tuple[Named, Named]:
    """The sections of features and the sections of labels, each sorted by name.

    A section with a mapping, a dimension or a type of labels describes labels; any other section
    with a `dim` describes features. Source: CNTK's `Common/Config.cpp` (`GetFileConfigNames`).
    """
    features, labels = [], []
    for name, part in sections_with(config, *_LABEL_KEYS, "sectionType", "dim"):
        section_type = part.string("sectionType") if part.has("sectionType") else ""
        if any(part.has(key) for key in _LABEL_KEYS) or section_type == "labels":
            labels.append((name, part))
        elif part.has("dim"):
            features.append((name, part))
    return features, labels


def tagged_text_sections(config: ConfigParameters) -> tuple[Named, Named]:
    """The sections of features, and the two of labels: of input words and of output words.

    Raises:
        FormatError: there are not two.
    """
    features, labels = file_sections(config)
    if len(labels) != 2:
        raise complaint(config, f"two sections of labels are needed, not {len(labels)}")
    return features, labels


def named_files(config: ConfigParameters) -> dict[Path, str]:
    """The files that a section names, whole paths, each with the parameter that does.

    Files that are named in a list (scpFile) also count; other values do not.
    """
    files: dict[Path, str] = {}
    for name in config.names():
        if not config.has_value(name):
            continue
        value = config.value(name)
        text = str(value)
        if text[:1] in ("[", "{", "("):
            for part in value.array() if text[0] == "(" else [value]:
                if str(part).startswith(("[", "{")):
                    files |= named_files(ConfigParameters.of(part))
            continue
        if os.path.isfile(text):
            files[Path(text).resolve()] = value.path
            if name.lower() == "scpfile":
                for entry in read_script(text, config.string("prefixPathInSCP", "")):
                    files[_resolved(entry.path)] = f"{value.path} ({text})"
    return files


def _resolved(path: str) -> Path:
    """A path without links; one with a NUL character, which no file has, as it is."""
    return Path(path) if "\0" in path else Path(path).resolve()


def check_not_read(reader: ConfigParameters, written: Iterable[str]) -> None:
    """That no file is written which the reader reads.

    Args:
        reader: its section.
        written: the paths of files that will be written.

    Raises:
        SaveError: one is; the message names it and its parameter.
    """
    read = named_files(reader)
    for path in written:
        where = read.get(_resolved(path))
        if where is not None:
            raise SaveError(f"{path} would be overwritten while it is read: {where} names it")
