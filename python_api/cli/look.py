"""Commands that look at nets: show, verify; and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...framework.ir.desc import NetDesc
    from ...framework.ir.op_list import OpList
    from ...nnet3.network.nnet import Nnet


@click.command()
@click.argument("file")
@click.option("--dot", is_flag=True, help="Print a Graphviz graph instead of text.")
@click.option("--svg", metavar="OUT", help="Draw the net to this SVG file instead; - for stdout.")
@click.option("--locations", is_flag=True, help="Also tell where each operator was written.")
def show(file: str, dot: bool, svg: str | None, locations: bool) -> None:
    """Print the net in FILE, one line an operator, or draw it.

    FILE is a .pb, a .checkpoint, a model of Kaldi's nnet3 (.raw, .mdl), a model or checkpoint of
    CNTK (.dnn, .cmf, .model, .ckp; binary, or of CNTK 2.0), or a config or script of CNTK (.cntk,
    .ndl, .mel, .bs), whose networks are built. Of Kaldi's other files (archives and script files,
    also as ark:FILE or scp:FILE, requests, configs, xconfigs) it prints what they hold.

    Of a network of Kaldi's (model, config or xconfig) it first prints a summary: context, inputs,
    outputs, parameters, and what is unusual; --svg draws its layers.
    """
    from ...bridges.recognise.kinds import LISTED, SCRIPTS
    from ...framework.base.errors import FormatError
    from .files import listed, read_desc, read_network, recognised

    if dot and svg:
        raise click.UsageError("--dot and --svg exclude each other")
    kind = recognised(file)
    if kind == "cntk checkpoint" or (kind in SCRIPTS and not (dot or svg)):
        from ...cntk.programs.files import listing as cntk_listing

        for line in cntk_listing(file, "script" if kind in SCRIPTS else "checkpoint"):
            click.echo(line)
        return
    network = read_network(file, kind)
    if kind in LISTED and not (network and (dot or svg)):
        if dot or svg:
            raise FormatError(
                f"{file}: holds no net to draw; without --dot and --svg it is printed"
            )
        from ...nnet3.programs.listing import listing

        for line in listing(file, listed(kind)):
            click.echo(line)
        return
    desc = network.to_desc() if network else read_desc(file)
    if dot:
        from ...framework.draw.pictures import to_dot

        click.echo(to_dot(desc), nl=False)
    elif svg:
        from ...framework.base.atomic import write_atomically
        from ...framework.draw.pictures import to_svg

        picture = network.to_svg() if network else to_svg(desc)
        if svg == "-":
            click.echo(picture, nl=False)
        else:
            write_atomically(svg, picture.encode())
    else:
        from ...framework.ir.printer import net_text

        if network:
            click.echo(f"{network.summary()}\n")
        click.echo(net_text(desc, locations=locations).rstrip("\n"))


@click.command()
@click.argument("file")
@click.option("--batch", type=click.IntRange(1), help="What unknown dimensions are taken as.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=N,N,...", help="The shape of an input."
)
def summary(file: str, batch: int | None, shapes: tuple[str, ...]) -> None:
    """Tell the shapes, parameters and memory of the net in FILE, operator by operator.

    FILE is a .pb or a .checkpoint.
    """
    from ...framework.base.errors import FormatError
    from ...framework.draw.summary import summarize
    from .files import pairs, read_desc

    desc = read_desc(file)
    if desc.metadata.get("dialect"):
        raise FormatError(f"{file}: holds no net of operators; `opscope show` prints what it holds")
    given = {name: _dims(name, text) for name, text in pairs(shapes, "--shape").items()}
    click.echo(str(summarize(desc, given, batch)))


def _dims(name: str, text: str) -> list[int]:
    try:
        return [int(dim) for dim in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--shape {name}={text}: want integers, as in {name}=32,784"
        ) from None


@click.command()
@click.argument("file")
def verify(file: str) -> None:
    """Check the net in FILE, and the parameters beside it, and list all that is wrong.

    FILE is a .pb, a .checkpoint, or a file of Kaldi's nnet3 or of CNTK, as for `opscope show`. The
    exit code is 1 if there is an error; warnings alone leave it 0.
    """
    from ...bridges.recognise.kinds import LISTED, NNET3, SCRIPTS
    from ...framework.files.checkpoint import SUFFIX
    from ...framework.files.saved import verify_parameters
    from ...framework.passes.verify.net_check import ERROR
    from ...framework.passes.verify.verifier import problems
    from .files import listed, read_marked, recognised

    kind = recognised(file)
    if kind in NNET3:
        _verify_nnet3(file)
        return
    if kind in SCRIPTS:
        from ...cntk.programs.commands import check_files

        check_files([file])
        return
    if kind in ("model", "cntk checkpoint"):
        from ...cntk.programs.files import check as check_cntk

        click.echo(check_cntk(file, "model" if kind == "model" else "checkpoint"))
        return
    if kind in ("config", "xconfig"):
        from ...nnet3.network.config_check import config_problems
        from ...nnet3.xconfig.check import xconfig_problems

        found = config_problems(file) if kind == "config" else xconfig_problems(file)
        _tell([(problem.severity, problem.message) for problem in found], f"{file}: ")
    if kind in LISTED:
        from ...nnet3.language.nodes import warnings_to
        from ...nnet3.programs.listing import check

        warnings: list[str] = []
        with warnings_to(warnings.append):
            lines = list(check(file, listed(kind)))
        if kind not in ("config", "xconfig"):  # of which they are told
            _tell([("warning", f"{file}: {line}") for line in warnings])
        for line in lines:
            click.echo(line)
        return
    desc, mark = read_marked(file)
    if desc.metadata.get("dialect"):
        from ...cntk.programs import files as cli_cntk_files

        if cli_cntk_files.is_dialect(desc):
            click.echo(f"{file}: {cli_cntk_files.check_dialect(file, desc)}, no error")
            return
        from ...nnet3.inference.saved import load_nnet
        from ...nnet3.network.dialect import DIALECT
        from ...nnet3.programs.listing import check_dialect

        if desc.metadata["dialect"] == DIALECT:
            _tell_of_network(file, load_nnet(file), [])
        else:
            click.echo(f"{file}: {check_dialect(file, desc)}, no error")
        return
    found = problems(desc)
    told = [(problem.severity, problem.message) for problem in found]
    if not file.endswith(SUFFIX):
        told += [(ERROR, line) for line in verify_parameters(file, desc, mark)]
    _tell(told)
    click.echo(f"{file}: {len(desc.ops)} operators, no error")
    if line := _memory_line(desc):
        click.echo(f"{file}: {line}")


def _memory_line(desc: NetDesc | OpList) -> str:
    """What a run takes, for one row and for each further one; "" where that hangs on data."""
    from ...framework.draw.summary import size_text
    from ...framework.ir.messages import as_op_list
    from ...framework.runtime.footprint import footprint

    one, two = (footprint(as_op_list(desc), batch) for batch in (1, 2))
    if one is None:
        return ""
    line = (
        f"parameters and states {size_text(one.parameters)}; a run with unknown dimensions of 1:"
        f" results {size_text(one.results)}, temporaries {size_text(one.temporaries)}"
    )
    more = 0 if two is None else two.results + two.temporaries - one.results - one.temporaries
    return f"{line}; {size_text(more)} more for each further one" if more > 0 else line


def _tell(lines: list[tuple[str, str]], place: str = "") -> None:
    """Print problems with their severities; end with code 1 if there is an error."""
    for severity, text in lines:
        click.echo(f"{severity}: {text}")
    errors = sum(severity == "error" for severity, _ in lines)
    if errors:
        click.echo(f"{place}{errors} error{'s' * (errors > 1)}", err=True)
        raise click.exceptions.Exit(1)


def _verify_nnet3(file: str) -> None:
    """Print all that is wrong with a model, NaN and infinities, unusual parts and what no output
    uses."""
    from ...framework.base.errors import OpscopeError
    from ...nnet3.language.nodes import warnings_to
    from ...nnet3.network.file_check import model_problems
    from ...nnet3.programs.models import read_checked

    warnings: list[str] = []
    try:
        with warnings_to(warnings.append):
            nnet = read_checked(file)
    except OpscopeError as error:
        told = [(problem.severity, problem.message) for problem in model_problems(file)]
        _tell(told or [("error", str(error))], f"{file}: ")
        raise
    _tell_of_network(file, nnet, warnings)


def _tell_of_network(file: str, nnet: Nnet, warnings: list[str]) -> None:
    """Print NaN and infinities, and what is unusual in a network, with the warnings before."""
    from ...nnet3.network.model_check import not_finite, unusual_parts

    warnings += unusual_parts(nnet)
    told = [("error", line) for line in not_finite(nnet)] + [("warning", line) for line in warnings]
    _tell([(severity, f"{file}: {line}") for severity, line in told], f"{file}: ")
    click.echo(
        f"{file}: {len(nnet.nodes)} nodes, {len(nnet.components)} components, "
        f"{nnet.num_parameters} parameters, no error"
    )


_EXTRAS = {
    "cupy": "gpu-cuda12 or gpu-cuda13",
    "mkl": "speed",
    "matplotlib": "plot",
}


@click.command()
def version() -> None:
    """Versions of opscope, Python, NumPy and the libraries it can use."""
    import importlib.metadata
    import platform

    import google.protobuf
    import numpy
    import safetensors

    from ... import __version__
    from ...framework.base.backend import gpu_present
    from ...framework.base.settings import switch
    from ...framework.fusion.compiler import find_compiler
    from ...framework.ir.messages import FORMAT_VERSION

    compiler = find_compiler(switch("OPSCOPE_CC"))
    rows = [
        ("opscope", f"{__version__} (net format {FORMAT_VERSION})"),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("numpy", numpy.__version__),
        ("protobuf", google.protobuf.__version__),
        ("safetensors", safetensors.__version__),
        ("backends", "numpy, cupy (GPU)" if gpu_present() else "numpy"),
        (
            "compiler",
            f"{compiler} for {switch('OPSCOPE_MARCH')}"
            if compiler
            else "none (OPSCOPE_CC): NumPy computes one operator after the other",
        ),
    ]
    installed = {
        found.name.lower(): found.version
        for found in importlib.metadata.distributions()
        if found.name
    }
    for library, extra in _EXTRAS.items():
        names = [
            name for name in installed if name == library or name.startswith(f"{library}-cuda")
        ]
        told = installed[names[0]] if names else f"not installed (extra {extra})"
        rows.append((library, told))
    for name, told in rows:
        click.echo(f"{name:12} {told}")
