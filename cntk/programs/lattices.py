"""`opscope cntk lattices`: archives of lattices for training by a sequence criterion."""

from __future__ import annotations

import click


@click.command()
@click.argument("archive", type=click.Path())
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--list", "lists", multiple=True, help="Further files, one a line.")
@click.option("--phones", required=True, help="phoneFile: phones, transitions, states.")
@click.option("--transitions", required=True, help="transPFile: the transitions.")
@click.option("--states", required=True, help="labelMappingFile: the names of the states.")
def lattices(
    archive: str,
    files: tuple[str, ...],
    lists: tuple[str, ...],
    phones: str,
    transitions: str,
    states: str,
) -> None:
    """Write ARCHIVE, ARCHIVE.toc and ARCHIVE.symlist.

    A file is a lattice in HTK's text format, whose name is the utterance's, or is given as
    name=path; or a table of another archive (.toc), all of whose lattices are taken, older formats
    too. Files that cannot be read are named, and left out.
    """
    from ...framework.base.errors import FormatError
    from ..base.text import read_text
    from ..lattices import Hmms, write_archive
    from ..lattices.convert import lattices_in
    from ..readers.htk.mlf import read_states

    names = list(files)
    for path in lists:
        names += filter(None, map(str.strip, read_text(path).splitlines()))
    hmms = Hmms.read(phones, transitions, read_states(states))
    unread: list[FormatError] = []

    def failed(error: FormatError) -> None:
        unread.append(error)
        click.echo(f"left out: {error}", err=True)

    count = write_archive(archive, hmms, lattices_in(names, hmms, failed))
    click.echo(f"{archive}: {count} lattices, {len(unread)} could not be read")
    if not count:
        raise click.exceptions.Exit(1)
