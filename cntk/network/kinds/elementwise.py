"""Kinds that work element by element, with broadcasting, and softmax."""

from __future__ import annotations

from ..nodes import rules
from ..nodes.attributes import AttributeSpec
from ..nodes.kind import RANDOM_FIELDS, RANDOM_STATE, standard

for _name, _ndl, _doc in [
    ("Abs", (), "The absolute value of each element."),
    ("Cosine", ("Cos",), "The cosine of each element, in radians."),
    ("Exp", (), "e to the power of each element."),
    ("Floor", (), ("The largest whole number that is not above each element; it has no gradient.")),
    (
        "Log",
        (),
        ("The natural logarithm of each element; -85.1 below 1e-37, so that it is finite."),
    ),
    ("Negate", (), "-x."),
    ("Reciprocal", (), "1 / x; 0 for 0."),
    ("RectifiedLinear", ("ReLU",), "max (0, x)."),
    ("Sigmoid", (), "1 / (1 + exp (-x))."),
    ("Sin", (), "The sine of each element, in radians."),
    ("Sqrt", (), "The square root of each element; 0 for numbers below 0."),
    ("Tanh", (), "The hyperbolic tangent of each element."),
    ("Softmax", (), "exp (x) by its sum over all elements of the sample."),
    ("LogSoftmax", (), "The logarithm of the softmax over all elements of the sample."),
    (
        "Hardmax",
        (),
        (
            "1 for the largest element of the sample (the first of several), else 0;"
            " it has no gradient."
        ),
    ),
]:
    standard(_name, 1, rules.unary, ndl=_ndl, reads="x", doc=_doc)
_DROPOUT = {
    "dropoutRate": AttributeSpec("float", 0.0, doc="probability of 0, where SGD does not set it"),
    **RANDOM_STATE,
}
standard(
    "Dropout",
    1,
    rules.unary,
    attributes=_DROPOUT,
    file_fields=RANDOM_FIELDS,
    reads="x",
    doc=(
        "While training, 0 with the probability `dropoutRate`, else x / (1 -"
        " rate); x otherwise. SGD's `dropoutRate` sets the rate of each epoch."
    ),
)
standard("Pass", 1, rules.unary, ndl=None, reads="x", doc="x itself, under another name.")

for _name, _doc in [
    ("Plus", "x + y."),
    ("Minus", "x - y."),
    ("LogPlus", "log (exp (x) + exp (y))."),
    ("Equal", "1 where x = y, else 0; it has no gradient, as all comparisons."),
    ("NotEqual", "1 where x and y differ, else 0."),
    ("Less", "1 where x < y, else 0."),
    ("LessEqual", "1 where x <= y, else 0."),
    ("Greater", "1 where x > y, else 0."),
    ("GreaterEqual", "1 where x >= y, else 0."),
]:
    standard(_name, 2, rules.elementwise, reads="x y", doc=_doc)
_PRODUCTS = ("ColumnElementTimes", "RowElementTimes", "Scale")  # older names of the same product
standard(
    "ElementTimes",
    2,
    rules.elementwise,
    aliases=_PRODUCTS,
    ndl=_PRODUCTS,
    reads="x y",
    doc=(
        "The product x y of each two elements; a number or a column times a"
        " matrix is the same product, for which CNTK had other names."
    ),
)
standard(
    "If",
    3,
    rules.elementwise,
    reads="condition yes no",
    doc="`yes` where `condition` is not 0, else `no`.",
)
standard("Clip", 3, rules.elementwise, reads="low high x", doc="max (low, min (high, x)).")
