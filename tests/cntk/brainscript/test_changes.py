"""Changes of records, strings and nodes by their classes, in the redesigned language."""

import pytest

from mistakes.cntk import redesigned
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import build_network
from opscope.cntk.brainscript.language.formatter import format_text
from opscope.cntk.brainscript.language.parser import parse_members
from opscope.cntk.brainscript.language.printer import print_members
from opscope.cntk.models.v1 import read_model, write_model
from opscope.cntk.network.initialize import initialize
from opscope.framework.base.errors import FormatError, OpscopeError
from redesigned_files import read, sgd, value

# --- changes of records

CHANGES = [
    ("[ a = [ b = 1 ; c = b + 1 ] ; a.b = 2 ].a.c", 3),
    ("[ a = [ b = 1 ; c = [ d = b ] ] ; a.b = 2 ; a.c.d = 5 ; r = a.b * 10 + a.c.d ].r", 25),
    ("([ a = [ x = 1 ; y = x ] ; b = a.y ] + [ a.x = 7 ]).b", 7),
    ("([ a = [ x = 1 ] ] with [ a.x = 7 ]).a.x", 7),
    ("([ a = [ x = 1 ] ; n = 3 ] + ([ a.x = n ] + [ n = 4 ])).a.x", 4),
    # through functions, conditions and names
    ("[ f (n) = [ x = n ; y = x * 2 ] ; a = f (3) ; a.x = 5 ].a.y", 10),
    ("[ f (n) = if n > 0 then [ x = n ] else [ x = 0 ; z = x ] ; a = f (0) ; a.x = 8 ].a.z", 8),
    ("[ base = [ x = 1 ; y = x ] ; one = base ; one.x = 5 ; r = one.y * 10 + base.y ].r", 51),
    ("[ base = [ x = 1 ] ; a = base + [ y = x ] ; a.x = 5 ].a.y", 5),
    ("[ all = [ base = [ x = 1 ; y = x ] ] ; a = all.base ; a.x = 5 ].a.y", 5),
    # names are those of the record first, as for +; then those of the place
    ("[ s = 7 ; a = [ b = 1 ; s = 2 ] ; a.b = s ; z = (a + [ c = 2 ]).b ].z", 2),
    ("[ s = 7 ; a = [ b = 1 ; s = 2 ] ; a.b = s ; z = (a + [ s = 3 ]).b ].z", 3),
    ("[ s = 7 ; a = [ s = 2 ; i = [ b = 1 ] ] ; a.i.b = s ; z = a.i.b ].z", 2),
    ("[ f (n) = base + [ i.b = n ] ; base = [ i = [ b = 1 ; c = b ] ] ; z = f (6).i.c ].z", 6),
    ("[ a = [ b = [ c = 1 ] ] ; a.d = 5 ; a.b.c = d ].a.b.c", 5),
    # the last one counts
    ("[ a = [ b = 1 ] ; a.b = 2 ; c = a ; c.b = 3 ; z = a.b * 10 + c.b ].z", 23),
    # what is not asked for does not count
    ("[ a = [ b = Fail ('no') ; c = 1 ] ; a.b = 2 ; z = a.b + a.c ].z", 3),
    ("[ a = [ b = 1 ; c = 2 ] ; a.b = Fail ('no') ].a.c", 2),
    # delete
    ("([ a = 1 ; b = 2 ] + [ a = delete ]).b", 2),
    ("[ a = 9 ; r = ([ a = 1 ; b = a ] + [ a = delete ]).b ].r", 9),
    ("([ a = [ x = 1 ; y = 2 ] ] + [ a.x = delete ]).a.y", 2),
    ("([ a = [ x = 1 ; y = 2 ] ] - [ a.x = 0 ]).a.y", 2),
    ("[ base = [ a = 1 ] ; r = (base + (if true then [ a = delete ; c = 4 ] else [])).c ].r", 4),
]


