"""Tokens, parser and printer of BrainScript."""

import copy
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.language import syntax
from opscope.cntk.brainscript.language.parser import parse_expression, parse_members
from opscope.cntk.brainscript.language.printer import print_expression, print_members
from opscope.cntk.brainscript.language.syntax import PRECEDENCE
from opscope.cntk.brainscript.language.tokens import KEYWORDS
from opscope.framework.base.errors import FormatError, OpscopeError

HERE = Path(__file__).parent
LIBRARY = HERE.parents[2] / "cntk" / "brainscript" / "library"
WHERE = (Source("test", ""), 0)


def parse(text):
    return parse_expression(Source("test", text))


def bracketed(text):
    """The text with all parentheses that the parser saw."""

    def show(e):
        match e:
            case syntax.Infix(operator=o, left=a, right=b):
                return f"({show(a)}{o}{show(b)})"
            case syntax.Unary(operator=o, operand=a):
                return f"({o}{show(a)})"
            case syntax.Array(items=items):
                return f"({':'.join(map(show, items))})"
            case syntax.Apply(function=f, arguments=a):
                return f"{show(f)}({','.join(map(show, a))})"
            case syntax.Access(record=r, name=n):
                return f"{show(r)}.{n}"
            case syntax.Index(array=a, index=i):
                return f"{show(a)}[{show(i)}]"
            case syntax.Lambda(parameters=p, body=b):
                return f"({','.join(p)}=>{show(b)})"
        return print_expression(e)

    return show(parse(text))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a+b*c", "(a+(b*c))"),
        ("a*b+c", "((a*b)+c)"),
        ("a-b-c", "((a-b)-c)"),
        ("a**b**c", "((a**b)**c)"),
        ("-a.b*c", "((-a.b)*c)"),
        ("-a[1](x)", "(-a[1](x))"),
        ("!a && b || c ^ d", "((((!a)&&b)||c)^d)"),
        ("a + b == c", "((a+b)==c)"),
        ("a:b+c:d", "(a:(b+c):d)"),
        ("(a:b):c", "(a:b:c)"),
        ("a:(b:c)", "(a:(b:c))"),
        ("f >> g >> h", "((f>>g)>>h)"),
        ("i => j => i*j", "(i=>(j=>(i*j)))"),
        ("2 .* x", "(2.*x)"),
        ("f {1} (x)", "f(1)(x)"),
        ("a with b + c", "((awithb)+c)"),
    ],
)
def test_operators_bind_as_in_cntk(text, wanted):
    assert bracketed(text) == wanted


def test_numbers_and_ranges():
    assert parse("array[0..3](i=>i)").last == parse("3")
    assert parse("1.5e-3").value == 0.0015 and parse(".5").value == 0.5
    assert parse("x[1.]").index.value == 1


def test_comments_and_strings():
    text = "a = 'x#y' # one\n/* two\n*/ b = \"//\" // three\nc = 1 /**/"
    record = parse_members(Source("test", text))
    assert {m.name: m.value.value for m in record.members} == {"a": "x#y", "b": "//", "c": 1}


def test_line_ends_mean_nothing():
    assert parse_members(Source("t", "a = 1 b =\n2")) == parse_members(Source("t", "a=1;b=2;"))


def test_macros_and_array_members():
    record = parse_members(Source("t", "f (a, b = 1) = a\ng{} = 1\nx[i:0..n-1] = i\nk = j => j"))
    f, g, x, k = (member.value for member in record.members)
    assert f.parameters == ("a",) and [m.name for m in f.optional] == ["b"]
    assert g.parameters == ()
    assert isinstance(x, syntax.Range) and x.initializer == k.__class__(
        *WHERE, ("i",), (), x.initializer.body
    )
    assert k.parameters == ("j",)


