"""The operators of one component as lists."""

from __future__ import annotations


def propagate(ops, *names, **options):
    """See `ComponentOps.propagate`."""
    return _made(ops.propagate, names, options)


def backprop(ops, *names, **options):
    """See `ComponentOps.backprop`."""
    return _made(ops.backprop, names, options)


def _made(append, names, options):
    made = []
    append(made, *names, prefix="c1", **options)
    return made


def arrays(ops):
    """The variables that the operators read besides those of the caller."""
    return ops.parameters() | ops.constants()
