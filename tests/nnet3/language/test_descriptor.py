"""Descriptors: both grammars, normal forms, printing, and evaluation on arrays of indexes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.nnet3.language.descriptor_parse import parse_descriptor, parse_general

NODES = ["input", "ivector", "a", "b", "tdnn1.affine"]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("a", "a"),
        (" Append( a,b ) ", "Append(a, b)"),
        ("Append(a)", "a"),
        ("Append(a, Append(b, input))", "Append(a, b, input)"),
        ("Sum(a, b, input)", "Sum(a, Sum(b, input))"),
        ("Sum(a)", "a"),
        ("Offset(Offset(a, 1, 2), -3)", "Offset(a, -2, 2)"),
        ("Offset(a, 0)", "a"),
        ("Offset(a, 1, 0)", "Offset(a, 1)"),
        ("Offset(a, 0, 1)", "Offset(a, 0, 1)"),
        ("Offset(Sum(a, b), 1)", "Sum(Offset(a, 1), Offset(b, 1))"),
        ("Offset(Append(a, b), 1)", "Append(Offset(a, 1), Offset(b, 1))"),
        ("Round(Failover(a, b), 3)", "Failover(Round(a, 3), Round(b, 3))"),
        ("Sum(Append(a, b), Append(b, a))", "Append(Sum(a, b), Sum(b, a))"),
        ("Scale(2.0, Offset(a, 1))", "Offset(Scale(2, a), 1)"),
        ("Scale(2.0, Scale(-0.25, a))", "Scale(-0.5, a)"),
        ("Scale(-1, Sum(a, b))", "Sum(Scale(-1, a), Scale(-1, b))"),
        ("Scale(1.0, a)", "a"),
        (
            "ReplaceIndex(Append(a, ivector), t, 0)",
            "Append(ReplaceIndex(a, t, 0), ReplaceIndex(ivector, t, 0))",
        ),
        ("Switch(a, Offset(b, 1))", "Switch(a, Offset(b, 1))"),
        ("Sum(a, Const(1.0, 512))", "Sum(a, Const(1, 512))"),
        ("IfDefined(Offset(tdnn1.affine, -3))", "IfDefined(Offset(tdnn1.affine, -3))"),
        ("Offset(IfDefined(a), 2)", "IfDefined(Offset(a, 2))"),
        ("Switch(Sum(a, b))", "Sum(Switch(a), Switch(b))"),
        ("Scale(0.1, a)", "Scale(0.1, a)"),
        ("Scale(0.123456789, a)", "Scale(0.12345679, a)"),
    ],
)
def test_normal_form(text, normal):
    descriptor = parse_descriptor(text, NODES)
    assert str(descriptor) == normal
    assert parse_descriptor(normal, NODES) == descriptor


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a descriptor, got 'the end'"),
        ("a b", "expected the end"),
        ("c", "no node 'c'"),
        ("inputt", "did you mean input"),
        ("Sum(a, b", "expected ',' or ')', got 'the end'"),
        ("Sum(a; b)", "neither a name nor a number"),
        ("Offset(a, 1.5)", "expected an integer"),
        ("Offset(a, 3000000000)", "32 bits"),
        ("Round(a, 0)", "positive integer"),
        ("ReplaceIndex(a, n, 0)", "expected 't' or 'x'"),
        ("Scale(x, a)", "finite number"),
        ("Scale(1e60, a)", "finite number"),
        ("Const(1, 0)", "positive integer"),
        ("Sum(Append(a, b), a)", "different numbers of terms"),
        ("Switch(Sum(a, b), a)", "has no normal form"),
        ("Switch(a, Sum(a, b))", "too deep"),
        ("Scale(2, IfDefined(a))", "no normal form"),
        ("Offset(Const(1, 2), 1)", "too deep"),
        ("IfDefined(Const(1, 2))", "Const inside IfDefined"),
        ("Failover(Const(1, 2), Const(2, 2))", "different constants"),
        ("Sum(a, Scale(2, a))", "only one is possible"),
        ("Scale(1e30, Scale(1e30, a))", "overflows"),
        ("Sum(" * 200 + "a" + ")" * 200, "nested deeper"),
        (f"Sum({', '.join(['a'] * 500)})", "500 terms"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(FormatError, match=message.replace("(", r"\(").replace(")", r"\)")):
        parse_descriptor(text, NODES)


def test_general_text_reads_back():
    text = "Sum(Offset(a, 1), Round(b, 2), ReplaceIndex(Switch(a, b), x, -1), Scale(0.5, a))"
    assert str(parse_general(text)) == text


def test_dims():
    dims = {"a": 3, "b": 3, "input": 5}
    assert parse_descriptor("Append(Sum(a, b), Const(1, 4), input)").dim(dims) == 12
    with pytest.raises(ShapeError, match="'a' has 3, 'input' has 5"):
        parse_descriptor("Sum(a, input)").dim(dims)
    with pytest.raises(ShapeError, match="switches"):
        parse_descriptor("Switch(a, input)").dim(dims)


def test_modulus():
    assert parse_descriptor("Append(Round(a, 4), Switch(a, b, a))").modulus() == 12
    assert parse_descriptor("ReplaceIndex(Switch(a, b), t, 0)").modulus() == 1


def test_map_to_input():
    nodes = {"a": 4, "b": 7}
    t, x = np.array([-3, -1, 0, 4]), np.array([0, 1, 0, 2])

    def places(text):
        (place,) = parse_descriptor(text).get_dependencies(t, x, nodes)
        return [np.broadcast_to(part, t.shape).tolist() for part in place]

    assert places("Offset(a, 2, 1)") == [[4] * 4, [-1, 1, 2, 6], [1, 2, 1, 3]]
    assert places("Round(a, 3)") == [[4] * 4, [-3, -3, 0, 3], [0, 1, 0, 2]]
    assert places("ReplaceIndex(a, t, 5)") == [[4] * 4, [5] * 4, [0, 1, 0, 2]]
    assert places("Switch(a, Offset(b, 1))") == [[7, 7, 4, 4], [-2, 0, 0, 4], [0, 1, 0, 2]]


def is_computable(descriptor, t, x, nodes, exists):
    """Which indexes are computable [N], and for each leaf which indexes use it [N].

    `exists` tells for a place (node numbers, t, x) which of its rows are there.
    """
    used = []
    places = descriptor.get_dependencies(t, x, nodes)
    ok = descriptor.combine((exists(place) for place in places), used)
    ok = np.broadcast_to(np.asarray(ok, bool), np.shape(t))
    return ok, [mask & ok for mask in used]


def test_is_computable():
    t, x = np.arange(4), np.zeros(4, int)
    descriptor = parse_descriptor("Sum(Failover(a, b), IfDefined(Offset(a, 1)))")
    there = {0: {0, 2}, 1: {0, 1}}  # node -> values of t

    def exists(place):
        node, when, _ = place
        return np.array([int(at) in there[node] for at in when])

    ok, used = is_computable(descriptor, t, x, {"a": 0, "b": 1}, exists)
    assert ok.tolist() == [True, True, True, False]
    assert used[0].tolist() == [True, False, True, False]
    assert used[1].tolist() == [False, True, False, False]
    assert used[2].tolist() == [False, True, False, False]


names = st.sampled_from(NODES)
integers = st.integers(-1000, 1000)
positive = st.integers(1, 50)
scales = st.floats(-4, 4, width=32).filter(lambda v: v != 0)
forwarding = st.recursive(
    names,
    lambda inner: st.one_of(
        st.tuples(inner, integers, integers).map(lambda v: f"Offset({v[0]}, {v[1]}, {v[2]})"),
        st.tuples(inner, positive).map(lambda v: f"Round({v[0]}, {v[1]})"),
        st.tuples(inner, st.sampled_from("tx"), integers).map(
            lambda v: f"ReplaceIndex({v[0]}, {v[1]}, {v[2]})"
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda v: f"Switch({', '.join(v)})"),
    ),
    max_leaves=4,
)
sums = st.recursive(
    st.one_of(forwarding, st.tuples(scales, names).map(lambda v: f"Scale({v[0]!r}, {v[1]})")),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(lambda v: f"Sum({', '.join(v)})"),
        st.tuples(inner, inner).map(lambda v: f"Failover({v[0]}, {v[1]})"),
        inner.map(lambda v: f"IfDefined({v})"),
        st.tuples(inner, integers).map(lambda v: f"Offset({v[0]}, {v[1]})"),
    ),
    max_leaves=5,
)


@given(st.lists(sums, min_size=1, max_size=3).map(lambda v: f"Append({', '.join(v)})"))
@settings(max_examples=150, deadline=None)
def test_print_parse_round_trip(text):
    assert str(parse_general(str(parse_general(text)))) == str(parse_general(text))
    try:
        descriptor = parse_descriptor(text, NODES)
    except FormatError:
        return
    assert parse_descriptor(str(descriptor), NODES) == descriptor


@given(
    st.one_of(
        st.text(),
        st.lists(
            st.sampled_from(
                [
                    "Append",
                    "Sum",
                    "Offset",
                    "Const",
                    "Scale",
                    "Switch",
                    "(",
                    ")",
                    ",",
                    "a",
                    "t",
                    "1",
                    "-2.5",
                    " ",
                ]
            )
        ).map("".join),
        st.binary().map(lambda b: b.decode("latin-1")),
    )
)
@settings(max_examples=300, deadline=None)
def test_anything_else_is_refused_with_our_error(text):
    try:
        parse_descriptor(text, NODES)
    except OpscopeError:
        pass
