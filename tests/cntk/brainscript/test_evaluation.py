"""Values of BrainScript expressions: what is computed, when, and what goes wrong."""

import math
import sys
import time

import pytest

from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import TYPES, evaluate, evaluate_text
from opscope.cntk.brainscript.language.parser import parse_expression
from opscope.cntk.brainscript.values import Array, Function, Record, Session, flatten, force
from opscope.framework.base.errors import FormatError, OpscopeError


def value(text):
    return evaluate_text(text)


def said(text):
    lines = []
    session = Session(TYPES, say=lines.append)
    evaluate(parse_expression(Source("test", text)), session)
    return lines


def failing(text):
    with pytest.raises(FormatError) as caught:
        evaluate_text(text, "test")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 + 2 * 3 - 4 / 8", 6.5),
        ("2 ** 10 % 7", 2),
        ("-2 ** 2", 4),
        ("1 / 0", math.inf),
        ("0 ** -1", math.inf),
        ("Abs (-1 / 0)", math.inf),
        ("Floor (-1 / 0)", -math.inf),
        ("(-10) ** 401", -math.inf),
        ("7 % -4", 3),
        ("'a' + \"b\"", "ab"),
        ("'a' < 'b' && 'b' == 'b'", True),
        ("true ^ true", False),
        ("1 <= 2 || Fail ('not reached')", True),
        ("false && Fail ('not reached')", False),
        ("!true || 1 != 1", False),
        ("if 1 > 2 then Fail ('no') else 'yes'", "yes"),
        ("[ a = 1 ; b = a + 1 ].b", 2),
        ("{ a = 1 ; b = [ c = a ] }.b.c", 1),
        ("[ a = 1 ; b = [ d = 2 ] ; c = b.a ].c", 1),  # names are looked for outwards
        ("[ f (x, y = 2) = x * y ; r = f (3) + f (3, y = 5) ].r", 21),
        ("[ f {x} = x ; r = f {3} ].r", 3),
        ("(x => y => x - y) (5) (3)", 2),
        ("[ f (x) = 10 * x ; g = f ; r = g (4) ].r", 40),
        ("[ add (a) = (b => a + b) ; three = add (3) ; r = three (4) ].r", 7),
        ("((x => x + 1) >> (x => x * 2)) (3)", 8),
        ("[ a = 2 ; f (x, s = a) = x * s ; r = [ a = 100 ; v = f (1) ].v ].r", 2),
        ("(array [2..5] (i => i * i))[4]", 16),
        ("[ x[i:0..4] = if i == 0 then 1 else 2 * x[i - 1] ; r = x[4] ].r", 16),
        ("[ x[i:1..3] (y) = i * y ; r = x[2] (10) ].r", 20),
        ("Length (1 : 2 : 3)", 3),
        ("Length ([| |])", 0),
        ("Length ('four')", 4),
        ("((1 : 2 : 3) << 1)[0]", 2),
        ("Length ((1 : 2) << 5)", 0),
        ("IsSameObject (None, BS.Constants.None)", True),
        ("IsArray (1 : 2) && IsDouble (1) && IsBool (true) && !IsDouble ('x')", True),
        ("Fac (5) + Min (1, 2) + Max (1, 2) + Sign (-3)", 122),
        ("Mod (-7, 3) + IntDiv (7, 2)", 2),
        ("Floor (2.7) + Ceil (2.2) + Round (2.5) + Abs (-1)", 9),
        ("Format (3, '') + Format (3.14159, '.2') + Format ('x', '3')", "33.14  x"),
        ("Format (1 : 'a', '')", "( 1\n  a )"),
        ("Format ([ b = 1 ; a = 2 ], '')", "[\n  a = 2\n  b = 1\n]"),
        ("Replace ('a.b.c', '.', '::')", "a::b::c"),
        ("Substr ('hello', 1, 3) + Substr ('hello', -2, -1)", "elllo"),
        ("Chr (65) + Str (7)", "A7"),
        ("Sequential (array [0..2] (i => (x => x + i))) (0)", 3),
        ("Sequential (x => -x) (1)", -1),
        ("Parallel ((x => x + 1) : (x => x * 3), a => a[0] + a[1]) (2)", 9),
        ("MergeBinary ((x => x + 1) : (x => x * 3), (a => a[0])) (1, 2)", None),
        ("[ a = 5 ; a1 = new Debug [ value = a ; enabled = false ; say = '' ] ].a1", 5),
    ],
)
def test_values(text, wanted):
    if wanted is None:
        assert "expects 1 positional" in failing(text)
    else:
        assert value(text) == wanted
        assert type(value(text)) is type(wanted) or isinstance(wanted, int)


