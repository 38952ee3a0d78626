"""NDL: parsing, names, macros, forward references, special nodes, and its errors."""

import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.cntk.base.text import Source
from opscope.cntk.config import parse_config
from opscope.cntk.ndl import Evaluator, build_ndl_section, format_script, parse_ndl
from opscope.cntk.ndl.syntax import Array, Call, Option, Word
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import CycleError, OpscopeError


def evaluate(text, network=None, validate=False):
    evaluator = Evaluator(network if network is not None else Network())
    evaluator.run(parse_ndl(Source("net.ndl", text).whole()))
    evaluator.connect()
    if validate:
        with evaluator.explained():
            evaluator.network.validate()
    evaluator.finish()
    return evaluator


def nodes(text):
    network = evaluate(text).network
    return {n.name: [n.operation, *(i.name for i in n.inputs)] for n in network.nodes.values()}


def error(text, validate=False):
    with pytest.raises(OpscopeError) as caught:
        evaluate(text, validate=validate)
    return str(caught.value)


class TestParsing:
    def test_calls_options_and_arrays(self):
        script = parse_ndl('[ c = Convolution(W, x, {5, 5}, stride={2,2}, tag="a b") ]')
        (call,) = [s.value for s in script.assignments]
        assert isinstance(call, Call)
        assert [type(p) for p in call.parameters] == [Word, Word, Array]
        assert [type(o) for o in call.options] == [Option, Option]
        assert str(call) == 'Convolution(W, x, {5, 5}, stride={2, 2}, tag="a b")'

    def test_colons_and_repeats_separate_parameters(self):
        script = parse_ndl("x = Input(28:2*3)")
        assert [p.string for p in script.assignments[0].value.parameters] == ["28", "2", "2", "2"]

    def test_three_ways_to_write_a_macro(self):
        script = parse_ndl("[\nA(x) = Sigmoid(x)\nB(x)\n{ y = A(x) }\nC(x, s=1) = [ y = B(x); ]\n]")
        assert [(m.name.string, m.one_line) for m in script.macros] == [
            ("A", True),
            ("B", False),
            ("C", True),
        ]
        assert script.macros[2].names() == ["x", "s"]

    def test_printed_text_parses_to_the_same(self):
        text = "[ M(a, b=2) = { c = Plus(Times(a, b), {1,2}) } ; d = M(x, b=3); e = (d:f) ]"
        printed = format_script(parse_ndl(text))
        assert format_script(parse_ndl(printed)) == printed
        assert "c = Plus(Times(a, b), {1, 2})" in printed


