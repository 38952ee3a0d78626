"""The commands that write a net in another format: `convert`, `quantize`, `to-onnx`."""

from __future__ import annotations

import re
import warnings
from typing import Any

import click

_CONTEXT = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<left>\d{1,6})(?::(?P<right>\d{1,6}))?\Z")


def _frames(text: str) -> tuple[str, tuple[int, int]]:
    """Input and frames of `[NAME=]LEFT:RIGHT`, or of `[NAME=]N` for a window of N frames."""
    match = _CONTEXT.match(text)
    if match is None:
        raise click.UsageError(f"--context {text}: want [NAME=]LEFT:RIGHT or an odd number")
    left = int(match["left"])
    right = match["right"]
    if right is None:
        if left % 2 == 0:
            raise click.UsageError(f"--context {text}: a window has an odd number of frames")
        left = left // 2
        right = left
    return match["name"] or "", (left, int(right))


@click.command()
@click.argument("source", required=False)
@click.argument("target", required=False)
@click.option("--to", metavar="FORM", help="What TARGET becomes, where its name does not tell.")
@click.option("--list", "listed", is_flag=True, help="Print what becomes what, and what is lost.")
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NODE",
    help="A node or variable that becomes an output; for nnet3 the first is called output."
    " Several times.",
)
@click.option(
    "--context",
    "windows",
    multiple=True,
    metavar="[NAME=]LEFT:RIGHT",
    help="Frames around each that an input of CNTK's holds side by side, as contextWindow says.",
)
@click.option("--transition-model", help="A file that begins with one, for a target .mdl.")
@click.option("--text", is_flag=True, help="Write files of Kaldi's as text.")
@click.option(
    "--frame-subsampling-factor",
    type=click.IntRange(1),
    help="Frames for a row of output; by default what the folder of a Vosk model says, else 1.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,3,...",
    help="Of an ONNX model's input; letters, or -1, are sizes that may vary.",
)
@click.option("--original", help="The model file that a folder of PyTorch was made of.")
@click.option("--states", help="A file with the names of states, for labels.")
@click.option(
    "--bound",
    type=click.FloatRange(0, min_open=True),
    help="Largest error, of values above 1 relative to them; by default 1e-4.",
)
@click.option("--overwrite", is_flag=True, help="TARGET may be there already.")
def convert(
    source: str | None,
    target: str | None,
    to: str | None,
    listed: bool,
    outputs: tuple[str, ...],
    windows: tuple[str, ...],
    shapes: tuple[str, ...],
    bound: float | None,
    **given: Any,
) -> None:
    """Convert the model or data in SOURCE to another format, TARGET.

    What SOURCE is, is known by its content, what TARGET becomes by its name or --to. The result is
    compared with SOURCE on random inputs before it is written; what is lost is reported.
    """
    from ..formats.converting import BOUND
    from ..formats.converting import convert as run
    from .files import shapes_of

    if listed:
        from ..formats.table import table_lines

        if source is not None:
            raise click.UsageError("--list goes without files")
        click.echo("\n".join(table_lines()))
        return
    if source is None or target is None:
        raise click.UsageError("Missing argument: SOURCE and TARGET, or --list")
    report = run(
        source,
        target,
        to,
        outputs=outputs,
        context=dict(_frames(window) for window in windows),
        shapes=shapes_of(shapes),
        bound=BOUND if bound is None else bound,
        **given,
    )
    click.echo(str(report))


