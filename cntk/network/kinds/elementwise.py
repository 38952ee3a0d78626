"""Kinds that work element by element, with broadcasting."""

from __future__ import annotations

from .. import rules
from ._make import standard

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
    ("Dropout", ()),
]:
    standard(_name, 1, rules.unary, ndl=_ndl)
standard("Pass", 1, rules.unary, ndl=None)

for _name in ("Plus", "Minus", "LogPlus", "Equal", "NotEqual", "Less", "LessEqual"):
    standard(_name, 2, rules.unary)
for _name in ("Greater", "GreaterEqual"):
    standard(_name, 2, rules.unary)
standard(
    "ElementTimes",
    2,
    rules.unary,
    aliases=("ColumnElementTimes", "RowElementTimes", "Scale"),
    ndl=("ColumnElementTimes", "RowElementTimes", "Scale"),
)
standard("If", 3, rules.unary)
standard("Clip", 3, rules.unary)
