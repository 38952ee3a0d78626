"""Ranks compare what they are about to run, so that a difference is named before it does harm.

Ranks with different nets would exchange gradients of different things, or wait for each other for
ever; with other versions or switches their parameters would drift apart.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import __version__
from ..base.communicator import Communicator
from ..base.context import OpContext
from ..base.errors import RanksError
from ..base.options.settings import option_text, read_options
from ..ir.desc import KIND_NAMES, PARAMETER, STATE, enum_name
from ..ir.op_list import OpList
from ..ir.operation import Operator
from ..ir.printer import net_text, op_text, var_text

_OPTIONS = ("fuse", "reuse", "inplace", "recurrent", "libraries")
"""Options with which equal gradients may give other parameters, be it in the last bit."""
_MOST_SHOWN = 4

Description = dict[str, str]
"""What is compared -> its text, in the order in which differences are looked for."""


def handshake(
    communicator: Communicator,
    net: OpList,
    *,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Compare the operators, dtypes and settings of all ranks; every rank must call it.

    Args:
        steps: of training that each rank will run; None where it is not known.
        settings: whatever else must be equal; values are compared as they print.

    Raises:
        RanksError: on all ranks, with the first difference of each rank from rank 0.
    """
    if communicator.size == 1:
        return
    own = dict(_described(net, steps, settings or {}))
    text = json.dumps(own).encode()
    # Equal nearly always: 32 bytes for each rank decide that, the texts follow only where not.
    hashes = communicator.exchange(hashlib.sha256(text).digest())
    if len(set(hashes)) == 1:
        return
    texts = communicator.exchange(zlib.compress(text))
    all_ranks: list[Description] = [json.loads(zlib.decompress(one)) for one in texts]
    apart = [
        _difference(all_ranks[0], other, rank)
        for rank, other in enumerate(all_ranks)
        if other != all_ranks[0]
    ]
    more = f"; {len(apart) - _MOST_SHOWN} more ranks differ" if len(apart) > _MOST_SHOWN else ""
    shown = "; ".join(apart[:_MOST_SHOWN])
    raise RanksError(f"the ranks do not run the same: {shown}{more}", on_all=True)


def agree(
    context: OpContext, version: int, operators: Sequence[Operator], net: Callable[[], OpList]
) -> None:
    """Compare a net before its first run in training, where its operators exchange values.

    While testing nothing is exchanged, and one rank may run a net alone.

    Raises:
        RanksError: as `handshake`.
    """
    ranks = context.communicator
    # Once for each version of a net: comparing in every step would double its exchanges.
    if ranks is None or version in ranks.agreed or context.phase is False:
        return
    if any(op.entry.world for op in operators):
        handshake(ranks, net())
    ranks.agreed.add(version)


def _described(
    net: OpList, steps: int | None, settings: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    yield "the version of opscope", __version__
    yield "the version of NumPy", np.__version__
    options = read_options()
    for name in _OPTIONS:
        yield f"the switch OPSCOPE_{name.upper()}", option_text(getattr(options, name))
    yield "the number of steps", str(steps)
    for name in sorted(settings):
        yield f"the setting {name}", str(settings[name])
    for number, op in enumerate(net.ops):
        yield f"operator {number}", op_text(op)
        for name, inner in op.inner_nets():
            yield f"the net {name} of operator {number}", net_text(inner)
    for var in net.vars:
        # Batches may differ, and with them shapes, but what all ranks have in common has one shape.
        common = var.kind in (PARAMETER, STATE)
        text = var_text(var) if common else f"{enum_name(KIND_NAMES, var.kind).lower()} {var.dtype}"
        yield f"variable {var.name}", text
    for number, step in enumerate(net.steps):
        yield f"step net {number}", net_text(step.net)


def _difference(first: Description, other: Description, rank: int) -> str:
    """How rank `rank` differs first from rank 0."""
    for what in dict.fromkeys((*first, *other)):
        mine, its = other.get(what), first.get(what)
        if mine == its:
            continue
        if mine is None or its is None:
            has, lacks = (rank, 0) if its is None else (0, rank)
            return f"rank {has} has {what}, {_shown(mine or its or '')}, which rank {lacks} lacks"
        return f"{what} of rank {rank} is {_shown(mine)}, of rank 0 {_shown(its)}"
    return f"rank {rank} has the same in another order than rank 0"


def _shown(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return f"`{line if len(line) <= 120 else line[:117] + '...'}`"
