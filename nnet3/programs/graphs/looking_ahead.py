"""OpenFst's programs that write FSTs in other types, with what looking ahead wants, and relabel
them.

Source: OpenFst's `fstconvert`, `fstrelabel`; Kaldi's `utils/mkgraph_lookahead.sh`.
"""

from __future__ import annotations

from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.fst.algorithms.label_reachability import make_look_ahead, relabel_by
from ....kaldi.fst.algorithms.symbols import SIDES
from ....kaldi.fst.files.fst_io import WRITTEN, write_fst
from ....kaldi.fst.files.openfst import LOOK_AHEAD
from ....kaldi.tables.streams import open_output
from ..base.program import Option, program
from ..base.saving import save
from ..base.symbols import read_pairs
from .transducers import FILES, choice, read, write

_TYPES = (*WRITTEN, *LOOK_AHEAD)
_LETTERS = dict(zip("io", SIDES, strict=True))


@program(
    "fstconvert",
    "Write an FST in another type; look-ahead types give labels of one side new numbers.",
    FILES,
    Option("fst-type", "vector", f"One of {', '.join(_TYPES)}"),
    Option("save-relabel-ipairs", "", "Write old and new input labels of ilabel_lookahead here"),
    Option("save-relabel-opairs", "", "Write old and new output labels of olabel_lookahead here"),
)
def fstconvert(options: SimpleNamespace, source: str, output: str) -> None:
    kind = choice(options.fst_type, _TYPES, "fst-type")
    for letter, side in _LETTERS.items():
        if getattr(options, f"save_relabel_{letter}pairs") and not kind.startswith(side):
            raise FormatError(f"--save-relabel-{letter}pairs wants --fst-type={side}_lookahead")
    fst = read(source)
    if kind in LOOK_AHEAD:
        fst, pairs = make_look_ahead(fst, of_input=kind == LOOK_AHEAD[0])
        name = options.save_relabel_ipairs or options.save_relabel_opairs
        if name:
            with open_output(name) as file:
                file.write("".join(f"{old}\t{new}\n" for old, new in pairs.tolist()).encode())
    writer = Writer(header=False)
    try:
        write_fst(fst, writer, kind)
    except FormatError as error:
        raise FormatError(f"{source or 'standard input'}: {error}") from error
    save(writer, output or "-")


@program(
    "fstrelabel",
    "Give labels of an FST other numbers.",
    FILES,
    Option("relabel-ipairs", "", "File of lines 'old new' for input labels"),
    Option("relabel-opairs", "", "The same for output labels"),
)
def fstrelabel(options: SimpleNamespace, source: str, output: str) -> None:
    made = fst = read(source)
    for letter, side in _LETTERS.items():
        name = getattr(options, f"relabel_{letter}pairs")
        if name:
            made = relabel_by(made, read_pairs(name), side)
    write(made, fst, output)
