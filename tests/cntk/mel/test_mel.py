"""MEL: parsing, every command, names and wildcards, in-line NDL, and its errors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.cntk.base.text import Source
from opscope.cntk.config import parse_config
from opscope.cntk.mel import Session, edit_section, format_mel, parse_mel, run_script
from opscope.cntk.mel.commands import command_names
from opscope.cntk.mel.syntax import Command, Embedded, Inline
from opscope.cntk.models.v1 import read_model, write_model
from opscope.cntk.ndl import Evaluator, parse_ndl
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import OpscopeError

NET = """
    features = Input(2, tag=feature) ; labels = Input(3, tag=label)
    L1.W = Parameter(4, 2, init=fixedValue, value=1) ; L1.b = Parameter(4, init=fixedValue)
    L1.t = Times(L1.W, features) ; L1.z = Plus(L1.t, L1.b) ; L1.y = Tanh(L1.z)
    OL.W = Parameter(3, 4, init=fixedValue, value=2) ; OL.t = Times(OL.W, L1.y)
    ce = CrossEntropyWithSoftmax(labels, OL.t, tag=criterion) ; OutputNodes = (OL.t)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the model `a.model`, which is the current one."""
    monkeypatch.chdir(tmp_path)
    evaluator = Evaluator(Network())
    evaluator.run(parse_ndl(NET))
    evaluator.connect()
    network = evaluator.network
    network.validate()
    initialize(network)
    write_model(network, "a.model")
    return tmp_path


def run(text, load=True):
    session = Session()
    text = f'm = LoadModel("a.model", format=cntk)\n{text}' if load else text
    run_script(session, parse_mel(Source("e.mel", text).whole()))
    return session


def network(text):
    session = run(text)
    return session.settle(session.default)


def inputs(net, name):
    return [node.name if node is not None else None for node in net.find(name).inputs]


def error(text, load=True):
    with pytest.raises(OpscopeError) as caught:
        run(text, load)
    return str(caught.value)


def test_parsing():
    text = 'm=LoadModel("a b", format=cntk)\nx = Tanh(y); Copy(L1.*, L2.*)\nn = [ a = 1 ]'
    script = parse_mel(text)
    assert [type(s) for s in script] == [Command, Inline, Command, Embedded]
    load, _, copy, _ = script
    assert load.target.string == "m"
    assert load.parameters[0].string == "a b"
    assert [p.string for p in copy.parameters] == ["L1.*", "L2.*"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.builds(
            "{}({})".format,
            st.sampled_from(command_names()),
            st.lists(
                st.from_regex(r"[A-Za-z$][A-Za-z0-9_.*$/]{0,7}", fullmatch=True)
                | st.sampled_from(['"a b"', "copy=value", 'x="p,q"', "-1"]),
                max_size=4,
            ).map(", ".join),
        )
        | st.sampled_from(["x = Plus(a, b, tag=feature)", "h = 5", "m = LoadModel(f)"]),
        max_size=5,
    )
)
def test_print_and_parse(statements):
    script = parse_mel("\n".join(statements))
    assert len(script.statements) == len(statements)
    printed = format_mel(script)
    assert format_mel(parse_mel(printed)) == printed


class TestModels:
    def test_the_first_model_is_the_default(self, folder):
        session = run('n = LoadModel("a.model")\nCreateModel()')
        assert session.default.name == "m"
        assert sorted(session.models) == ["default", "m", "n"]

    def test_names_may_be_cut_short(self, folder):
        session = run("CreateModelWithName(q) ; SetDefault(q) ; Unload(M, nobody)")
        assert session.default.name == "q"
        assert "nobody does not exist" in session.warnings[0]

    def test_save_and_load(self, folder):
        run('SaveModel(m, "b.model", format=cntk) ; SaveDefaultModel("c.model")')
        assert (folder / "b.model").read_bytes() == (folder / "a.model").read_bytes()
        assert (folder / "c.model").exists()

    def test_embedded_scripts_and_snippets(self, folder):
        (folder / "s.ndl").write_text("A = [ x = Input(2) ]\nB = [ y = Input(3) ; z = Tanh(y) ]\n")
        session = run("p = [ u = Input(5) ]\nLoadNDLSnippet(q, s.ndl, section=B)")
        assert list(session.models["p"].network.nodes) == ["u"]
        assert list(session.models["q"].network.nodes) == ["y", "z"]

    def test_dump(self, folder):
        run('Dump(m, "d.txt") ; DumpNode(L1.b, "n.txt", includeData=true)')
        assert "L1.t=Times ( L1.W , features )" in (folder / "d.txt").read_text()
        assert "ce" not in (folder / "n.txt").read_text()


class TestEdits:
    def test_a_layer_in_between_by_in_line_ndl(self, folder):
        net = network(
            "HDim = 4\nW2 = Parameter(HDim, HDim, init=fixedValue)\nt2 = Times(W2, L1.y)\n"
            "y2 = Tanh(t2)\nSetInput(OL.t, 1, y2)"
        )
        assert inputs(net, "t2") == ["W2", "L1.y"]
        assert inputs(net, "OL.t") == ["OL.W", "y2"]
        net.validate()
        assert net.find("W2").shape == (4, 4)

    def test_copy_with_wildcards_keeps_what_is_not_copied(self, folder):
        net = network("Copy(L1.*, L2.*)")
        assert inputs(net, "L2.t") == ["L2.W", "features"]
        assert inputs(net, "L2.z") == ["L2.t", "L2.b"]

    def test_copy_of_values_from_another_model(self, folder):
        net = network('n = LoadModel("a.model")\nCopy(n.OL.W, m.V, copy=value)\nUnloadModel(n)')
        assert (net.find("V").value == 2).all()

    def test_copy_sub_tree(self, folder):
        session = run("CreateModelWithName(n) ; CopySubTree(m.L1.y, n, new.)")
        net = session.models["n"].network
        assert inputs(net, "new.L1.t") == ["new.L1.W", "new.features"]
        assert len(net) == 6

    def test_copy_inputs_set_inputs_and_rename(self, folder):
        net = network(
            "Copy(L1.t, T)\nCopyInputs(L1.t, T)\nSetInputs(OL.t, OL.W, L1.z)\nRename(L1.*, A.*)"
        )
        assert inputs(net, "T") == ["A.W", "features"]
        assert inputs(net, "OL.t") == ["OL.W", "A.z"]
        assert "L1.z" not in net

    def test_remove_leaves_inputs_open(self, folder):
        net = network("Remove(ce, L1.b)")
        assert inputs(net, "L1.z") == ["L1.t", None]
        assert net.groups["criterion"] == []

    def test_properties(self, folder):
        net = network(
            "SetProperty(L1.*, learningRateMultiplier, 0.25)\n"
            "SetProperty(L1.b, needGradient, false)\n"
            "SetProperty(L1.y, output, true) ; SetProperty(ce, Criteria, false)\n"
            "SetPropertyForSubTree(OL.t, computeGradient, true)\nSetProperty(ce, MultiSeq, true)"
        )
        assert (net.find("L1.W").learning_rate, net.find("L1.b").learning_rate) == (1, 1)
        assert [n.name for n in net.groups["output"]] == ["OL.t", "L1.y"]
        assert net.groups["criterion"] == []

    def test_revise_parameter(self, folder):
        (folder / "v.txt").write_text("1 2\n3 4\n5 6\n7 8\n")
        net = network("ReviseParameter(L1.W, v.txt)")
        assert net.find("L1.W").value.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]

    def test_a_number_of_in_line_ndl_becomes_a_constant(self, folder):
        _, nodes = run("half = 0.5").find(Source("e", "half").whole())
        assert nodes[0].attributes["value"] == 0.5


class TestEditSection:
    def test_macros_variables_and_sections(self, folder):
        (folder / "m.ndl").write_text(
            "Layer(x, d) { W = Parameter(d, d, init=fixedValue)\ny = Times(W, x) }"
        )
        (folder / "e.mel").write_text(
            "load = L ; edit = E\nL = [ Twice(x, d) { a = Layer(x, d) ; b = Layer(a.y, d) } ]\n"
            'E = [ m = LoadModel("$old$", format=cntk)\nH$n$ = Twice(L1.y, 4)\n'
            "SetInput(OL.t, 1, H$n$)\n"
            'SaveModel(m, "$new$") ]'
        )
        config = parse_config(
            "n = 2\nEdit = [ editPath = e.mel ; ndlMacros = m.ndl ; old = a.model ; new = b.model ]"
        )
        edit_section(config.section("Edit"))
        net = read_model(folder / "b.model")
        assert inputs(net, "H2.b.y") == ["H2.b.W", "H2.a.y"]
        assert inputs(net, "OL.t") == ["OL.W", "H2.b.y"]

    def test_a_missing_script(self, folder):
        config = parse_config("Edit = [ editPath = no.mel ]", "f")
        with pytest.raises(OpscopeError, match="f:1:21: error opening file 'no.mel'"):
            edit_section(config.section("Edit"))


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("Sav(m)", "e.mel:2:1: Unknown Editor function Sav"),
            ("Renam(a)", "Valid parameters: Rename(oldNodeName, newNodeName)"),
            ("SaveModel(q, x)", "e.mel:2:11: Model q does not exist"),
            ("Tanh(q)", "Unknown Editor function Tanh"),
            ("SetInput(L1.q, 1, L1.W)", "could not find a symbol for L1.q (did you mean L1."),
            ("SetInput(L1.t, 5, L1.W)", "input 5 does not exist"),
            ("SetInput(L1.t, x, L1.W)", "invalid input string 'x'"),
            ("SetInput(L1.t, 0, L1.*)", "must have a single value input"),
            ("SetProperty(L1.t, color, 1)", "Invalid property, color, is not supported"),
            ("SetProperty(L1.t, output, maybe)", "boolean argument expected"),
            ("Copy(L1.t, L2.t, copy=some)", "valid values are: copyFlag=(all|value)"),
            ("Copy(L1.t, L2.t, depth=1)", "Invalid optional parameter depth"),
            ("Copy(L1.*, L2)", "stars at the same place"),
            ("Copy(L1.t, L1.t)", "copied to itself"),
            ("x = Foo(y)", "Undefined function or macro 'Foo'"),
            ("foo", "expecting function call, foo"),
            ("Remove(L1.b)\nSaveModel(m, x.model)", "L1.z"),
            ("ReviseParameter(L1.W, no.txt)", "e.mel:2:23: no.txt"),
            (
                'n = LoadModel("no.model")',
                "e.mel:2:16: error opening file 'no.model': No such file",
            ),
            ("x = ", "nothing stands right of the equals sign"),
            ("Rename(L1.t, L1.z)", "taken"),
        ],
    )
    def test_message(self, folder, text, message):
        assert message in error(text)

    def test_there_must_be_a_model(self, folder):
        assert "no model yet" in error("x = Tanh(y)", load=False)
        assert "none is named" in error("Remove(x)", load=False)

    @settings(max_examples=100, deadline=20000)
    @given(st.text(alphabet='aCopy=[](){}":;,*# \n.-1', max_size=60))
    def test_any_text_is_read_or_refused(self, text):
        try:
            run("CreateModel()\n" + text, load=False)
        except OpscopeError:
            pass
