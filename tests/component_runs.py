"""The operators of one component as lists."""

from __future__ import annotations

from opscope.nnet3.components.base.lowering import OUT, X, backward_ops


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


def backprop_reads(ops):
    """Whether the backward operators read the values of `x` and of `out`."""
    recipe = ops.recipe(None, -1)
    lowered = backward_ops(recipe, recipe.parameters, True)
    return any(op.reads(X) for op in lowered), any(op.reads(OUT) for op in lowered)


def arrays(ops):
    """The variables that the operators read besides those of the caller."""
    return ops.parameters() | ops.constants()
