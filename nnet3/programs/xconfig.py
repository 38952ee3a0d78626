"""`opscope nnet3-xconfig-to-config`: the config files of an xconfig.

Options and files are those of Kaldi's `steps/nnet3/xconfig_to_configs.py`.
"""

from __future__ import annotations

import os

import click
import numpy as np

from ...framework.base.errors import FormatError, SaveError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.untrusted.opener import file_path, read_file
from ..language.config import split_lines
from ..language.nodes import DESCRIPTOR
from ..network.edits import apply_edits, parse_edits
from ..network.nnet import Nnet
from ..xconfig import Configs, xconfig_to_configs
from .base.file_kinds import kind_of_file


@click.command()
@click.option("--xconfig-file", required=True, metavar="FILE", help="The xconfig to read.")
@click.option("--config-dir", metavar="DIR", help="Folder for the files; made if it is missing.")
@click.option("--existing-model", metavar="MODEL", help="A network whose nodes inputs may name.")
@click.option("--nnet-edits", default="", help="Edits of the network before its context is found.")
@click.option(
    "--config",
    type=click.Choice(["final", "ref", "init"]),
    default="final",
    help="Which one to print, without --config-dir.",
)
def nnet3_xconfig_to_config(
    xconfig_file: str,
    config_dir: str | None,
    existing_model: str | None,
    nnet_edits: str,
    config: str,
) -> None:
    """Turn layers (an xconfig) into the config files that nnet3-init reads.

    With --config-dir: final.config, ref.config, init.config where there is a part before a
    fixed-affine-layer, a copy of the xconfig, and `vars`, which gives the context of the network.
    Without it, one config goes to stdout.
    """
    if kind_of_file(xconfig_file) == "config":
        raise FormatError(f"{xconfig_file}: a config, not an xconfig: nnet3-init takes it")
    existing = None if existing_model is None else Nnet.read(existing_model)
    configs = xconfig_to_configs(xconfig_file, _dims(existing))
    if config_dir is None:
        if not getattr(configs, config):
            raise FormatError(f"{xconfig_file}: no layer makes a file {config}.config")
        click.echo(getattr(configs, config), nl=False)
        return
    try:
        os.makedirs(file_path(config_dir), exist_ok=True)
    except OSError as error:
        raise SaveError(f"cannot make {config_dir}: {error.strerror}") from error
    layers = read_file(xconfig_file)
    configs.write(config_dir)
    write_atomically(os.path.join(config_dir, "xconfig"), layers)
    _write_vars(configs, config_dir, existing_model, nnet_edits)


def _dims(existing: Nnet | None) -> dict[str, int]:
    """The columns of the nodes that inputs may name."""
    if existing is None:
        return {}
    dims = existing.node_dims()
    return {node.name: dims[node.name] for node in existing.nodes if node.kind != DESCRIPTOR}


def _write_vars(configs: Configs, folder: str, existing: str | None, edits: str) -> None:
    """Write the context of the network, or a line that it has none as it is not simple."""
    nnet = _network(configs.ref, existing, edits)
    if not nnet.is_simple():
        click.echo(
            "warning: no file `vars` is written: the network has more inputs than 'input' and"
            " 'ivector', or no 'output' (see --nnet-edits)",
            err=True,
        )
        return
    left, right = nnet.context()
    if configs.init:
        first = _network(configs.init, existing, "")
        if first.is_simple() and (first.context()[0] > left or first.context()[1] > right):
            raise FormatError(
                f"init.config wants {first.context()} frames of context, more than the whole"
                f" network with {(left, right)}; a delay= in the fixed-affine-layer helps"
            )
    text = f"model_left_context={left}\nmodel_right_context={right}\n"
    write_atomically(os.path.join(folder, "vars"), text.encode())


def _network(config: str, existing: str | None, edits: str) -> Nnet:
    nnet = Nnet() if existing is None else Nnet.read(existing)
    nnet.add_config(split_lines(config), np.random.default_rng(0))
    if edits:
        apply_edits(nnet, parse_edits(edits))
    return nnet