class TestNetworks:
    def test_dot_paths_are_node_names(self):
        text = """[
            FF(x, w) { t = Times(w, x) ; s = Sigmoid(t) }
            Twice(x, w) { a = FF(x, w) ; b = FF(a.t, w) }
            f = Input(2) ; W = Parameter(2, 2)
            L = Twice(f, W) ; out = Tanh(L.b.t) ; ret = Tanh(L)
        ]"""
        found = nodes(text)
        assert found["L.b.t"] == ["Times", "W", "L.a.t"]
        assert found["out"] == ["Tanh", "L.b.t"]
        assert found["ret"] == ["Tanh", "L.b.s"]

    def test_a_macro_returns_what_has_its_name(self):
        found = nodes("[ M(x) { M = Exp(x) ; y = Log(x) }\n f = Input(1); z = Abs(M(f)) ]")
        assert found["z"][0] == "Abs"
        assert found[found["z"][1]] == ["Exp", "f"]

    def test_forward_reference_through_a_delay(self):
        found = nodes("d = PastValue(2, s)\nf = Input(2)\ns = Plus(f, d)")
        assert found["d"] == ["PastValue", "s"]

    def test_the_same_macro_twice_does_no_harm(self):
        found = nodes("[ A(x) { y = Exp(x) }\nA(x) [ y=Exp(x); ]\nf = Input(1) ; z = A(f) ]")
        assert found["z.y"] == ["Exp", "f"]

    def test_nested_calls_as_parameters_of_macros(self):
        found = nodes("[ N(x) = Log(x)\n f = Input(3) ; y = N(Exp(f)) ; z = N(N(f)) ]")
        inner = next(n for n, v in found.items() if v[:2] == ["Exp", "f"])
        assert ["Log", inner] in found.values()

    def test_default_and_named_parameters(self):
        text = """[
            Layer(x, rows, range=3, bias=0) { W = Parameter(rows, 2, initValueScale=range)
              b = Parameter(rows, init=fixedValue, value=bias) ; y = Plus(Times(W, x), b) }
            f = Input(2) ; one = Layer(f, 4) ; two = Layer(f, rows=5, bias=7)
        ]"""
        network = evaluate(text).network
        assert network.find("one.W").attributes["initValueScale"] == 3
        assert network.find("two.b").attributes["value"] == 7
        assert network.find("two.W").attributes["shape"] == (5, 2)

    def test_options_given_to_a_macro_are_seen_inside(self):
        text = "[ M(x) { W = Parameter(2, 2, value=v, init=fixedValue) ; y = Times(W, x) }\n"
        text += "f = Input(2) ; m = M(f, v=5) ]"
        assert evaluate(text).network.find("m.W").attributes["value"] == 5

    def test_tags_and_special_nodes(self):
        text = """[ f = Input(2, tag="feature") ; l = Input(2) ; W = Parameter(2, 2)
            M(x, w) = Times(w, x)
            o = M(f, W, tag=output)
            ce = CrossEntropyWithSoftmax(l, o, tag=criteria)
            err = ErrorPrediction(l, o, tag="eval")
            LabelNodes = (l) ; OutputNodes = (ce, o) ; q = Tanh(f, tag=multiSeq) ]"""
        groups = evaluate(text, validate=True).network.groups
        assert {g: [n.name for n in v] for g, v in groups.items()} == {
            "feature": ["f"],
            "label": ["l"],
            "criterion": ["ce"],
            "evaluation": ["err"],
            "output": ["o.unnamed8", "ce"],
        }

    def test_a_second_name_renames_the_nodes_of_a_call(self):
        found = nodes("[ M(x) { z = Exp(x) }\n f = Input(2) ; ol = M(f) ; OutputNodes = ol ]")
        assert "OutputNodes.z" in found

    def test_seeds_count_named_random_parameters_in_order(self):
        seeds = count(5)
        for first in (5, 7):
            evaluator = Evaluator(Network(), seeds=seeds)
            evaluator.run(
                parse_ndl(
                    "a = Parameter(2, 2)\nb = Parameter(2, init=fixedValue)\n"
                    "c = Parameter(2, 2, init=Gaussian)\nd = Parameter(2, 2, randomSeed=9)\n"
                    "e = Times(Parameter(2, 2), a)"
                )
            )
            evaluator.connect()
            evaluator.finish()
            seen = {n.name: n.attributes for n in evaluator.network.nodes.values()}
            got = [seen[n]["randomSeed"] for n in "acd"]
            assert got == [first, first + 1, 9]
            assert seen["unnamed13"]["init"] == "fixedValue"
            assert "starts at 0" in evaluator.warnings[0]

    def test_names_of_the_network_are_known(self):
        network = Network()
        network.add("InputValue", "L1.x", shape=(2,))
        evaluator = evaluate("y = Tanh(L1.x)", network)
        assert evaluator.network.find("y").inputs[0].name == "L1.x"

    def test_unknown_options_are_reported_and_ignored(self):
        evaluator = evaluate("a = Parameter(2, 2, initValueScal=3)")
        assert "no option initValueScal" in evaluator.warnings[0]
        assert "did you mean initValueScale" in evaluator.warnings[0]