@pytest.mark.parametrize(("text", "wanted"), CHANGES, ids=[text for text, _ in CHANGES])
def test_changes(text, wanted):
    assert value(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("([ a = 1 ] + [ a = delete ]).a", "t:1:30: unknown identifier 'a'"),
        ("[ a = [ x = 1 ] ; a.x = delete ].a.x", "t:1:36: unknown identifier 'x'"),
        ("[ name = 1 ] + [ nam = delete ]", "t:1:24: there is no member 'nam' to delete (did you"),
        ("[ a = delete ].a", "t:1:7: delete is for records that change others"),
        ("[ a = 5 ; a.x = 1 ].a", "t:1:17: there is no record to look into for 'x', but a number"),
        (
            "[ a = [ name = 1 ] ; a.nam.e = 1 ].a",
            "no member 'nam' to look into (did you mean name?)",
        ),
        ("new Dump [ b.x = 1 ]", "t:1:18: there is no member 'b' to look into"),
        ("(new Dump [ a = 1 ]) + [ b.x = 1 ]", "there is no member 'b' to look into"),
        ("[ x = Input (2) ; a = if x then x else x ; a.y = 1 ].a", "but a ComputationNode"),
        ("[ a = nothing ; a.y = 1 ].a", "t:1:7: unknown identifier 'nothing'"),
        ("[ r = [ b = 1 ] ; a = r.c ; a.y = 1 ].a", "t:1:25: unknown identifier 'c'"),
        ("[ a = b ; b = c ; c = b ; a.x = 1 ].a", "circular reference"),
        ("[ a = a ; a.x = 1 ].a", "circular reference"),
        ("[ f (n) = f (n + 1) ; a = f (1) ; a.x = 1 ].a", "more than 20000 nested"),
        ("[ a.b = 1 ; a.b = 2 ]", "'a.b' is defined twice in one record"),
    ],
)
def test_wrong_changes(text, message):
    with pytest.raises(FormatError) as caught:
        value(text)
    assert message in str(caught.value)


def test_a_change_reaches_a_network_before_it_is_made():
    text = """
    sizes = [ n = Fail ("say what n is") ; x = Input (n) ]
    make (f) = new NDL (sizes + [ z = f (x) ])
    actions = e
    e = new EditAction [ net = make (Sigmoid) ; do = Dump (net, "a.txt") ]
    e.net.n = 9
    """
    ((_, network, _),) = read(text)[0].actions[0].steps
    assert network.find("x").attributes["shape"] == (9,)
    ((_, network, _),) = read(text, {"e.net.n": "(3 * 4)"})[0].actions[0].steps
    assert network.find("x").attributes["shape"] == (12,)


def test_a_whole_file_can_be_changed():
    text = redesigned().replace("train = new TrainAction", "train=TrainAction")
    changes = "[ train.optimizer.maxEpochs = 6 ; stderr = 'log' ]"
    experiment, _ = read(f"new CNTK [ {text} ] + {changes}", {"stderr": "other"})
    assert sgd(experiment).int("maxEpochs") == 6 and experiment.settings["stderr"] == "other"
    with pytest.raises(FormatError, match="no member 'trian' to look into .did you mean train"):
        read(f"new CNTK [ {text} ] + [ trian.optimizer.maxEpochs = 6 ]")


OPTIMIZERS = {
    "a function": "optimizer = make (256)",
    "new X (base + [...])": "optimizer = new SGDOptimizer (base + [ maxEpochs = 5 ])",
    "new X (function)": "optimizer = new SGDOptimizer (record (5))",
    "a condition": "optimizer = if 1 < 2 then make (3) else new SGDOptimizer base",
    "an edited object": "optimizer = make (3) + [ maxEpochs = 6 ]",
    "an object elsewhere": "optimizer = shared",
    "outside of the action": "",
}


@pytest.mark.parametrize("written", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("in_file", [False, True])
def test_changes_reach_through(written, in_file):
    text = redesigned()
    line = next(line for line in text.split("\n") if "new SGDOptimizer" in line)
    text = (
        text.replace(line, written)
        + """
    base = [ minibatchSize = 32 ; learningRatesPerMB = rate ; rate = 0.5 ]
    record (n) = base + [ maxEpochs = n ]
    make (size) = new SGDOptimizer [ minibatchSize = size ; learningRatesPerMB = 1 ; maxEpochs = 9 ]
    shared = make (5)
    """
    )
    name = "train.optimizer"
    if not written:
        text, name = text + "\noptimizer = make (7)\n", "optimizer"
    overrides = {f"{name}.maxEpochs": "77", f"{name}.learningRatesPerMB": "0.25:0.125"}
    if in_file:
        text += f"\n{name}.maxEpochs = 70 + 7\n{name}.learningRatesPerMB = 0.25 : 0.125\n"
    section = sgd(read(text, {} if in_file else overrides)[0])
    assert section.int("maxEpochs") == 77
    assert list(section.array("learningRatesPerMB").floats()) == [0.25, 0.125]


def test_text_with_changes_is_printed_and_laid_out():
    text = "a = [\n  b=[ c=1 ]\n]\na.b.c=2\nd = e + [ f=delete ; with=3 ]\n"
    tree = parse_members(Source("t", text))
    assert parse_members(Source("t", print_members(tree))) == tree
    assert "a.b.c = 2\n" in format_text(text, "t")


# --- strings and nodes

STRINGS = [
    ("Format ('%.2f', 3.14159)", "3.14"),
    ("Format ('epoch %03d of 9', 7)", "epoch 007 of 9"),
    ("Format ('100%% of %s', 'all')", "100% of all"),
    ("Format ('%5s|', 'ab')", "   ab|"),
    ("Format ('%lx', 255)", "ff"),
    ("Str (12)", "12"),
    ("String [ from='abcb' ; replacing='b' ; with='xy' ]", "axycxy"),
    ("[ R(s,a,b) = String [ from=s ; replacing=a ; with=b ] ; r = R('x','x','y') ].r", "y"),
    ("Replace ('a-b', '-', '+')", "a+b"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), STRINGS)
def test_strings(text, wanted):
    assert value(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Format (0.8, '.2')", "t:1:1: 'format' must be a string, not a number, in Format (...)"),
        ("Format ('.2', 0.8)", "t:1:1: a format is a text with one % of sprintf"),
        ("Format ('%d %d', 1)", "a text with one % of sprintf, such as '%.2f', not '%d %d'"),
        ("Format ('%d', 1.5)", "%d takes an integer, not 1.5"),
        ("Format ('%f', 'a')", "%f takes a number, not a string"),
        ("String [ from = 'a' ; replacing = 'b' ]", "String needs the parameter 'with'"),
    ],
)
def test_wrong_strings(text, message):
    with pytest.raises(FormatError) as caught:
        value(text)
    assert message in str(caught.value)


