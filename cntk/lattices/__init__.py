"""Lattices of recognized words, which the sequence criterion compares with the reference.

Gives `Lattice`, `Lattices`, `Hmms` and their files to operators and readers. May import framework.
"""

from .archive import LatticeArchive
from .archive_writer import write_archive
from .hmms import Hmms
from .htk_text import read_htk_lattice
from .lattice import Lattice, Lattices

__all__ = [
    "Hmms",
    "Lattice",
    "LatticeArchive",
    "Lattices",
    "read_htk_lattice",
    "write_archive",
]
