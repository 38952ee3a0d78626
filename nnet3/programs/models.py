"""Kaldi's programs for nnet3 models: nnet3-init, nnet3-copy, nnet3-info, nnet3-average, `.mdl`.

File names are Kaldi's rxfilenames and wxfilenames: a path, `-`, or, where OPSCOPE_PIPES=1 allows
it, a command with `|`. Source: Kaldi's `nnet3bin`.
"""

from __future__ import annotations

from types import SimpleNamespace

import click
import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.tables.streams import open_reader
from ..language.config import ConfigLine, split_lines
from ..network import adjust
from ..network.averaging import average
from ..network.collapse import prepare_for_test
from ..network.model import AmNnetSimple
from ..network.nnet import Nnet
from .base.file_kinds import kind_of_file
from .base.options import BINARY, UNUSED, errors_tell
from .base.program import KaldiCommand, Option, program
from .base.saving import write_model

_DRY_RUN = Option("dry-run", False, "Print how the network would change, and write nothing")
_SRAND = Option("srand", 0, "Seed for random numbers, those of components in config files")
_CHANGES = (
    BINARY,
    _SRAND,
    _DRY_RUN,
    Option("learning-rate", -1.0, "If not negative, the learning rate of all components"),
    Option("nnet-config", "", "Config file whose nodes and components are added or replaced"),
    Option("edits-config", "", "File of edit directives, carried out after --nnet-config"),
    Option("edits", "", "Edit directives with ';' between them, e.g. --edits=remove-orphans"),
    Option("scale", 1.0, "Factor for all parameters and statistics"),
    Option(
        "prepare-for-test",
        False,
        "Set test mode in dropout and batch-norm components and join components where possible",
    ),
)


@program(
    "nnet3-init",
    "Initialize a raw nnet3 network from a config file, or add what it says to an existing one.",
    ("[<existing-model-in>]", "<config-in>", "<raw-nnet-out>"),
    BINARY,
    _SRAND,
    _DRY_RUN,
)
def nnet3_init(options: SimpleNamespace, existing: str, config: str, output: str) -> None:
    nnet = Nnet()
    if existing:
        nnet = _read_nnet(options.program, existing)
        options.program.log(f"Read raw neural net from {existing}")
    before = _before(options, nnet)
    _add_config(options, nnet, config)
    if before is not None:
        return _tell(before, nnet)
    write_model(nnet, output, options.binary)
    options.program.log(f"Initialized raw neural net and wrote it to {output}")


@program(
    "nnet3-copy",
    "Copy a raw nnet3 network, changed as the options say.",
    ("<nnet-in>", "<nnet-out>"),
    *_CHANGES,
    Option("batchnorm-test-mode", False, "Test mode of batch-norm components in the copy"),
)
def nnet3_copy(options: SimpleNamespace, source: str, output: str) -> None:
    nnet = _read_nnet(options.program, source)
    before = _before(options, nnet)
    if options.nnet_config:
        _add_config(options, nnet, options.nnet_config)
    if options.learning_rate >= 0:
        adjust.set_learning_rate(nnet, options.learning_rate)
    adjust.scale(nnet, options.scale)
    _edit(options, nnet)
    if not options.prepare_for_test:
        adjust.set_batchnorm_test_mode(nnet, options.batchnorm_test_mode)
    _prepare(options, nnet)
    if before is not None:
        return _tell(before, nnet)
    write_model(nnet, output, options.binary)
    options.program.log(f"Copied raw neural net from {source} to {output}")


@program("nnet3-info", "Print what a raw nnet3 network is made of.", ("<raw-nnet>",))
def nnet3_info(options: SimpleNamespace, source: str) -> None:
    click.echo(_read_nnet(options.program, source).info(options.verbose > 1), nl=False)


@program(
    "nnet3-am-copy",
    "Copy an nnet3 acoustic model, changed as the options say, or its network alone.",
    ("<nnet-in>", "<nnet-out>"),
    *_CHANGES,
    Option("raw", False, "Write the network only, without transition model and priors"),
    Option("set-raw-nnet", "", "Raw network to put in the place of the model's, before all else"),
    Option(
        "convert-repeated-to-block",
        False,
        "Turn repeated affine components into BlockAffineComponents, after --set-raw-nnet",
    ),
)
def nnet3_am_copy(options: SimpleNamespace, source: str, output: str) -> None:
    model = _read_model(source)
    before = _before(options, model.nnet)
    if options.set_raw_nnet:
        _set_nnet(options.program, model, _read_nnet(options.program, options.set_raw_nnet))
    nnet = model.nnet
    if options.nnet_config:
        _add_config(options, nnet, options.nnet_config)
    if options.convert_repeated_to_block:
        count = adjust.convert_repeated_to_block(nnet)
        options.program.log(f"Converted {count} components to BlockAffineComponent.")
    if options.learning_rate >= 0:
        adjust.set_learning_rate(nnet, options.learning_rate)
    _edit(options, nnet)
    _set_nnet(options.program, model, nnet)
    adjust.scale(nnet, options.scale)
    _prepare(options, nnet)
    if before is not None:
        return _tell(before, nnet)
    if options.raw:
        write_model(nnet, output, options.binary)
        options.program.log(f"Copied neural net from {source} to raw format as {output}")
        return
    model.set_form(options.binary)
    write_model(model, output, options.binary)
    options.program.log(f"Copied neural net from {source} to {output}")


