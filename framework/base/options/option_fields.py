"""Options as fields of dataclasses: what each is called, its type, default and help, said once.

Command lines are made of such classes: programs in the manner of Kaldi's by
`nnet3/programs/base/program.py`, commands of `opscope` by `field_options.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from dataclasses import dataclass
from typing import Any


def option(default: Any = dataclasses.MISSING, doc: str = "", name: str = "") -> Any:
    """A field of a dataclass that is an option of command lines.

    Args:
        default: its value; without one the option is required.
        doc: its line of help.
        name: without dashes before it, where it is not the field's name.
    """
    return dataclasses.field(default=default, metadata={"doc": doc, "name": name})


@dataclass(frozen=True)
class OptionField:
    """A field that `option` has made.

    Attributes:
        field: its name in the dataclass.
        name: the option's, without dashes before it.
        kind: bool, int, float or str.
        default: `dataclasses.MISSING` where the option is required.
        doc: the line of help.
    """

    field: str
    name: str
    kind: type
    default: Any
    doc: str


@functools.cache  # reading the types takes a millisecond
def option_fields(kind: type) -> tuple[OptionField, ...]:
    """The options among the fields of a dataclass, in their order."""
    types = typing.get_type_hints(kind)
    return tuple(
        OptionField(
            each.name,
            each.metadata["name"] or each.name.replace("_", "-"),
            types[each.name],
            each.default,
            each.metadata["doc"],
        )
        for each in dataclasses.fields(kind)
        if "doc" in each.metadata
    )
