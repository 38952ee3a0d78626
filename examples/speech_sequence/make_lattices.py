"""Lattices of spoken digits: in every utterance each of the ten words may have been said.

    python make_lattices.py DATA FOLDER

DATA holds train.scp and test.scp (lists of HTK files) and states.list; FOLDER gets, for both lists,
an archive of lattices, and the files of phones and transitions: a phone is a word of one state.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from opscope.cntk.lattices import Hmms, Lattice, write_archive
from opscope.cntk.readers.base.htk_files import read_script
from opscope.cntk.readers.htk.mlf import read_states


def words(frames: int, count: int) -> Lattice:
    """One edge for each word from the first frame to the last."""
    edges = np.tile([0, 1], (count, 1))
    units = np.column_stack([np.arange(count), np.full(count, frames)])
    return Lattice([0, frames], edges, np.zeros(count), units, np.arange(count + 1))


def main(data: Path, folder: Path) -> None:
    states = read_states(data / "states.list")
    (folder / "digits.tying").write_text("".join(f"{name} T {name}\n" for name in states))
    (folder / "digits.transprob").write_text("T 1  1 0  0.95 0.05\n")
    hmms = Hmms.read(folder / "digits.tying", folder / "digits.transprob", states)
    for part in ("train", "test"):
        found = ((e.name, words(e.frames, len(states))) for e in read_script(data / f"{part}.scp"))
        count = write_archive(folder / f"{part}.lats", hmms, found)
        print(f"{folder / part}.lats: {count} lattices")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
