"""A model's folder with new words: `adapt`."""

from __future__ import annotations

import os
from pathlib import Path

from ...framework.base.atomic import make_folder_of, write_together
from ...framework.base.errors import ArgumentError, FormatError
from ...framework.base.untrusted.opener import PathLike, path_text, read_file
from ...kaldi.fst.fst_io import CONST, fst_bytes
from ..adaptation.addition import Adapted, Spelled, addition, checked_weight
from ..adaptation.grammar import with_header_of
from ..adaptation.word_list import NewWords
from ..fst.graph import distinct_sets
from ..fst.graph_folder import read_graph_fst
from ..recognize.model import Model


def adapt(
    model: PathLike, out: PathLike, words: NewWords, *, weight: float | None = None
) -> Adapted:
    """Write a copy of a model's folder that knows new words.

    HCLr.fst gets a path for each pronunciation, Gr.fst the words as unigrams, the tables of words
    their texts; all other files are copied.

    Args:
        model: the folder, with HCLr.fst, Gr.fst and word_boundary.int. out: a new or empty folder.
        words: a file with a word and its phones in each line, or a mapping, as for `make_lang`. In
            a file, words without phones get a guess by the model's pronunciations.
        weight: the cost of a word in the grammar, -log of its probability; by default the median
            cost of the model's words.

    Raises:
        FormatError: the folder is damaged or has HCLG.fst, a word is there already with the same
            phones, or the model lacks a phone; with file and line. ArgumentError: `out` has files,
            or the weight is no number. SaveError: a file cannot be written. Nothing is written
            then.
    """
    if weight is not None:
        checked_weight(weight)
    target = Path(path_text(out))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ArgumentError(f"{target} is there already and is no empty folder")
    known = Model(model)
    folder = known.graph_folder
    if (folder / "HCLG.fst").exists():
        raise FormatError(
            f"{folder / 'HCLG.fst'}: a graph with its grammar in it gets no words; HCLr.fst and"
            " Gr.fst are wanted, which make-graph --look-ahead makes of a lexicon and an ARPA file"
        )
    first, second = (read_graph_fst(str(folder / name)) for name in ("HCLr.fst", "Gr.fst"))
    reached = first.header.reachability
    assert reached is not None  # the model has been loaded
    following = distinct_sets(reached.begin, reached.intervals)
    made = addition(known, words, first, following, second, weight)
    lexicon = made.first.with_header_of(first)
    files = {
        folder / "HCLr.fst": fst_bytes(lexicon, lexicon.header.kind),
        folder / "Gr.fst": fst_bytes(with_header_of(made.second, second, made.labels), CONST),
        **_tables(known, made.spelled),
    }
    _write(known.path, target, files)
    return made.adapted


def _tables(model: Model, spelled: Spelled) -> dict[Path, bytes]:
    """The files of words with more lines, those that are there."""
    listed = {
        model.graph_folder / "words.txt": [f"{word} {at}" for word, at in spelled.added.items()],
        model.path / model.word_files[1]: [
            " ".join(map(str, (number, number, *phones))) for number, phones in spelled.rows
        ],
    }
    files = {}
    for path, lines in listed.items():
        if path.is_file() and lines:
            data = read_file(str(path))
            end = b"" if not data or data.endswith(b"\n") else b"\n"
            more = "\n".join(lines).encode("utf-8", "surrogateescape")
            files[path] = data + end + more + b"\n"
    return files


def _write(source: Path, target: Path, changed: dict[Path, bytes]) -> None:
    """Write a folder with the files of another one, of which some have changed."""
    targets = []
    for folder, _, names in os.walk(source):
        for path in (Path(folder, name) for name in sorted(names)):
            data = changed.get(path)
            place = target / path.relative_to(source)
            make_folder_of(place)
            targets.append((place, _writer(path, data)))
    write_together(targets)


def _writer(path: Path, data: bytes | None):
    return lambda file: file.write(read_file(str(path)) if data is None else data)