def test_a_class_without_new():
    assert parse("TrainAction [ a = 1 ]") == parse("new TrainAction [ a = 1 ]")
    assert isinstance(parse("x[a == 1]"), syntax.Index)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("x = 2 * * 3", "1:9", "operand expected, not '*'"),
        ("x = (1", "1:7", "')' expected, not end of the text"),
        ("x = [ a = 1", "1:12", "']' expected"),
        ("x = 'abc", "1:5", "string without its closing"),
        ("x = 1 /* no end", "1:7", "comment without its closing"),
        ("x = 1\nx = 2", "2:1", "'x' is defined twice"),
        ("x = if a then b", "1:16", "'else' expected"),
        ("f (1) = 2", "1:4", "a parameter must be an identifier"),
        ("f (a, a) = 2", "1:7", "two parameters are called 'a'"),
        ("x = f (a = 1, a = 2)", "1:15", "given twice"),
        ("x = 1 + 2 => 3", "1:11", "must be an identifier"),
        ("x = ?", "1:5", "unexpected character '?'"),
        ("x = new", "1:8", "identifier expected"),
        ("include 'missing.bs'", "1:1", "cannot find the included file"),
        ("include x", "1:1", "file name in quotes"),
    ],
)
def test_errors_have_a_place(text, place, message):
    with pytest.raises(FormatError) as caught:
        parse_members(Source("bad.bs", text), lambda name, source: None)
    first, line, caret = str(caught.value).split("\n")[:3]
    assert first.startswith(f"bad.bs:{place}: ") and message in first
    column = int(place.split(":")[1])
    assert caret == " " * (4 + column - 1) + "^"


def test_all_wrong_members_are_told():
    text = """
a = 2 * * 3
b = {
    c = f (1,
        x = )
    d = 1
    e = [ g = ]
}
h = if 1
i = 5
i = 6
j = "open
"""
    with pytest.raises(FormatError) as caught:
        parse_members(Source("bad.bs", text))
    errors = [caught.value, *caught.value.others]
    places = [str(error).split(": ")[0] for error in errors]
    assert places == [f"bad.bs:{p}" for p in ("2:9", "5:13", "7:15", "10:1", "11:1", "12:5")]


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 1_000_000,
        "x = " + "(" * 1_000_000,
        "x = " + "[a=" * 300_000,
        "x = " + "-" * 1_000_000 + "1",
        "x = " + "f(" * 500_000,
        "x = " + "if a then " * 100_000,
        "x = 1" + "+1" * 500_000,
        "x = a" + ".b" * 500_000,
        "x = f" + "(1)" * 300_000,
        "x = " + "i=>" * 300_000,
    ],
    ids=lambda text: text[4:10],
)
def test_endless_nesting_is_an_error(text):
    start = time.process_time()
    with pytest.raises(FormatError):
        parse_members(Source("deep", text))
    assert time.process_time() - start < 2


def test_long_arrays_are_fine():
    assert len(parse(":".join(["1"] * 50_000)).items) == 50_000


def test_includes(tmp_path):
    files = {
        "a": Source("a", "x = 1 include 'b' z = 3"),
        "b": Source("b", "y = 2"),
        "loop": Source("loop", "include 'loop'"),
        "bad": Source("bad", "v = 1\nw = *"),
    }

    def find(name, near):
        return files.get(name)

    record = parse_members(Source("top", "include 'a'\nlast = [ include 'b' ]"), find)
    assert [m.name for m in record.members] == ["x", "y", "z", "last"]
    assert str(record.members[1].location) == "b:1:1"
    with pytest.raises(FormatError, match="loop includes itself"):
        parse_members(Source("top", "include 'loop'"), find)
    with pytest.raises(FormatError, match="^bad:2:5: operand expected"):
        parse_members(Source("top", "include 'bad'"), find)


# --- print and parse again

names = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in KEYWORDS
)
numbers = st.floats(0, allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\"'"), max_size=6)


def node(kind, *parts):
    return st.builds(lambda *values: kind(*WHERE, *values), *parts)


def members(value):
    member = st.builds(lambda name, v: syntax.Member(*WHERE, name, v), names, value)
    return st.lists(member, max_size=3, unique_by=lambda m: m.name).map(tuple)