class TestSections:
    def test_sections_of_the_config(self):
        config = parse_config(
            "B = [ d = 3\nload = M\nrun = N\nM = [ F(x) = Exp(x) ]\n"
            "N = [ f = Input($d$, tag=feature) ; o = F(f, tag=output) ] ]\nd=3"
        )
        network = build_ndl_section(config.section("B")).network
        assert [n.shape for n in network.groups["output"]] == [(3,)]

    def test_files_and_overrides(self, tmp_path):
        (tmp_path / "m.ndl").write_text("G(x) = Exp(x)\n")
        (tmp_path / "n.ndl").write_text(
            "load = L\nrun = R1\nL = [ F(x) = G(x) ]\nR1 = [ a = Input(1) ]\n"
            "R2 = [ f = Input($dim$, tag=feature) ; y = F(f) ]\n"
        )
        config = parse_config(
            f"dim = 4\nB = [ networkDescription = {tmp_path}/n.ndl ; ndlMacros = {tmp_path}/m.ndl\n"
            "run = R2 ]"
        )
        built = build_ndl_section(config.section("B"))
        assert built.network.find("f").shape == (4,)
        assert len(built.network) == 2

    def test_a_network_without_features_is_refused(self):
        config = parse_config("B = [ run = N ; N = [ f = Input(3) ] ]")
        with pytest.raises(
            OpscopeError, match="Invalid network node definition for 'featureNodes'"
        ):
            build_ndl_section(config.section("B"))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("B = [ run = X ]", "names 'X', which is not another section"),
            ("B = [ x = 1 ]", "'networkDescription=filename' or 'run=sectionName' must exist"),
            ("B = [ networkDescription = no.ndl ]", "f:1:28: error opening file 'no.ndl'"),
            ("B = [ networkDescription = a+b ]", '"\\+" not allowed'),
        ],
    )
    def test_errors(self, text, message):
        with pytest.raises(OpscopeError, match=message):
            build_ndl_section(parse_config(text, "f").section("B"))


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("y = Tims(x)", "net.ndl:1:5: Undefined function or macro 'Tims' in Tims(x)"),
            ("y = Tims(x)", "did you mean Times"),
            ("x = Input(2)\ny = Tanh(z)", "net.ndl:2:10: Parameter name could not be resolved 'z'"),
            ("x = 1\nx = 2", "net.ndl:2:1: Symbol 'x' currently assigned to '1'"),
            ("Mean = Input(2)", "variable Mean is invalid, it is reserved"),
            ("[ Plus(a) = Tanh(a) ]", "'Plus' already defined"),
            ("[ A(x) = Tanh(x)\nA(y) = Exp(y) ]", "function 'A' already defined"),
            ("[ A(tanh) = Tanh(x) ]", "parameter tanh, which is also the name of a function"),
            ("[ A(x) ]", "Body of Macro missing: A"),
            ("foo", "does not contain an '=' sign: foo"),
            ("x = Input(two)", "two"),
            ("x = Tanh(3)", "written Constant(3)"),
            (
                "x = PastValue(2)",
                "PastValue takes 2 or 3 parameters, not 1; usage: PastValue(rows,",
            ),
            ("x = Parameter(2, init=normal)", "'init' must be one of the values of"),
            ("x = Parameter(2, init=fromFile)", "initFromFilePath must be set"),
            ("x = Input(2, tag=foo)", "Invalid group tag 'foo', must be one of feature"),
            ("FeatureNodes = (x)", "Invalid node 'x' as a(n) feature node"),
            ("x = Input(2)\nX2 = Plus(x, y=Input(1))", "takes 2 parameters, not 1"),
            ("a = b\nb = c\nc = a\nx = Tanh(a)", "stand for each other: a -> b -> c -> a"),
            ("a = a.b\nx = Tanh(a)", "stand for each other: a -> a"),
            ("[ M(x, y) = Exp(x)\n z = M(1) ]", "1 parameters provided, 2 expected in call to M"),
            ("x =", "no value given for 'x'"),
        ],
    )
    def test_message(self, text, message):
        assert message in error(text)

    def test_the_chain_of_macro_calls_is_shown(self):
        text = "[\nA(x) { y = Qqq(x) }\nB(x) { y = A(x) }\nf = Input(2)\nz = B(f)\n]"
        assert [line.strip() for line in error(text).splitlines() if "net.ndl" in line] == [
            "net.ndl:2:12: Undefined function or macro 'Qqq' in Qqq(x)",
            "in macro A, called at net.ndl:3:12",
            "in macro B, called at net.ndl:5:5",
        ]

    def test_wrong_shapes_inside_a_macro_show_the_call(self):
        text = "[\nA(x) { W = Parameter(2, 3) ; y = Times(W, x) }\nf = Input(4)\nz = A(f)\n]"
        shown = error(text, validate=True)
        assert "net.ndl:2:34" in shown
        assert "in macro A, called at net.ndl:4:5" in shown

    def test_endless_recursion_is_shown_as_a_chain(self):
        text = "[ A(x) { y = B(x) }\nB(x) { y = A(x) }\nf = Input(1) ; z = A(f) ]"
        with pytest.raises(CycleError, match="macro A calls itself: A -> B -> A"):
            evaluate(text)

    def test_doubling_macros_end_in_an_error(self):
        text = "[ M0(x) = Exp(x)\n"
        text += "".join(f"M{i}(x) {{ a = M{i - 1}(x) ; b = M{i - 1}(a) }}\n" for i in range(1, 30))
        start = time.process_time()
        assert "beyond the limit of 20000" in error(text + "f = Input(1) ; y = M29(f) ]")
        assert time.process_time() - start < 10

    @pytest.mark.parametrize(
        "text",
        [
            "x = " + "f(" * 100_000,
            "x = " + "Tanh(" * 500 + "y" + ")" * 500,
            "x = " + "{" * 900 + "}" * 900,
            "x = (1*2000000)",
            "[" + "".join(f"a{i} = a{i + 1}\n" for i in range(2000)) + "x = Tanh(a0) ]",
            "".join(f"M{i}(x) {{ y = M{i + 1}(x) }}\n" for i in range(200)) + "f = M0(1)",
            "".join(f"M{i}(x) {{ y = {'Tanh(' * 90}M{i + 1}(x){')' * 90} }}\n" for i in range(59))
            + "M59(x) = Tanh(x)\nf = M0(1)",
        ],
    )
    def test_depth_ends_in_an_error(self, text):
        assert error("[ " + text + " ]")

    @settings(max_examples=150, deadline=20000)
    @given(st.text(alphabet='aXT=[](){}":;,*# \n.-1', max_size=60))
    def test_any_text_is_read_or_refused(self, text):
        try:
            evaluate(text, validate=True)
        except OpscopeError:
            pass


