"""The operators of one component as lists."""

from __future__ import annotations

from opscope.proto import net_pb2 as pb


def propagate(ops, *names, **options):
    """See `ComponentOps.propagate`."""
    net = pb.NetDesc()
    ops.propagate(net.ops, *names, prefix="c1", **options)
    return list(net.ops)


def backprop(ops, *names, **options):
    """See `ComponentOps.backprop`."""
    net = pb.NetDesc()
    ops.backprop(net.ops, *names, prefix="c1", **options)
    return list(net.ops)


def arrays(ops):
    """The variables that the operators read besides those of the caller."""
    return ops.parameters() | ops.constants()
