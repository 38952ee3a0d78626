"""Passes, which are functions from OpList to OpList, and the runner of ordered lists of them.

A pass takes a valid net and returns a valid net. `run_passes` is the only runner: it can verify
and print between passes, and leave single ones out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..base.options.settings import read_options
from ..ir.op_list import OpList


class Pass(Protocol):
    """A rewrite of nets: a small frozen dataclass; its fields are its options."""

    @property
    def name(self) -> str:
        """The name by which the pass is left out, and which errors show."""
        ...

    def apply(self, net: OpList) -> OpList:
        """The rewritten net; `net` itself stays as it is."""
        ...


def run_passes(
    net: OpList,
    passes: Sequence[Pass],
    *,
    skip: Iterable[str] = (),
    after_each: Callable[[str, OpList], None] | None = None,
) -> OpList:
    """Apply `passes` in order.

    Args:
        skip: names of passes to leave out.
        after_each: called with (pass name, net) after every pass: to print, dump or check.

    Raises:
        VariableError, OpscopeError: with OPSCOPE_VERIFY=1, a pass left an invalid net, or dropped
            or moved an operator that touches the world outside; the pass is named.
    """
    left_out = set(skip)
    verifies = read_options().verify
    if verifies:
        from .verify.verifier import verify
        from .verify.world import check_world
    for one in passes:
        if one.name in left_out:
            continue
        before = net
        net = one.apply(net)
        if verifies:
            # After each pass, not at the end: so the message names the guilty one.
            verify(net, f"after pass {one.name}")
            check_world(before, net, f"after pass {one.name}")
        if after_each is not None:
            after_each(one.name, net)
    return net
