"""`opscope cntk`: the commands of CNTK's floor, and the one that writes NetBuilder code."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from ...cntk.programs.commands import cntk
from ...framework.base.errors import FormatError


@cntk.command(name="to-python")
@click.argument("file")
@click.argument("parameters", nargs=-1, metavar="name=value ...")
@click.option("--section", help="Of a config with several networks: the section with the network.")
@click.option("--params", type=click.Path(), help="Write the parameters' values here.")
def to_python(file: str, parameters: tuple[str, ...], section: str | None, params: str) -> None:
    """Print NetBuilder code that builds the network of a script or model.

    It computes the same. Parameters start from random numbers of the same kind, or with --params
    from the same numbers: from a model, or as CNTK would draw them.
    """
    from ...cntk.programs.files import kind_of_file

    click.echo(python_code(file, parameters, section, params), nl=False)
    if not params and kind_of_file(file) != "script":
        click.echo("the values of the model's parameters are not in it: see --params", err=True)


def python_code(
    path: str, extra: Sequence[str] = (), section: str | None = None, params: str | None = None
) -> str:
    """NetBuilder code that builds the network of a script or model.

    Args:
        extra: further `name=value` of a config's command line.
        section: which network, where there are several; without regard to case.
        params: the file to write the parameters' values to; the code then loads it.

    Raises:
        FormatError: the file is damaged, or describes no network, or no single one.
        OpscopeError: the network does not fit together, or cannot be run.
    """
    from ...cntk.programs.files import networks_of
    from ..to_python import cntk_to_python

    networks = networks_of(path, extra)
    if section is not None:
        chosen = {name: n for name, n in networks.items() if name.lower() == section.lower()}
    else:
        chosen = networks
    if len(chosen) != 1:
        known = ", ".join(networks) or "no network"
        wanted = f"no network {section!r}" if section else "not one network"
        raise FormatError(f"{path}: {wanted}; it has {known}")
    (network,) = chosen.values()
    code = cntk_to_python.to_python(network, os.path.basename(path), params or "")
    if params:
        cntk_to_python.write_values(code, params)
    return code.text


__all__ = ["cntk", "python_code"]
