"""Lattices beside the utterances of HTKMLFReader and HTKDeserializers.

    hmms = [ phoneFile = "model.tying" ; transPFile = "model.transprob" ]
    lattices = [ denLatTocFile = "train*.lats.toc" ; prefixPathInToc = "lattices" ]

The first stream of labels gives the states of the phones (labelMappingFile). Source: CNTK's
`HTKMLFReader/HTKMLFReader.cpp`, `Common/Include/latticesource.h`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from glob import has_magic

import numpy as np

from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ...lattices import Hmms, Lattice, LatticeArchive, Lattices
from ...lattices.archive import find_tables
from ..base.data import Samples
from ..base.pack import Minibatch, Packer, SequencePacker
from ..base.sections import complaint, sections_with
from .mlf import mlf_files, read_phones, read_states

_log = logging.getLogger(__name__)

_SHOWN = 5  # warnings that are shown


def lattices_of(config: ConfigParameters, whole: bool = True) -> LatticeArchive | None:
    """The lattices that a reader section names; None if there are none.

    Args:
        whole: whether the reader gives whole utterances. Where it does not, lattices are passed
            over with a warning.

    Raises:
        FormatError: phones or states are missing, or a file is malformed.
    """
    parts = sections_with(config, "denLatTocFile")
    if not parts:
        return None
    if not whole:
        _log.warning(
            "%s: lattices come with whole utterances only (frameMode = false, truncated = false,"
            " blockRandomize), and not here",
            parts[0][0],
        )
        return None
    tables = [path for _, part in parts for path in find_tables(part.string("denLatTocFile"))]
    return LatticeArchive(tables, _hmms(config), parts[-1][1].string("prefixPathInToc", ""))


def lattice_files(config: ConfigParameters) -> list[ConfigValue]:
    """The values that name files of phones and of lattices; the latter may be patterns."""
    parts = [*sections_with(config, "phoneFile"), *sections_with(config, "denLatTocFile")]
    for _, part in parts:
        part.find("prefixPathInToc")
    tables = [value for _, part in parts for value in part.files("denLatTocFile")]
    named = [value for _, part in parts for value in part.files("phoneFile", "transPFile")]
    return named + [value for value in tables if not has_magic(str(value))]


def _hmms(config: ConfigParameters) -> Hmms:
    parts = sections_with(config, "phoneFile")
    if not parts:
        raise complaint(config, "lattices need a section with phoneFile and transPFile")
    section = parts[0][1]
    labels = _labels(config)
    if labels is None:
        raise complaint(config, "the phones of lattices need labels with a labelMappingFile")
    states = read_states(labels.string("labelMappingFile"))
    return Hmms.read(section.string("phoneFile"), section.string("transPFile"), states)


def _labels(config: ConfigParameters) -> ConfigParameters | None:
    """The first stream of labels, if it has states by name."""
    parts = sections_with(config, "mlfFile", "mlfFileList")
    if not parts or not parts[0][1].string("labelMappingFile", ""):
        return None
    return parts[0][1]


def phones_of(
    config: ConfigParameters, hmms: Hmms, wanted: Collection[str]
) -> dict[str, np.ndarray]:
    """The spoken phones of each utterance, where the first label files have phones of `hmms`."""
    section = _labels(config)
    phones: dict[str, np.ndarray] = {}
    for path in mlf_files(section) if section is not None else ():
        phones |= read_phones(path, hmms.numbers, wanted)
    return phones


class LatticePacker(Packer):
    """Minibatches of whole utterances, with their lattices.

    A lattice that has not as many frames as its utterance is named, counted and left out.

    Args:
        packer: gives the minibatches; each sequence is one utterance.
        archive: the lattices.
        phones: spoken ones, see `phones_of`.

    Attributes:
        unfit: names of the utterances whose lattices were left out.
    """

    def __init__(
        self, packer: SequencePacker, archive: LatticeArchive, phones: Mapping[str, np.ndarray]
    ) -> None:
        self.streams = packer.streams
        self._packer = packer
        self._archive = archive
        self._phones = phones
        self.unfit: set[str] = set()

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """See `Packer.parallel`."""
        return self._packer.parallel

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`."""
        self._packer.start_epoch(epoch, size, epoch_size)

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        batch = self._packer.read()
        if not batch:
            return batch
        lengths = batch.layouts[self.streams[0].name]
        frames = (lengths.end - lengths.begin).tolist()
        names = self._packer.names(batch)
        lattices = [self._lattice(name, count) for name, count in zip(names, frames, strict=True)]
        batch.lattices = Lattices(self._archive.hmms, lattices)
        return batch

    def _lattice(self, name: str, frames: int) -> Lattice | None:
        if name not in self._archive:
            return self._left_out(name, "it has none")
        lattice = self._archive.read(name)
        if lattice.frames != frames:
            return self._left_out(name, f"it has {lattice.frames} frames, the utterance {frames}")
        said = self._phones.get(name)
        if said is None or said[:, 1].sum() != frames:
            return lattice
        return replace(lattice, reference=said)

    def _left_out(self, name: str, why: str) -> None:
        if name not in self.unfit and len(self.unfit) < _SHOWN:
            _log.warning("the lattice of utterance %s is left out: %s", name, why)
        self.unfit.add(name)

    def close(self) -> None:
        """See `Packer.close`."""
        if self.unfit:
            _log.warning("%d utterances had no lattice that fits", len(self.unfit))
        self._archive.close()
        self._packer.close()

    def records(self, stream: int, first: int, count: int) -> Samples:
        """See `Packer.records`."""
        return self._packer.records(stream, first, count)
