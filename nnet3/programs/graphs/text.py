"""OpenFst's programs that make FSTs of text, and text of FSTs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.fst.files.fst_io import WRITTEN, write_fst
from ....kaldi.fst.files.text import FstCompiler, parse_symbols, print_fst
from ....kaldi.fst.fst import SymbolTable
from ....kaldi.tables.streams import Files, open_output
from ..base.program import Option, program
from ..base.saving import save
from .transducers import FILES, choice, read

_SYMBOLS = (
    Option("isymbols", "", "File of the symbols of input labels"),
    Option("osymbols", "", "File of the symbols of output labels"),
    Option("acceptor", False, "Arcs have one label"),
)


def _text(name: str) -> tuple[str, str]:
    """The text of a file, and the file's name for messages."""
    reader = Files().reader(name)
    return bytes(reader.data[reader.offset :]).decode("utf-8", "surrogateescape"), reader.name


def _table(name: str) -> SymbolTable | None:
    return parse_symbols(*_text(name)) if name else None


@program(
    "fstcompile",
    "Make an FST of text: lines 'from to ilabel olabel [weight]' and 'final [weight]'.",
    ("[<text-in>]", "[<fst-out>]"),
    *_SYMBOLS,
    Option("arc-type", "standard", "The type of arcs: only standard"),
    Option("fst-type", "vector", f"The type of the FST: {' or '.join(WRITTEN)}"),
    Option("keep-isymbols", False, "Write the symbols of input labels into the FST"),
    Option("keep-osymbols", False, "Write the symbols of output labels into the FST"),
    Option("keep-state-numbering", False, "States have the numbers of the text"),
)
def fstcompile(options: SimpleNamespace, source: str, output: str) -> None:
    choice(options.arc_type, ("standard",), "arc-type")
    kind = choice(options.fst_type, WRITTEN, "fst-type")
    inputs, outputs = _table(options.isymbols), _table(options.osymbols)
    for side, table in (("i", inputs), ("o", outputs)):
        if getattr(options, f"keep_{side}symbols") and table is None:
            raise FormatError(f"--keep-{side}symbols wants --{side}symbols")
    keep = options.keep_state_numbering
    compiler = FstCompiler(inputs, outputs, acceptor=options.acceptor, keep_numbers=keep)
    text, name = _text(source or "-")
    fst = compiler.compile(text, name)
    fst.header = replace(
        fst.header,
        input_symbols=inputs if options.keep_isymbols else None,
        output_symbols=outputs if options.keep_osymbols else None,
    )
    writer = Writer(header=False)
    try:
        write_fst(fst, writer, kind)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error
    save(writer, output or "-")


@program(
    "fstprint",
    "Print an FST as text, with the symbols of --isymbols and --osymbols, or those that it holds.",
    FILES[:1] + ("[<text-out>]",),
    *_SYMBOLS,
    Option("numeric", False, "Print labels, also where the FST holds symbols"),
    Option("show-weight-one", False, "Print weights that are 0, too"),
)
def fstprint(options: SimpleNamespace, source: str, output: str) -> None:
    inputs, outputs = _table(options.isymbols), _table(options.osymbols)
    fst = read(source)
    if options.numeric:
        inputs = outputs = None
    else:
        inputs, outputs = inputs or fst.header.input_symbols, outputs or fst.header.output_symbols
    shows_one = options.show_weight_one
    text = print_fst(fst, inputs, outputs, acceptor=options.acceptor, show_weight_one=shows_one)
    with open_output(output or "-") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
