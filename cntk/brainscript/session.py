"""What one evaluation of BrainScript shares: limits, settings, classes, output, and its files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import count

from ..network.network import Network
from ..network.nodes.node import Node
from .language.syntax import Expression
from .values import Path, Record, Thunk, Value

log = logging.getLogger("opscope.cntk")

# The constructor of a runtime class: (its record, the path of the object, the `new`) -> the object.
Constructor = Callable[[Record, Path, Expression], Value]


@dataclass(frozen=True)
class RuntimeType:
    """A class that `new` can make.

    With `names_inside_start_anew`, paths inside its record do not begin with the object's own path:
    so it is for classes whose members can be reached with a dot.
    """

    construct: Constructor
    names_inside_start_anew: bool = False


@dataclass
class Session:
    """One evaluation.

    Attributes:
        types: the classes that `new` knows.
        load_model: reads the model file of a name for `BS.Network.Load`.
        seeds: gives the seeds of random initial values, in the order in which parameters are made;
            CNTK has one counter for all networks of a process.
        say: takes the lines of `Print` and `Debug`.
        warn: takes what is suspicious.
        curried: whether a call with too few arguments gives a function of the others, as in the
            redesigned language; in CNTK's own it is an error.
    """

    types: Mapping[str, RuntimeType]
    load_model: Callable[[str], Network] | None = None
    say: Callable[[str], None] = log.info
    warn: Callable[[str], None] = log.warning
    seeds: Iterator[int] = field(default_factory=lambda: count(1))
    curried: bool = False
    calls: int = 0
    depth: int = 0
    waiting: list[Thunk] = field(default_factory=list)
    # Delay nodes whose inputs are not attached yet, with the record that names them.
    late: MutableMapping[Node, tuple[Record, Expression]] = field(default_factory=dict)
