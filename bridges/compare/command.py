"""The command `opscope compare`."""

from __future__ import annotations

import click

from ...framework.base.errors import OpscopeError


@click.command()
@click.argument("file")
@click.argument("other", required=False)
@click.option(
    "--runtimes",
    nargs=2,
    metavar="A B",
    help="What runs each: opscope, plain (nothing fused or optimized), bf16 (large products in"
    " bfloat16), onnxruntime, onnx-reference, torch.",
)
@click.option(
    "--dtypes", nargs=2, metavar="A B", help="Of each: float32, float64, float16, bfloat16."
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Numbers in place of random ones: .npy, .npz, an archive of Kaldi's, lines of numbers;"
    " FILE:KEY for one of several. May be repeated.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Rows or frames of random inputs.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of these.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    help="An error above it counts, of values above 1 relative to them; 1e-4 in float32.",
)
@click.option("--network", default="", metavar="COMMAND", help="Which network of a CNTK config.")
@click.option(
    "--run-code", is_flag=True, help="Execute the source of PyTorch modules: you trust it."
)
@click.option("--plot", metavar="PLOT", help="Write a plot of the errors, .svg or .html.")
@click.option("--page", metavar="PAGE", help="Write a page of FILE, colored by errors.")
def compare(
    file: str,
    other: str | None,
    runtimes: tuple[str, str] | None,
    dtypes: tuple[str, str] | None,
    inputs: tuple[str, ...],
    rows: int,
    seed: int,
    tolerance: float | None,
    network: str,
    run_code: bool,
    plot: str | None,
    page: str | None,
) -> None:
    """Run two models, or one in two ways, on the same inputs, and show where they part ways.

    FILE and OTHER are nets saved by opscope, models of Kaldi's and CNTK's, ONNX files, or folders
    of to-torch. Without OTHER two runtimes or dtypes are wanted. The exit code is 0 if no layer
    differs, 1 if one does, 2 if they cannot be compared.
    """
    from ...framework.base.files.atomic import refuse_sources
    from ..recognize.recognizing import files_of
    from .comparing import compare as run

    try:
        comparison = run(
            file,
            other,
            inputs=_named(inputs),
            runtimes=runtimes,
            dtypes=dtypes,
            tolerance=tolerance,
            rows=rows,
            seed=seed,
            network=network,
            run_code=run_code,
        )
        read = [part for each in (file, other) if each for part in files_of(each)]
        for target in filter(None, (plot, page)):
            refuse_sources(target, read)
        click.echo(str(comparison))
        if plot is not None:
            comparison.plot(plot)
        if page is not None:
            from ..view.viewing import view

            numbers = comparison.numbers()
            view(file, numbers=numbers, numbers_are="error", network=network).save(page)
    except OpscopeError as error:
        if click.get_current_context().find_root().params.get("debug"):
            raise
        click.echo(f"error: {error}", err=True)
        raise click.exceptions.Exit(2) from None
    if not comparison.same:
        raise click.exceptions.Exit(1)


def _named(inputs: tuple[str, ...]) -> dict[str, str] | str | None:
    """Files by input; a file without a name is for the only input."""
    if not inputs:
        return None
    if len(inputs) == 1 and "=" not in inputs[0]:
        return inputs[0]
    paths = {}
    for text in inputs:
        name, equals, path = text.partition("=")
        if not equals or name in paths:
            why = "twice" if equals else "without a name"
            raise click.BadParameter(f"{text!r}: an input {why}", param_hint="--input")
        paths[name] = path
    return paths
