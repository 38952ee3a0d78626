"""The command `opscope to-onnx`."""

from __future__ import annotations

import click

from ...bridges.onnx.export.checking import BOUND
from ...bridges.onnx.export.exporting import to_onnx as export
from ...bridges.onnx.files.graph import OPSET
from .files import read_arrays


@click.command()
@click.argument("file")
@click.argument("target", type=click.Path(dir_okay=False))
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="An output. Several times."
)
@click.option("--opset", type=int, default=OPSET, show_default=True, help="Version, 17 to 22.")
@click.option("--external", is_flag=True, help="Put the arrays into a file beside TARGET.")
@click.option(
    "--inputs",
    "inputs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.npz",
    help="Real inputs to check with, an array each. Several times.",
)
@click.option(
    "--bound",
    type=click.FloatRange(0, min_open=True),
    default=BOUND,
    show_default=True,
    help="Largest error, of values above 1 relative to them.",
)
def to_onnx(
    file: str,
    target: str,
    outputs: tuple[str, ...],
    opset: int,
    external: bool,
    inputs: tuple[str, ...],
    bound: float,
) -> None:
    """Write the net in FILE (saved by opscope, or of CNTK) as ONNX to TARGET, once its outputs have
    been compared with ours. Losses, labels and all of training fall away."""
    check = export(
        file,
        target,
        outputs=outputs or None,
        opset=opset,
        external=external or None,
        inputs=[read_arrays(path) for path in inputs] or None,
        bound=bound,
    )
    click.echo(f"{target}: {check}")