@program("nnet3-am-info", "Print what an nnet3 acoustic model is made of.", ("<nnet>",))
def nnet3_am_info(options: SimpleNamespace, source: str) -> None:
    click.echo(_read_model(source).info(options.verbose > 1), nl=False)


@program(
    "nnet3-average",
    "Average the parameters and statistics of raw nnet3 networks.",
    ("<model>...", "<model-out>"),
    BINARY,
    Option("weights", "", "Weights of the models, with ':' between; made to sum to 1"),
    Option("num-threads", -1, UNUSED),
)
def nnet3_average(options: SimpleNamespace, *files: str) -> None:
    *models, output = files
    weights = [1.0] * len(models)
    if options.weights:
        try:
            weights = [float(word) for word in options.weights.split(":")]
        except ValueError:
            raise FormatError(f"--weights={options.weights} are no numbers") from None
        if len(weights) != len(models):
            raise FormatError(f"--weights={options.weights}: want {len(models)} weights")
        if abs(sum(weights) - 1.0) > 0.01:
            total = sum(weights)
            options.program.warn(f"Normalizing weights to sum to one, sum was {total:g}")
    nnet = average((Nnet.read_any(open_reader(name)) for name in models), weights)
    write_model(nnet, output, options.binary)
    options.program.log(f"Averaged parameters of {len(models)} neural nets, and wrote to {output}")


def _read_nnet(program: KaldiCommand, name: str) -> Nnet:
    """The network in a raw file, or the one in an acoustic model."""
    nnet = Nnet.read_any(open_reader(name))
    program.vlog(
        1,
        f"Read {len(nnet.nodes)} nodes, {len(nnet.components)} components and "
        f"{nnet.num_parameters} parameters from {name}",
    )
    return nnet


def read_checked(path: str) -> Nnet:
    """The network in a raw file or an acoustic model; of the latter, all is checked.

    Raises:
        FormatError: something is damaged.
    """
    reader = open_reader(path)
    if reader.peek_token() != "<TransitionModel>":
        return Nnet.read_from(reader)
    begin = reader.offset
    TransitionModel.read_from(reader)
    reader.offset = begin
    return AmNnetSimple.read_from(reader).nnet


def _read_model(name: str) -> AmNnetSimple:
    reader = open_reader(name)
    if reader.peek_token() == "<Nnet3>":
        raise reader.error(
            "a raw network, not an acoustic model: nnet3-copy and nnet3-info take it"
        )
    return AmNnetSimple.read_from(reader)


def _set_nnet(program: KaldiCommand, model: AmNnetSimple, nnet: Nnet) -> None:
    """Give a model its new or changed network; warn if that removes its priors."""
    priors = model.priors.size
    model.set_nnet(nnet)
    if priors and not model.priors.size:
        program.warn(f"Removed {priors} priors: the output is {nnet.output_dim('output')} wide.")


def _before(options: SimpleNamespace, nnet: Nnet) -> Nnet | None:
    """The network as it is now, if --dry-run asks for what differs from it."""
    return nnet.copy() if options.dry_run else None


def _tell(before: Nnet, nnet: Nnet) -> None:
    """Print what differs between two networks."""
    from ...framework.editing.difference import difference

    descs = before.to_desc(), before.arrays(), nnet.to_desc(), nnet.arrays()
    click.echo(str(difference(*descs)))


def _config(name: str) -> list[ConfigLine]:
    """The lines of a config file."""
    reader = open_reader(name)
    if reader.binary:
        raise reader.error("a config file must be text", 0)
    try:
        return split_lines(bytes(reader.data[reader.offset :]).decode(), reader.name)
    except UnicodeDecodeError as error:
        raise FormatError(f"{reader.name}: no text (byte {error.start})") from error


def _add_config(options: SimpleNamespace, nnet: Nnet, name: str) -> None:
    """Add the nodes and components of a config file."""
    if kind_of_file(name) == "xconfig":
        raise FormatError(f"{name}: an xconfig; nnet3-xconfig-to-config makes a config of it")
    lines = _config(name)
    if not lines:
        raise FormatError(f"{name}: no line of a config in it")
    try:
        nnet.add_config(lines, np.random.default_rng(options.srand & 0xFFFFFFFF))
    except OpscopeError as error:
        if str(error).startswith(f"{name}:"):  # that of a line
            raise
        with errors_tell(name):
            raise


def _edit(options: SimpleNamespace, nnet: Nnet) -> None:
    """Carry out the directives of --edits-config, then the directives of --edits."""
    if not (options.edits_config or options.edits):
        return
    from ..network.edits import apply_edits, parse_edits  # programs start without the directives

    lines = _config(options.edits_config) if options.edits_config else []
    lines += parse_edits(options.edits)
    for line in apply_edits(nnet, lines):
        options.program.log(line)


def _prepare(options: SimpleNamespace, nnet: Nnet) -> None:
    """Set test modes and join components, as --prepare-for-test asks."""
    if options.prepare_for_test:
        added, removed = prepare_for_test(nnet)
        if added or removed:
            options.program.log(f"Added {added} components, removed {removed}")