def test_what_fails_in_the_library_is_told_where_it_is_called():
    with pytest.raises(FormatError) as caught:
        build_network("{\n  f (t) = Substr (t, 0, 1)\n  x = Input {2, tag = f (3)}\n}", "net.bs")
    text = str(caught.value)
    assert text.startswith("net.bs:2:11: expected a string, not a number, in Substr (...)\n")
    assert "in f (...), called at net.bs:3:23" in text and "library/" not in text


def test_a_network_builder_keeps_the_order_of_cntk():
    network = build_network("{ x = Input {3, tag = Format (1.5, '.2')} }")
    assert network.find("x").tags == ["1.50"]


def test_a_node_by_its_class():
    text = """
    actions = e
    e = new EditAction [ do = Dump (new NDL [
        a = Input (3) ; b = Parameter (3)
        z = new ComputeNode [ class = "Plus" ; arg1 = a ; arg2 = b ]
        s = new ComputeNode [ class = "RowStack" ; arg1 = z ; arg2 = a ; axis = 1 ]
        d = new ComputeNode [ class = "PastValue" ; arg1 = y ; dims = 3 ; timeStep = 2 ]
        y = Sigmoid (d + a)
    ], "a.txt") ]
    """
    experiment, told = read(text)
    network = experiment.actions[0].steps[0][1]
    network.validate()
    assert [n.name for n in network.find("z").inputs] == ["a", "b"]
    assert network.find("s").shape == (6,)
    assert network.find("d").inputs[0].name == "y"
    assert network.find("d").attributes["timeStep"] == 2 and not told


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("arg1 = Input (2)", "ComputeNode needs the parameter 'class'"),
        ("class = 'Plus' ; arg2 = Input (2)", "t:1:43: there is no 'arg1' before 'arg2'"),
        ("class = 'Pluss' ; arg1 = Input (2)", "did you mean Plus"),
        ("class = 'Plus' ; arg1 = Input (2)", "t:1:1: Plus"),
    ],
)
def test_wrong_nodes(inside, message):
    with pytest.raises(OpscopeError) as caught:
        value(f"new ComputeNode [ {inside} ]")
    assert message in str(caught.value)


def test_names_in_edited_models_are_those_of_the_record(tmp_path):
    network = build_network("{ features = Input {4} ; h = DenseLayer {3} (features) }")
    network.validate()
    initialize(network)
    write_model(network, tmp_path / "old.dnn")
    text = f"""
    actions = Add
    Add = new EditAction [
        model = LoadModel ("{tmp_path}/old.dnn")
        scale = Parameter (5, 1)
        EDITS
        do = SaveModel (newModel, "{tmp_path}\\new.dnn")
    ]
    """
    record = "[ out = SBFF (model.h, 5, model.h.OUTDIM) ; z = BFF (out.Eh .* scale, 2, 5).z ]"
    for edits in (
        f"newModel = EditModel (model, {record})",
        f"items = {record}\nnewModel = EditModel (model, items)",
    ):
        (action,) = read(text.replace("EDITS", edits))[0].actions
        action.run()
        names = {*read_model(tmp_path / "new.dnn").nodes}
        assert not [name for name in names if name.startswith(("CNTK", "Add"))]
        assert {"features", "h", "z", "z.W", "z.B", "out.Eh", "out.Eh._.W", "scale"} <= names