def extend(inner):
    several = st.lists(inner, max_size=3).map(tuple)
    infix = sorted(set(PRECEDENCE) - {":", "=>"})
    lambdas = node(syntax.Lambda, names.map(lambda n: (n,)), st.just(()), inner)
    return st.one_of(
        node(syntax.Record, members(st.one_of(inner, lambdas))),
        node(syntax.Array, several).filter(
            lambda a: not (a.items and isinstance(a.items[0], syntax.Array) and len(a.items) > 1)
        ),
        node(syntax.Range, inner, inner, lambdas),
        lambdas,
        node(syntax.Apply, inner, several, members(inner)),
        node(syntax.Access, inner, names),
        node(syntax.Index, inner, inner),
        node(syntax.Unary, st.sampled_from("+-!"), inner),
        node(syntax.Infix, st.sampled_from(infix), inner, inner),
        node(syntax.If, inner, inner, inner),
        node(syntax.New, names, inner),
    )


expressions = st.recursive(
    st.one_of(
        node(syntax.Number, numbers),
        node(syntax.String, texts),
        node(syntax.Boolean, st.booleans()),
        node(syntax.Identifier, names),
    ),
    extend,
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(expressions)
def test_what_is_printed_parses_to_the_same(expression):
    text = print_expression(expression)
    assert parse(text) == expression
    assert print_expression(parse(text)) == text


@pytest.mark.parametrize("path", sorted([*LIBRARY.glob("*.bs"), *HERE.glob("timit_simple.bs")]))
def test_files_print_and_parse(path):
    record = parse_members(Source(path.name, path.read_text()))
    again = parse_members(Source("printed", print_members(record)))
    assert again == record


@settings(max_examples=60, deadline=20000)
@given(st.binary(max_size=300))
def test_random_bytes_end_in_the_packages_errors(data):
    try:
        parse_members(Source("bytes", data.decode("latin-1")))
    except OpscopeError:
        pass


def test_damaged_files_end_in_the_packages_errors():
    generator = random.Random(7)
    text = (LIBRARY / "layers.bs").read_text()
    for _ in range(60):
        start = generator.randrange(len(text))
        damaged = (
            text[:start] + generator.choice(["", "]", "(", "'", "=", "/*"]) + text[start + 3 :]
        )
        try:
            parse_members(Source("damaged", damaged[: generator.randrange(len(text))]))
        except OpscopeError:
            pass


@pytest.mark.parametrize(
    "text",
    [
        " + ".join(["x"] * 3900),
        "-" * 1900 + "x",
        "(" * 1900 + "x" + ")" * 1900,
        "f (" * 900 + ")" * 900,
    ],
    ids=["operators", "signs", "brackets", "calls"],
)
def test_deep_trees_are_copied(text):
    """Copies of what the parser takes were as many calls deep."""
    tree = parse(text)
    twin = copy.deepcopy(tree)
    assert print_expression(twin) == print_expression(tree) and twin is not tree
    one, two = tree, twin
    while below := list(one.children()):
        assert one is not two and type(one) is type(two)
        assert one.source is two.source and one.at == two.at
        one, two = below[0], next(two.children())


def test_a_copy_has_all_parts_and_none_of_the_nodes():
    text = 'a = [ b = 1 ; c (x, y = 2) = x + y ; d[i:1..3] = if i then "s" else {k = true} ]'
    tree = parse_members(Source("test", text))
    twin = copy.deepcopy(tree)
    assert twin == tree and repr(twin) == repr(tree)
    before, after = ({id(node) for node in _nodes(members)} for members in (tree, twin))
    assert len(before) == len(after) > 10 and not before & after
    shared = tree.members[0].value
    one, two = copy.deepcopy([shared, shared])
    assert one is two is not shared


def _nodes(tree):
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += [node.value] if isinstance(node, syntax.Member) else node.children()
        stack += getattr(node, "members", ())
