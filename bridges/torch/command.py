"""The commands `opscope to-torch` and `opscope from-torch`."""

from __future__ import annotations

import click


@click.command()
@click.argument("file")
@click.argument("folder", type=click.Path(file_okay=False))
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="An output; by default all."
)
@click.option(
    "--frame-subsampling-factor",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Frames for one row of output; 3 for chain models.",
)
@click.option(
    "--whole", is_flag=True, help="One row of output for all frames, as x-vector networks give."
)
def to_torch(
    file: str, folder: str, outputs: tuple[str, ...], frame_subsampling_factor: int, whole: bool
) -> None:
    """Write the network in FILE (of nnet3, CNTK or saved by opscope) as a PyTorch module
    into FOLDER: source, weights, config, and check.py, which shows that its outputs are ours."""
    from .to_torch import to_torch as write

    module = write(
        file,
        folder,
        outputs=outputs or None,
        frame_subsampling_factor=frame_subsampling_factor,
        whole=whole,
    )
    lines = module.source.count("\n")
    click.echo(f"{module.folder}: {lines} lines of source, {module.parameters} parameters")
    for note in module.notes:
        click.echo(f"note: {note}", err=True)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.argument("original", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", type=click.Path(dir_okay=False))
def from_torch(folder: str, original: str, target: str) -> None:
    """Write the model file ORIGINAL with the weights in FOLDER, which `to-torch` made of it and in
    which they have been trained, to TARGET."""
    from .folder import config_in
    from .returning import weights_from_torch

    changed = weights_from_torch(folder, original, target)
    what = (
        "parameters have new values"
        if config_in(folder)[0]["model_type"] == "cntk"
        else "components have new weights"
    )
    click.echo(f"{target}: {len(changed)} {what}")
