"""Commands that look at nets: show, verify; and version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    from ...bridges.onnx.opened import OnnxFile
    from ...framework.ir.op_list import OpList
    from ...nnet3.network.nnet import Nnet


@click.command()
@click.argument("file")
@click.option("--dot", is_flag=True, help="Print a Graphviz graph instead of text.")
@click.option("--svg", metavar="OUT", help="Draw the net to this SVG file instead; - for stdout.")
@click.option("--locations", is_flag=True, help="Also print where each operator was written.")
def show(file: str, dot: bool, svg: str | None, locations: bool) -> None:
    """Print the net in FILE, one line an operator, or draw it.

    FILE is a .pb, a .checkpoint, a model of Kaldi's nnet3 (.raw, .mdl, the folder of a Vosk model),
    a model or checkpoint of CNTK (.dnn, .cmf, .model, .ckp; binary, or of CNTK 2.0), an ONNX model,
    or a config or script of CNTK (.cntk, .ndl, .mel, .bs), whose networks are built. Of Kaldi's
    other files (archives and script files, also as ark:FILE or scp:FILE, requests, configs,
    xconfigs) it prints what they hold.

    Of a network of Kaldi's (model, config or xconfig) it first prints a summary: context, inputs,
    outputs, parameters, and what is unusual; --svg draws its layers.
    """
    from ...bridges.model.opening import model_kind, open_model
    from ...bridges.recognize.kinds import LISTED, SCRIPTS
    from ...bridges.recognize.recognizing import check_language
    from ...framework.base.errors import FormatError

    if dot and svg:
        raise click.UsageError("--dot and --svg exclude each other")
    kind = model_kind(file)
    check_language(file, kind)
    if kind == "cntk checkpoint" or (kind in SCRIPTS and not (dot or svg)):
        from ...cntk.programs.files import listing as cntk_listing

        for line in cntk_listing(file, "script" if kind in SCRIPTS else "checkpoint"):
            click.echo(line)
        return
    if kind in LISTED:
        if dot or svg:
            raise FormatError(
                f"{file}: holds no net to draw; without --dot and --svg it is printed"
            )
        from ...nnet3.programs.listing import listing

        for line in listing(file, listed(kind)):
            click.echo(line)
        return
    model = open_model(file)
    if dot:
        from ...framework.draw.pictures import to_dot

        click.echo(to_dot(model.desc), nl=False)
    elif svg:
        from ...framework.base.files.atomic import write_atomically

        picture = model.picture()
        if svg == "-":
            click.echo(picture, nl=False)
        else:
            write_atomically(svg, picture.encode())
    else:
        from ...framework.ir.printer import net_text

        if model.summary:
            click.echo(f"{model.summary}\n")
        click.echo(net_text(model.desc, locations=locations).rstrip("\n"))


def listed(kind: str) -> str:
    """What the programs of nnet3 call a file that they list or check."""
    return "table" if kind in ("archive", "script file") else kind


@click.command()
@click.argument("file")
@click.option("--batch", type=click.IntRange(1), help="What unknown dimensions are taken as.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=N,3,...", help="The shape of an input."
)
def summary(file: str, batch: int | None, shapes: tuple[str, ...]) -> None:
    """Print the shapes, parameters and memory of the net in FILE, operator by operator.

    FILE is a .pb or a .checkpoint.
    """
    from ...bridges.model.opening import open_model
    from ...framework.base.errors import FormatError
    from ...framework.draw.summary import summarize
    from .files import shapes_of

    model = open_model(file)
    if model.dialect:
        raise FormatError(f"{file}: holds no net of operators; `opscope show` prints what it holds")
    given = {
        name: [-1 if isinstance(dim, str) else dim for dim in dims]
        for name, dims in shapes_of(shapes).items()
    }
    click.echo(str(summarize(model.desc, given, batch)))


@click.command()
@click.argument("file")
def verify(file: str) -> None:
    """Check the net in FILE, and the parameters beside it, and list all that is wrong.

    FILE is a .pb, a .checkpoint, or a file of Kaldi's nnet3, of CNTK or ONNX, as for `opscope
    show`. The exit code is 1 if there is an error; warnings alone leave it 0.
    """
    from ...bridges.model.opening import model_kind, open_model
    from ...bridges.recognize.recognizing import check_language

    kind = model_kind(file)
    check_language(file, kind)
    if kind in _CHECKS:
        _CHECKS[kind](file, kind)
        return
    model = open_model(file, use="that is checked here")  # of a kind that another package brings
    _verify_net(file, model.desc, [])


def _verify_scripts(file: str, kind: str) -> None:
    from ...cntk.programs.commands import check_files

    del kind
    check_files([file])


def _verify_cntk(file: str, kind: str) -> None:
    from ...cntk.programs.files import check as check_cntk

    click.echo(check_cntk(file, "model" if kind == "model" else "checkpoint"))


def _verify_listed(file: str, kind: str) -> None:
    from ...nnet3.language.nodes import warnings_to
    from ...nnet3.programs.listing import check

    is_config = kind in ("config", "xconfig")
    if is_config:
        from ...nnet3.network.config_check import config_problems
        from ...nnet3.xconfig.check import xconfig_problems

        problems = config_problems(file) if kind == "config" else xconfig_problems(file)
        _tell([(problem.severity, problem.message) for problem in problems], f"{file}: ")
    warnings: list[str] = []
    with warnings_to(warnings.append):
        lines = list(check(file, listed(kind)))
    if not is_config:
        _tell([("warning", f"{file}: {line}") for line in warnings])
    for line in lines:
        click.echo(line)


def _verify_saved(file: str, kind: str) -> None:
    from ...framework.files.checkpoint import read_checkpoint
    from ...framework.files.saved import load_marked, verify_parameters
    from ...framework.passes.verify.net_check import ERROR

    if kind == "checkpoint":
        _verify_net(file, read_checkpoint(file).op_list, [])
        return
    desc, mark = load_marked(file)
    dialect = desc.metadata.get("dialect", "")
    if not dialect:
        _verify_net(file, desc, [(ERROR, line) for line in verify_parameters(file, desc, mark)])
    elif dialect == "cntk":
        from ...cntk.programs.files import check_dialect as check_cntk

        click.echo(f"{file}: {check_cntk(file, desc)}, no error")
    elif dialect == "nnet3":
        from ...nnet3.inference.saved import load_nnet

        _tell_of_network(file, load_nnet(file), [])
    else:
        from ...nnet3.programs.listing import check_dialect

        click.echo(f"{file}: {check_dialect(file, desc)}, no error")


def _verify_onnx(file: str, kind: str) -> None:
    """Print numbers that are none, and what does not run here; damage is an error of the reader."""
    from ...bridges.model.opening import open_model
    from ...bridges.onnx.importing.model import refused
    from ...bridges.open.info import not_finite

    del kind
    model = cast("OnnxFile", open_model(file)).checked
    problems = [("error", f"{file}: {line}") for line in not_finite(model.arrays)]
    unknown = dict.fromkeys(refused(model.graph))
    problems += [("warning", f"{file}: not supported here: {each}") for each in unknown]
    _tell(problems, f"{file}: ")
    numbers = sum(array.size for array in model.arrays.values())
    click.echo(f"{file}: {len(model.graph.nodes)} nodes, {numbers} parameters, no error")


def _verify_net(file: str, desc: OpList, earlier: list[tuple[str, str]]) -> None:
    """Print what is wrong with a net of operators, with what else was found before."""
    from ...framework.passes.verify.verifier import problems

    own = [(problem.severity, problem.message) for problem in problems(desc)]
    _tell(own + earlier)
    click.echo(f"{file}: {len(desc.ops)} operators, no error")
    if line := _memory_line(desc):
        click.echo(f"{file}: {line}")


def _memory_line(desc: OpList) -> str:
    """What a run takes, for one row and for each further one; "" where that depends on data."""
    from ...framework.base.sizes.byte_sizes import size_text
    from ...framework.runtime.footprint import footprint

    one, two = (footprint(desc, batch) for batch in (1, 2))
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


def _verify_nnet3(file: str, kind: str) -> None:
    """Print all that is wrong with a model, NaN and infinities, unusual parts and what no output
    uses."""
    from ...framework.base.errors import OpscopeError
    from ...nnet3.language.nodes import warnings_to
    from ...nnet3.network.file_check import model_problems
    from ...nnet3.network.vosk_folder import acoustic_model_of
    from ...nnet3.programs.models import read_checked

    file = acoustic_model_of(file) if kind == "vosk" else file
    warnings: list[str] = []
    try:
        with warnings_to(warnings.append):
            nnet = read_checked(file)
    except OpscopeError as error:
        problems = [(problem.severity, problem.message) for problem in model_problems(file)]
        _tell(problems or [("error", str(error))], f"{file}: ")
        raise
    _tell_of_network(file, nnet, warnings)


def _tell_of_network(file: str, nnet: Nnet, warnings: list[str]) -> None:
    """Print NaN and infinities, and what is unusual in a network, with the warnings before."""
    from ...nnet3.network.model_check import not_finite, unusual_parts

    warnings += unusual_parts(nnet)
    problems = [("error", f"{file}: {line}") for line in not_finite(nnet)]
    problems += [("warning", f"{file}: {line}") for line in warnings]
    _tell(problems, f"{file}: ")
    click.echo(
        f"{file}: {len(nnet.nodes)} nodes, {len(nnet.components)} components, "
        f"{nnet.num_parameters} parameters, no error"
    )


_CHECKS: dict[str, Callable[[str, str], None]] = {
    **dict.fromkeys(("nnet3", "acoustic model", "vosk"), _verify_nnet3),
    **dict.fromkeys(("request", "value", "archive", "script file"), _verify_listed),
    **dict.fromkeys(("config", "xconfig"), _verify_listed),
    **dict.fromkeys(("cntk config", "ndl", "mel", "brainscript"), _verify_scripts),
    **dict.fromkeys(("model", "cntk checkpoint"), _verify_cntk),
    **dict.fromkeys(("net", "checkpoint"), _verify_saved),
    "onnx": _verify_onnx,
}
"""What checks a file, by its kind."""


_EXTRAS = {
    "cupy": "gpu-cuda12 or gpu-cuda13",
    "mkl": "speed",
    "matplotlib": "plot",
}


@click.command()
@click.option("--kernels", is_flag=True, help="What multiplies matrices here, and how fast.")
def version(kernels: bool) -> None:
    """Versions of opscope, Python, NumPy and the libraries it can use."""
    if kernels:
        from .kernels import kernel_lines

        for line in kernel_lines():
            click.echo(line)
        return
    import importlib.metadata
    import platform

    import google.protobuf
    import numpy

    from ... import __version__
    from ...framework.base.backend import gpu_present
    from ...framework.base.options.settings import switch
    from ...framework.fusion.compiled import native
    from ...framework.fusion.compiled.libraries import find_compiler
    from ...framework.ir.messages import FORMAT_VERSION

    installed = {
        package.name.lower(): package.version
        for package in importlib.metadata.distributions()
        if package.name
    }
    compiler = find_compiler(switch("OPSCOPE_CC"))
    rows = [
        ("opscope", f"{__version__} (net format {FORMAT_VERSION})"),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("numpy", numpy.__version__),
        ("protobuf", google.protobuf.__version__),
        ("safetensors", installed.get("safetensors", "not installed")),
        ("backends", "numpy, cupy (GPU)" if gpu_present() else "numpy"),
        (
            "compiler",
            compiler or "none (OPSCOPE_CC): chains of operators are interpreted",
        ),
        ("native", native.described()),
    ]
    for library, extra in _EXTRAS.items():
        names = [
            name for name in installed if name == library or name.startswith(f"{library}-cuda")
        ]
        about = installed[names[0]] if names else f"not installed (extra {extra})"
        rows.append((library, about))
    for name, about in rows:
        click.echo(f"{name:12} {about}")
