"""Kinds that work element by element, with broadcasting, and softmax."""

from __future__ import annotations

from ..nodes import rules
from ..nodes.attributes import AttributeSpec
from ..nodes.kind import RANDOM_FIELDS, RANDOM_STATE, standard

for _name, _ndl in [
    ("Abs", ()),
    ("Cosine", ("Cos",)),
    ("Exp", ()),
    ("Floor", ()),
    ("Log", ()),
    ("Negate", ()),
    ("Reciprocal", ()),
    ("RectifiedLinear", ("ReLU",)),
    ("Sigmoid", ()),
    ("Sin", ()),
    ("Sqrt", ()),
    ("Tanh", ()),
    ("Softmax", ()),
    ("LogSoftmax", ()),
    ("Hardmax", ()),
]:
    standard(_name, 1, rules.unary, ndl=_ndl)
_DROPOUT = {"dropoutRate": AttributeSpec("float", 0.0), **RANDOM_STATE}
standard("Dropout", 1, rules.unary, attributes=_DROPOUT, file_fields=RANDOM_FIELDS)
standard("Pass", 1, rules.unary, ndl=None)

for _name in (
    "Plus",
    "Minus",
    "LogPlus",
    "Equal",
    "NotEqual",
    "Less",
    "LessEqual",
    "Greater",
    "GreaterEqual",
):
    standard(_name, 2, rules.elementwise)
_PRODUCTS = ("ColumnElementTimes", "RowElementTimes", "Scale")  # older names of the same product
standard("ElementTimes", 2, rules.elementwise, aliases=_PRODUCTS, ndl=_PRODUCTS)
standard("If", 3, rules.elementwise)
standard("Clip", 3, rules.elementwise)
