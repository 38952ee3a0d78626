"""Helpers of losses and metrics over class labels: shapes, flat views, the range check."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import OperatorView, Shape, ShapeArgs, count
from ...framework.ir.kernel_args import Call, KernelArgs, describe_by
from ...framework.ir.registry import AttrSpec, Slot
from ..linear.matmul import as_rows

if TYPE_CHECKING:
    from ...framework.base.device_checks import Explain

IGNORE_INDEX = AttrSpec(
    "ignore_index", "int", "label of samples that are left out, as in PyTorch", -100
)
INDEX_LABEL = Slot("label", "classes 0 .. C-1, integers [...] or [..., 1]")


def index_rule(s: ShapeArgs) -> Shape:
    """The shape of the samples: x is [..., C], label [...] or [..., 1] of an integer dtype."""
    x, label = s["x"], s["label"]
    s.floats("x")
    s.integers("label")
    if not x:
        s.fail("x wants at least 1 dimension: the classes")
    if len(label) == len(x) and s.same("the last dimension of label and 1", label[-1], 1) == 1:
        label = label[:-1]
    return s.same_shape("the samples of x and label", x[:-1], label)


def soft_rule(s: ShapeArgs) -> Shape:
    """The shape of the samples: x and label are both [..., C]."""
    x = s["x"]
    s.floats("x", "label")
    if not x:
        s.fail("x wants at least 1 dimension: the classes")
    return s.same_shape("x and label (which are soft)", x, s["label"])[:-1]


class Labels(NamedTuple):
    """The labels of a kernel as flat numbers, checked at each run.

    Attributes:
        values: int64 [N]. load: calls that fill them first, mostly none.
        check: callable: None where every label counts, else a mask [N] of those that do, the
            others being `ignore_index`, which may be one of the classes. Raises RunError with the
            first that is neither.
    """

    values: Any
    load: list[Call]
    check: Call


def label_numbers(k: KernelArgs) -> tuple[Any, list[Call]]:
    """The input `label` as `Labels.values`, and their `load`; nothing is checked."""
    samples = count(k.shape("x")[:-1])
    matrix, load = as_rows(k, k["label"], samples, 1)
    values = matrix[:, 0]
    if values.dtype != "int64":
        narrow = values
        values = k.scratch((samples,), "int64")
        # One integer type for all kernels, and `bind_labels` reads it as unsigned numbers of 8
        # bytes.
        load = [*load, partial(k.xp.copyto, values, narrow, casting="unsafe")]
    return values, load


def bind_labels(k: KernelArgs, classes: int) -> Labels:
    """The input `label` of an operator whose x has so many `classes`."""
    values, load = label_numbers(k)
    ignored = k.attrs["ignore_index"]
    is_class = 0 <= ignored < classes
    if k.xp is not np and values.size and classes:
        return Labels(values, load, _noted(k, values, classes))
    # Seen as unsigned numbers negative labels are the largest: one pass checks both bounds.
    greatest = values.view("u8").max

    def check() -> Any:
        # Nearly always so. Then there is no mask, and kernels skip all that it costs.
        if greatest() < classes:
            return values != ignored if is_class else None
        valid = (values >= 0) & (values < classes)
        bad = ~valid & (values != ignored)
        if bad.any():
            at = int(bad.argmax())
            raise RunError(bad_label(k, classes)(at, int(values[at])))
        return valid & (values != ignored) if is_class else valid

    # The largest of no labels does not exist.
    return Labels(values, load, check if values.size else _nothing_to_check)


def _nothing_to_check() -> None:
    return None


def bad_label(k: KernelArgs, classes: int) -> Explain:
    """The message about a label that is no class."""
    op, describe = k.op, k.describe
    return lambda at, label: describe(_bad_label(op, classes, at, label))


def _bad_label(op: OperatorView, classes: int, at: int, label: int) -> str:
    name = op.inputs["label"][0]
    return f"label {name!r} holds {label} at sample {at}, want 0 .. {classes - 1}"


def refuse_labels(op: OperatorView, classes: int, ignored: int, arrays: Mapping[str, Any]) -> None:
    """Raise the error of the first label that is neither a class nor `ignored`."""
    labels = arrays[op.inputs["label"][0]].reshape(-1)
    bad = ((labels < 0) | (labels >= classes)) & (labels != ignored)
    if bad.any():
        at = int(bad.argmax())
        raise RunError(describe_by(op, arrays, _bad_label(op, classes, at, int(labels[at]))))


def _noted(k: KernelArgs, values: Any, classes: int) -> Call:
    """As `Labels.check` on a GPU, which is not asked: the mask is always there."""
    # Without a GPU it is not needed.
    from ...framework.fusion.cuda.device_kernels import cuda_text, elementwise

    valid = k.scratch(values.shape, bool)
    note = k.note("label", bad_label(k, classes))
    numbers = (np.int64(n) for n in (values.size, classes, k.attrs["ignore_index"]))
    given = values, valid, note, *numbers
    fill = elementwise(k.xp, cuda_text("labels"), "check_labels", np.float32, values.size, given)

    def check() -> Any:
        fill()
        return valid

    return check