def test_arrays_flatten_where_one_list_is_wanted():
    assert flatten(value("0.8 : Repeat (2, 0.2) : (1 : [| |])")) == [0.8, 0.2, 0.2, 1]
    assert flatten(value("_ConcatArrays (1 : 2, 3)")) == [1, 2, 3]
    assert flatten(value("_ForceResizeArray (4, 1 : 2)")) == [1, 2, 2, 2]
    assert flatten(value("_ForceResizeArray (1, 1 : 2)")) == [1]
    assert flatten(value("Append (1 : 2, 7)")) == [1, 2, 7]


def test_kinds_of_values():
    assert isinstance(value("[ a = 1 ]"), Record)
    assert isinstance(value("x => x"), Function)
    assert isinstance(value("array [0..1] (i => i)"), Array)


def test_only_what_is_needed_is_computed_and_only_once():
    lines = said("[ a = Print ('once') ; unused = Print ('never') ; r = (a : a : a)[2] ; s = a ].r")
    assert lines == ["once"]
    assert said("[ f (x) = 1 ; r = f (Print ('never')) ].r") == []
    assert said("Debug (1 : 2, say = 'array')") == ["array", "( 1\n  2 )"]
    assert said("Print (2.5, format = '.3')") == ["2.500"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("([ a = 1 ; b = a + 1 ] + [ a = 10 ]).b", 11),  # what depends on a change changes
        ("([ a = 1 ] + [ b = a + 1 ]).b", 2),
        ("([ a = 1 ; b = 2 ] with [ b = 3 ]).b", 3),
        ("[ x = 5 ; r = ([ a = 1 ; b = x + a ] - [ a = 0 ] + [ a = 4 ]).b ].r", 9),
        ("[ e (d) = [ a = d ] ; r = ([ a = 1 ; c = a * 2 ] + e (21)).c ].r", 42),
        ("([ f (x) = x + k ; k = 1 ] + [ k = 100 ]).f (1)", 101),
    ],
)
def test_records_can_be_edited(text, wanted):
    assert value(text) == wanted


