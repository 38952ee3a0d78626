"""A reader or writer whose section was read, and whose data were not opened yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..config.value import ConfigValue
from .base.data import Stream

T = TypeVar("T")


@dataclass(frozen=True)
class Opening(Generic[T]):
    """What a section says, read and found right; `open` does the rest.

    Attributes:
        open: opens the data, and makes the reader, deserializer or writer.
        files: the values of the section that name files which must be there.
        streams: what minibatches will hold; None where only the data tell.
        nodes: of a writer: the nodes that it takes, by name: the value that names or describes it,
            and its dimension; None: any.
        light: whether `open` reads those files alone, and writes none.
        probe: looks at the head of the data, where those are too many to read them for a check.
        foreign: whether it is of another package, which reads its section itself in `open`.
    """

    open: Callable[[], T]
    files: Sequence[ConfigValue] = ()
    streams: Sequence[Stream] | None = None
    nodes: Mapping[str, tuple[ConfigValue, int | None]] = field(default_factory=dict)
    foreign: bool = False
    light: bool = False
    probe: Callable[[], object] | None = None