WORDS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,6}", fullmatch=True)
NUMBERS = st.integers(0, 999).map(str)
STRINGS = st.text(alphabet="ab ,;:*={}/.", min_size=1, max_size=6).map(str.strip).filter(bool)
EXPRESSIONS = st.recursive(
    WORDS | NUMBERS,
    lambda inner: st.builds(
        "{}({})".format, WORDS, st.lists(inner, min_size=1, max_size=3).map(", ".join)
    ),
    max_leaves=6,
)
CALLS = st.builds(
    lambda name, items, options: f"{name}({', '.join([*items, *options])})",
    WORDS,
    st.lists(EXPRESSIONS, min_size=1, max_size=3),
    st.lists(st.builds('{}="{}"'.format, WORDS, STRINGS), max_size=2),
)
MACROS = st.builds(
    "{}({}) {{ {} = {} }}".format, WORDS, st.lists(WORDS, max_size=3).map(", ".join), WORDS, CALLS
)
STATEMENTS = st.builds("{} = {}".format, WORDS, CALLS | NUMBERS) | MACROS


@settings(max_examples=60, deadline=None)
@given(st.lists(STATEMENTS, max_size=5))
def test_print_and_parse(statements):
    tree = parse_ndl("[\n" + "\n".join(statements) + "\n]")
    assert len(tree.statements) == len(statements)
    printed = format_script(tree)
    assert format_script(parse_ndl(printed)) == printed


@settings(max_examples=60, deadline=20000)
@given(st.integers(0, 900))
def test_truncated_scripts_are_read_or_refused(length):
    text = """[
        # a comment
        Layer(x, outDim, inDim) {
            W = Parameter(outDim, inDim, init="uniform", initValueScale=12.0)
            b = Parameter(outDim)
            z = Plus(Times(W, x), b)
        }
        SigLayer(x, o, i) = [ lin = Layer(x, o, i) ; act = Sigmoid(lin.z) ]
        features = Input(2, tag="feature") ; labels = Input(2, tag=label)
        L1 = SigLayer(features, 5, 2) ; top = Layer(L1.act, 2, 5)
        d = PastValue(2, top.z, timeStep=1)
        ce = CrossEntropyWithSoftmax(labels, top.z, tag="criterion") ; OutputNodes = (top.z, d)
    ]"""
    try:
        evaluate(text[: length % (len(text) + 1)], validate=True)
    except OpscopeError:
        pass


def test_roi_pooling_takes_its_grid():
    text = "x = ImageInput(6, 4, 2, imageLayout=cudnn)\nr = Input(4, 3)\np = ROIPooling(x, r, 3, 2)"
    node = evaluate(text, validate=True).network.find("p")
    assert node.attributes["roiOutputShape"] == (3, 2)
    assert node.shape == (3, 2, 2, 3)
    assert "usage: ROIPooling(input, regions, width, height)" in error(text.replace(", 2)", ")"))
