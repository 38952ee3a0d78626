"""The command `opscope edit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...framework.base.errors import OpscopeError

if TYPE_CHECKING:
    from .editor import Editor

_PAIR = "A=B"


def _several(name: str, metavar: str, text: str, *others: str):
    return click.option(f"--{name}", *others, multiple=True, metavar=metavar, help=text)


@click.command()
@click.argument("file")
@click.option("-o", "--out", metavar="OUT", help="The file that is written, of the kind of FILE.")
@click.option("--edits-config", metavar="F", help="File with directives of Kaldi's.")
@click.option("--edits", metavar="TEXT", help="Directives of Kaldi's, with ';' between them.")
@click.option("--mel", metavar="F", help="Script of CNTK's model editing language.")
@_several("rename", "OLD=NEW", "Rename nodes; `a*=b*` keeps what the star matches.")
@_several("connect", "NODE=INPUT", "Let a node read something else.")
@_several("remove", "NODES", "Remove nodes; who reads them is an error.")
@_several("bypass", "NODES", "Remove nodes; who reads them reads what they read.")
@_several("replace", "NODE=TYPE", "Let a node compute something else.")
@_several("input", "NODE", "Cut: the node becomes an input; NAME=NODE renames it.", "cut_inputs")
@_several("output", "NODE", "Cut: the node becomes an output; NAME=NODE.", "cut_outputs")
@click.option("--output-size", type=click.IntRange(1), help="Replace the last affine layer.")
@click.option("--output-name", default="", metavar="NAME", help="Of which output, with several.")
@_several("low-rank", "NAMES=K", "Cut matrices to rank K, or below 1 to that share of energy.")
@_several("freeze", "NAMES", "Do not train parameters.")
@_several("unfreeze", "NAMES", "Train parameters again.")
@_several("rate", "NAMES=X", "Factor of learning rates.")
@_several("dropout", "NAMES=P", "Share that dropout drops.")
@click.option("--remove-orphans", is_flag=True, help="Remove what no output needs, at the end.")
@click.option("--dry-run", is_flag=True, help="Print the difference and write nothing.")
@click.option("--overwrite", is_flag=True, help="OUT may be FILE; without --out it is.")
def edit(
    file: str,
    out: str | None,
    edits_config: str | None,
    edits: str | None,
    mel: str | None,
    output_size: int | None,
    output_name: str,
    remove_orphans: bool,
    dry_run: bool,
    overwrite: bool,
    **several: tuple[str, ...],
) -> None:
    """Change the network in FILE and write it to OUT.

    FILE is a raw network or acoustic model of nnet3, a model of CNTK or ONNX, or a net that opscope
    saved.
    Edits are carried out in the order of the options below, whatever their order on the command
    line. In names `*` stands for any characters. Shapes are checked before anything is written, and
    FILE stays as it is without --overwrite.
    """
    from .editor import check_other
    from .editor import edit as open_editor

    if not (dry_run or out or overwrite):
        raise click.UsageError("--out OUT is missing; --overwrite replaces FILE, --dry-run nothing")
    if output_name and output_size is None:
        raise click.UsageError("--output-name is for --output-size, which is not given")
    if out and not overwrite:
        check_other(out, file)
    editor = open_editor(file)
    if edits_config:
        editor.edits_config(edits_config)
    if edits:
        editor.edits(edits)
    if mel:
        from ...cntk.base.text import read_text

        try:
            editor.mel(read_text(mel), mel)
        except OpscopeError as error:  # with the line and a caret below its place
            click.echo(f"error: {error}", err=True)
            raise SystemExit(1) from None
    _plain(editor, several, output_size, output_name)
    if remove_orphans:
        editor.remove_orphans()
    if not editor.done:
        raise click.UsageError("no edit is given")
    difference = editor.difference()
    for note in editor.notes:
        click.echo(f"note: {note}", err=True)
    if dry_run:
        click.echo(str(difference))
        return
    editor.save(out or "", overwrite=overwrite)
    for line in editor.done:
        click.echo(line)
    click.echo(f"wrote {out or file}")


def _plain(
    editor: Editor, several: dict[str, tuple[str, ...]], size: int | None, output: str
) -> None:
    """Carry out the edits of the plain options, in the order of the help."""
    for text in several["rename"]:
        editor.rename(*_pair("rename", text))
    for text in several["connect"]:
        editor.connect(*_pair("connect", text))
    for name in several["remove"]:
        editor.remove(name)
    for name in several["bypass"]:
        editor.remove(name, bypass=True)
    for text in several["replace"]:
        editor.replace(*_pair("replace", text))
    inputs, outputs = (_named(several[key]) for key in ("cut_inputs", "cut_outputs"))
    if inputs or outputs:
        editor.cut(inputs, outputs)
    if size is not None:
        editor.new_output(size, output)
    for text in several["low_rank"]:
        names, number = _number("low-rank", text)
        if number < 1:
            editor.low_rank(names, keep=number)
        elif number == int(number):
            editor.low_rank(names, int(number))
        else:
            raise click.UsageError(f"--low-rank {text}: a whole number, or a share below 1")
    for name in several["freeze"]:
        editor.freeze(name)
    for name in several["unfreeze"]:
        editor.unfreeze(name)
    for text in several["rate"]:
        editor.rates(*_number("rate", text))
    for text in several["dropout"]:
        editor.dropout(*_number("dropout", text))


def _named(texts: tuple[str, ...]) -> dict[str, str]:
    """Nodes by their new names, of `NODE` and `NAME=NODE`."""
    pairs = (text.partition("=") for text in texts)
    return {name: node or name for name, _, node in pairs}


def _pair(option: str, text: str) -> tuple[str, str]:
    first, equals, second = text.rpartition("=")
    if not (first and equals and second):
        raise click.UsageError(f"--{option} {text}: want {_PAIR}, two words with '=' between")
    return first, second


def _number(option: str, text: str) -> tuple[str, float]:
    name, value = _pair(option, text)
    try:
        return name, float(value)
    except ValueError:
        raise click.UsageError(f"--{option} {text}: {value!r} is no number") from None