def test_a_subtracted_member_is_gone():
    record = value("[ a = 1 ; b = 2 ] - [ a = 0 ]")
    assert list(record.members) == ["b"] and force(record.members["b"]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "test:1:1: unknown identifier 'nothing'"),
        ("Sigmiod (1)", "(did you mean Sigmoid?)"),
        ("[ aaa = 1 ].aab", "unknown identifier 'aab' (did you mean aaa?)"),
        ("Max (1)", "function expects 2 positional parameters (a, b), 1 were provided"),
        ("Fac (1, n = 2)", "function does not have an optional argument 'n'"),
        ("1 + 'a'", "test:1:3: operator + cannot be applied to these operands (number and string)"),
        ("1 && true", "operator && cannot be applied"),
        ("if 1 then 2 else 3", "test:1:4: expected a boolean, not a number"),
        ("1 (2)", "expected a function, not a number"),
        ("(1)[0]", "expected an array, not a number"),
        ("(1 : 2)[2]", "Index 2 out of bounds [0..1]"),
        ("(1 : 2)[0.5]", "expected an integer, not 0.5"),
        ("-'a'", "operator - cannot be applied to a string"),
        ("!1", "expected a boolean, not a number"),
        ("[ x = 'far' ; y = x.name ].y", "expected a record, not a string"),
        ("new Nothing []", "unknown runtime type 'Nothing'"),
        ("new ComputationNode 1", "expected a record, not a number"),
        ("new TensorShape []", "required parameter 'dims' not found"),
        ("new TensorShape [ dims = 1.5 ]", "expected an integer, not 1.5"),
        ("Fail ('my ' + 'message')", "my message"),
        ("array [1..2] (1)", "expected a function"),
        ("array [0..10000000] (i => i)", "an array: 10000001 elements, beyond the limit"),
        ("Format (1, '99999')", "is not the middle of a printf format"),
        ("Chr (-1)", "no character has the code -1"),
        ("Chr (55296)", "no character has the code 55296"),
        ("Mod (1, 0)", "Mod takes two integers, the second not 0"),
        ("Sequential (array [1..2] (i => (x => x))) (0)", "expected to begin with index 0"),
        (
            "[ s[i:0..40] = if i == 0 then 'x' else s[i-1] + s[i-1] ; r = s[40] ].r",
            "a string: 1048576 char",
        ),
    ],
)
def test_errors(text, message):
    assert message in failing(text)


def test_errors_show_the_chain_of_calls():
    text = "[\n  Inner (x) = x + ''\n  Outer (y) = Inner (y)\n  r = Outer (1)\n].r"
    lines = failing(text).split("\n")
    assert lines[0].startswith("test:2:17: operator + cannot be applied")
    assert [line for line in lines if line.startswith("  in ")] == [
        "  in Inner (...), called at test:3:15",
        "  in Outer (...), called at test:4:7",
    ]


def test_cycles_are_shown():
    message = failing("[ a = b + 1 ; b = c ; c = 2 * a ].a")
    assert "circular reference" in message
    assert "$.a -> $.a.PlusArgs" in message or "$.a -> $.b -> $.c -> $.a" in message
    assert message.count("computed at test:1:") == 3
    assert "circular reference" in failing("[ x[i:0..3] = x[3 - i] ; r = x[0] ].r")


@pytest.mark.parametrize(
    "text",
    [
        "[ f (x) = f (x) ; r = f (1) ].r",
        "[ f (x) = f (x + 1) + 1 ; r = f (1) ].r",
        "[ f (x) = [ y = f (x) ].y ; r = f (1) ].r",
        "[ x[i:0..30000] = if i == 0 then 0 else x[i - 1] + 1 ; r = x[30000] ].r",
        "(x => x (x)) (x => x (x))",
    ],
)
def test_endless_recursion_is_an_error(text):
    before = sys.getrecursionlimit()
    start = time.process_time()
    assert "more than 20000" in failing(text)
    assert time.process_time() - start < 5
    assert sys.getrecursionlimit() == before


def test_deep_recursion_works():
    assert value("[ f (n) = if n == 0 then 0 else 1 + f (n - 1) ; r = f (9000) ].r") == 9000


def test_endless_work_is_an_error(monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "steps=10000")
    assert "10001 steps, beyond the limit of 10000" in failing(
        "[ f (n) = if n == 0 then 1 else f (n - 1) + f (n - 1) ; r = f (40) ].r"
    )


def test_evaluation_fails_only_with_the_packages_errors():
    library = "Sequential DenseLayer BS.RNNs.LSTMBlock Convolution Slice Repeat Input".split()
    arguments = ["", "1", "'a'", "[]", "1 : 2", "x => x", "Input (3)", "None"]
    for function in library:
        for argument in arguments:
            for call in (f"{function} ({argument})", f"{function} {{{argument}}} ({argument})"):
                try:
                    evaluate_text(call)
                except OpscopeError:
                    pass