@click.command()
@click.argument("file")
@click.argument("target", type=click.Path(dir_okay=False))
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="An output. Several times."
)
@click.option("--opset", type=int, help="Version of the operators, 17 to 22; by default 17.")
@click.option("--external", is_flag=True, help="Put the arrays into a file beside TARGET.")
@click.option(
    "--inputs",
    "inputs",
    multiple=True,
    type=click.Path(exists=True),
    metavar="FILE.npz",
    help="Real inputs to check with, an array each. Several times.",
)
@click.option(
    "--bound",
    type=click.FloatRange(0, min_open=True),
    help="Largest error, of values above 1 relative to them; by default 1e-4.",
)
@click.option("--int8", is_flag=True, help="Quantize products; the report shows what that costs.")
@click.option("--streaming", is_flag=True, help="nnet3: a graph for chunks, with caches.")
@click.option(
    "--frame-subsampling-factor",
    type=int,
    help="nnet3: frames for a row of output; by default as a Vosk model's folder says, else 1.",
)
@click.option("--use-priors", is_flag=True, help="nnet3: subtract the model's log-priors.")
@click.option("--acoustic-scale", type=float, default=1.0, help="nnet3: factor of the output.")
@click.option("--whole", is_flag=True, help="nnet3: one row for all frames, for x-vectors.")
def to_onnx(
    file: str,
    target: str,
    outputs: tuple[str, ...],
    opset: int | None,
    external: bool,
    inputs: tuple[str, ...],
    bound: float | None,
    int8: bool,
    use_priors: bool,
    **of_nnet3: Any,
) -> None:
    """Write the net in FILE (saved by opscope, of Kaldi's nnet3, of CNTK, or a Vosk model's folder)
    as ONNX to TARGET, once its outputs have been compared with ours. Losses, labels and all of
    training fall away."""
    from ...bridges.onnx.export.checking import BOUND, UncheckedWarning
    from ...bridges.onnx.export.exporting import to_onnx as export
    from ...bridges.onnx.files.graph import OPSET
    from ...framework.files.array_files import read_arrays

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncheckedWarning)  # the line that is printed says it
        check = export(
            file,
            target,
            outputs=outputs or None,
            opset=OPSET if opset is None else opset,
            external=external or None,
            inputs=[dict(read_arrays(path)) for path in inputs] or None,
            bound=BOUND if bound is None else bound,
            int8=int8,
            priors=use_priors or None,
            **of_nnet3,
        )
    click.echo(f"{target}: {check}")


@click.command()
@click.argument("model")
@click.argument("target", type=click.Path(dir_okay=False))
@click.option(
    "--how",
    type=click.Choice(["dynamic", "static", "weights"]),
    help="What products read becomes integers in scales that follow each run, or in scales from"
    " --data; or matrices alone become integers. By default dynamic.",
)
@click.option(
    "--weights",
    type=click.Choice(["q8", "q4", "bf16"]),
    help="Instead of --how: matrices alone become integers of 8 or 4 bits, each block of them with"
    " a scale, or numbers in bfloat16.",
)
@click.option("--block", type=int, help="Elements of a block of --weights, by default 32.")
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True),
    metavar="FILE.npz",
    help="Inputs that tell ranges and errors, an array each. Several times.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,3,...",
    help="Of an input of a net of opscope; letters, or -1, are sizes that may vary. Several times.",
)
def quantize(
    model: str,
    target: str,
    how: str | None,
    weights: str | None,
    block: int | None,
    data: tuple[str, ...],
    shapes: tuple[str, ...],
) -> None:
    """Write MODEL (ONNX, saved by opscope, of Kaldi's nnet3, of CNTK, or a Vosk model's folder) to
    TARGET, with integers, or bfloat16, in the products with its matrices and filters: as ONNX
    (.onnx) or as a net of opscope. Prints what that costs, product by product."""
    from ...bridges.onnx.export.checking import UncheckedWarning
    from ...bridges.onnx.export.quantizing import quantize as write
    from ...framework.files.array_files import read_arrays
    from .files import shapes_of

    if weights is not None and how is not None:
        raise click.UsageError("--how and --weights are two ways to quantize: give one")
    if block is not None and weights is None:
        raise click.UsageError("--block is of --weights, which is not given")
    given = {"how": how, "weights": weights, "block": block}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncheckedWarning)
        report = write(
            model,
            target,
            **{name: value for name, value in given.items() if value is not None},
            data=[dict(read_arrays(path)) for path in data] or None,
            shapes=shapes_of(shapes),
        )
    click.echo(report.table())
    click.echo(f"{target}: {report}")
