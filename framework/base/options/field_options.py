"""Options of a command from dataclasses of options."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import MISSING
from typing import Any, TypeVar

import click

from .option_fields import option_fields

Command = TypeVar("Command", bound=Callable[..., Any])


def field_options(*kinds: type, optional: Collection[str] = ()) -> Callable[[Command], Command]:
    """A decorator that gives a command an option for each field that `option` has made.

    The command gets the values by the names of the fields. A bool that is False by default is a
    flag; other defaults are shown, except for empty strings.

    Args:
        kinds: dataclasses; their options stand in this order.
        optional: fields without a default whose options may be missing all the same: then "".
    """

    def decorate(command: Command) -> Command:
        for each in reversed([each for kind in kinds for each in option_fields(kind)]):
            default = "" if each.field in optional else each.default
            extra: dict[str, Any] = (
                {"required": True} if default is MISSING else {"default": default}
            )
            if each.kind is bool and not default:
                extra["is_flag"] = True
            else:
                extra |= {"type": each.kind, "show_default": default not in (MISSING, "")}
            command = click.option(f"--{each.name}", each.field, help=each.doc, **extra)(command)
        return command

    return decorate
