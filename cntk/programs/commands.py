"""`opscope cntk`: CNTK's configs and scripts. Errors are shown as the languages tell them, with the
place, the line and a caret."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ...framework.base.errors import OpscopeError
from .lattices import lattices

_WARNED = 3  # the exit code of a check with warnings alone; 2 means a wrong command line


class _Cntk(click.Group):
    """`opscope cntk name=value ...` is CNTK's own command line; other words are commands."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple:
        if args and "=" in args[0]:
            return super().resolve_command(ctx, ["run", *args])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except OpscopeError as error:
            if not error.told:
                click.echo(f"error: {error}", err=True)
            ctx.exit(1)


@click.group(cls=_Cntk)
def cntk() -> None:
    """Run CNTK's configs, NDL, MEL and BrainScript.

    `opscope cntk configFile=FILE name=value ...` runs the commands of a config, as CNTK does.
    """


cntk.add_command(lattices)


@cntk.command()
@click.argument("arguments", nargs=-1, metavar="configFile=FILE name=value ...")
@click.option(
    "--dry-run", is_flag=True, help="Of edits alone: print how models change, and write nothing."
)
def run(arguments: tuple[str, ...], dry_run: bool) -> None:
    """Run the commands of a config; the log goes to standard error."""
    if dry_run:
        from ..actions.dry_run import edits_of

        for path, difference in edits_of(arguments):
            click.echo(f"{path}:\n{difference}")
        return
    from ..actions.command_line import run_config

    run_config(*arguments)


@cntk.command()
@click.argument("arguments", nargs=-1, metavar="configFile=FILE name=value ...")
@click.option("--list", "only_list", is_flag=True, help="List the commands, build no networks.")
def networks(arguments: tuple[str, ...], only_list: bool) -> None:
    """List the commands of a config, and print the networks that it builds."""
    from ..actions.command_line import is_redesigned
    from ..config import commands, parse_command_line
    from ..config.commands import banner
    from ..network.describe import describe
    from ..run.build import Seeds, build_section_network, builder_of

    if is_redesigned(arguments):
        _experiment(arguments, only_list)
        return
    config = parse_command_line(arguments)
    listed = commands(config)
    seeds = Seeds()
    click.echo(f"Commands: {' '.join(command.name for command in listed)}")
    for command in listed:
        section = command.parameters
        if only_list:
            click.echo(f"{command.name}: {' '.join(command.actions)}")
        elif builder_of(section) and {"train", "trainRNN", "adapt", "edit"} & set(command.actions):
            click.echo(banner(command.name, command.actions[0]), nl=False)
            built = build_section_network(section, seeds, say=click.echo)
            click.echo(describe(built.network), nl=False)
            for warning in built.warnings:
                click.echo(f"warning: {warning}", err=True)


def _experiment(arguments: tuple[str, ...], only_list: bool) -> None:
    """Print the actions of a file of the redesigned language, and their networks."""
    from ..brainscript.experiment import LaterAction, TrainAction, load_experiment
    from ..network.describe import describe

    def warn(text: str) -> None:
        click.echo(f"warning: {text}", err=True)

    for action in load_experiment(arguments, warn).actions:
        if isinstance(action, LaterAction):
            click.echo(f"{action.name}: waits for a model that an action before it writes")
            continue
        click.echo(f"{action.name}: {'train' if isinstance(action, TrainAction) else 'edit'}")
        if isinstance(action, TrainAction) and not only_list:
            action.network.validate()
            click.echo(describe(action.network), nl=False)


@cntk.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--parse-only", is_flag=True, help="Read the text only, build no networks.")
def check(files: tuple[str, ...], parse_only: bool) -> None:
    """Tell all that is wrong with configs, scripts and models, without a run.

    Arguments with an equals sign are further parameters of the configs. The exit code is 0 if there
    is nothing to tell, 1 if something stops a run, and 3 if there are warnings alone.
    """
    check_files(
        [word for word in files if "=" not in word], parse_only, [w for w in files if "=" in w]
    )


def check_files(files: Sequence[str], parse_only: bool = False, extra: Sequence[str] = ()) -> None:
    """Print what is wrong with files; exit with code 1 after errors, 3 after warnings alone."""
    from .check import ERROR, check_file

    severities: set[str] = set()
    for file in files:
        report = check_file(file, parse_only, extra)
        for severity, text in report.problems:
            click.echo(f"{severity}: {text}")
        built = [
            f"{name}: {len(network)} nodes, {network.parameter_count()} parameters"
            for name, network in report.networks.items()
        ]
        click.echo(f"{file}: {'; '.join(built) or 'read'}, {len(report.problems)} problems")
        severities.update(severity for severity, _ in report.problems)
    if severities:
        raise click.exceptions.Exit(1 if ERROR in severities else _WARNED)


@cntk.command()
@click.argument("name", required=False)
def nodes(name: str | None) -> None:
    """List the kinds of nodes by family; with NAME tell all about one.

    NAME is an operation, or a function of NDL or BrainScript that makes a node.
    """
    from .nodes import describe_name, list_kinds

    for line in list_kinds() if name is None else describe_name(name):
        click.echo(line)


@cntk.command(name="format")
@click.argument("file")
@click.option("--in-place", is_flag=True, help="Write the file instead of printing it.")
def format_(file: str, in_place: bool) -> None:
    """Lay out a config or script: indentation, blanks and empty lines; comments are kept."""
    from ...framework.base.files.atomic import write_atomically
    from .files import formatted

    text = formatted(file)
    if in_place:
        write_atomically(file, text.encode())
    else:
        click.echo(text, nl=False)
