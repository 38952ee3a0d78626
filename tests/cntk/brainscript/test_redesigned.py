"""The redesigned language of 2015: changes of records, classes, overrides, laziness, places."""

import os
from pathlib import Path

import pytest

from mistakes.cntk import redesigned
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import TYPES, build_network, evaluate
from opscope.cntk.brainscript.experiment import LaterAction, load_experiment, read_experiment
from opscope.cntk.brainscript.language.formatter import format_text
from opscope.cntk.brainscript.language.parser import parse_expression, parse_members
from opscope.cntk.brainscript.language.printer import print_members
from opscope.cntk.brainscript.library import REDESIGNED
from opscope.cntk.brainscript.redesign.objects import REDESIGNED_TYPES
from opscope.cntk.brainscript.values import Session
from opscope.cntk.models.v1 import read_model, write_model
from opscope.cntk.network.initialize import initialize
from opscope.cntk.programs.check import check_file
from opscope.cntk.sgd.options import SgdOptions
from opscope.framework.base.errors import FormatError, OpscopeError


def value(text):
    """The value of an expression of the redesigned language."""
    session = Session({**TYPES, **REDESIGNED_TYPES}, curried=True)
    return evaluate(parse_expression(Source("t", text)), session, {}, "", REDESIGNED)


def read(text, overrides=None, folders=()):
    """(the experiment of a text, the warnings)."""
    told = []
    return read_experiment(Source("train.bs", text), overrides, folders, told.append), told


def sgd(experiment):
    return experiment.actions[0].config.section("SGD")


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


# --- settings: from scopes around, paths, laziness


def test_objects_look_outwards():
    around = "\nminibatchSize = 17\ntraceLevel = 2\nprecision = 'double'\nrandomize = 'none'\n"
    text = redesigned().replace("minibatchSize = 256 ;", "")
    experiment, told = read(text + around)
    (action,) = experiment.actions
    assert sgd(experiment).string("minibatchSize") == "17"
    assert action.config.int("traceLevel") == 2 and action.network.precision == "double"
    assert action.config.section("reader").string("randomize") == "none"
    assert not told
    # what stands inside counts
    experiment, told = read(redesigned() + around)
    assert sgd(experiment).string("minibatchSize") == "256"
    assert told == ["train.bs:23:1: 'minibatchSize' is read by nobody"]


def test_actions_share_what_stands_outside():
    text = redesigned()
    start = text.index("    source = new")
    source = text[start : text.index("\n]", start)]
    shared = (
        text.replace(source, "") + source + '\nsecond = train + [ model.modelPath = "n.dnn" ]\n'
    )
    shared = shared.replace("actions = train", "actions = train : second")
    first, second = read(shared)[0].actions
    assert first.config.string("modelPath") == "m.dnn"
    assert second.config.string("modelPath") == "n.dnn" and second.name == "second"
    assert first.network is not second.network


def test_sections_inside_sections():
    text = redesigned(rates="0.8 ; AutoAdjust = [ autoAdjustLR = 'before' ; numPrevLernRates = 3 ]")
    experiment, told = read(text)
    assert SgdOptions.of(sgd(experiment)).adjust.rate == "before"
    assert [line.partition(": ")[2] for line in told] == [
        "'numPrevLernRates' is read by nobody (did you mean numPrevLearnRates?)"
    ]


def test_backslashes_in_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "names.bs").write_text("ExpDir = 'out'\n")
    head = "include 'lib\\names.bs'\nstderr = ExpDir + '\\log\\log'\n"
    text = head + redesigned().replace('"m.dnn"', 'ExpDir + "\\model\\m.dnn"')
    text = text.replace('"a.scp"', '"C:\\scp\\a.scp"')
    (tmp_path / "train.bs").write_text(text)
    experiment = load_experiment(["configFile=.\\train.bs"])
    (action,) = experiment.actions
    assert experiment.settings["stderr"] == "out/log/log"
    assert action.config.string("modelPath") == "out/model/m.dnn"
    assert action.config.section("reader").section("features").string("scpFile") == "C:/scp/a.scp"
    (edit,) = read(
        "actions = e\ne = new EditAction [ do = Dump (new NDL [ x = Input (2) ], 'a\\b') ]"
    )[0].actions
    assert edit.steps[0][2] == Path("a/b") and os.sep in str(edit.steps[0][2])


def test_only_what_is_needed_is_evaluated():
    unused = """
    wrong = Fail ("not asked for")
    other = new TrainAction [ model = nothing ]
    text = if false then Fail ("no") else "yes"
    """
    text = redesigned("unused = 1 + 'a' ; spare = new HTKFeatReader [ data = nothing ]") + unused
    text = text.replace("layerTypes =", "extra = Fail ('no') ; layerTypes =")
    (action,) = read(text)[0].actions
    assert action.name == "train"


def test_an_edit_waits_for_the_model_that_is_trained(tmp_path):
    text = redesigned().replace("actions = train", "actions = train : add : again")
    text = (
        text.replace('"m.dnn"', f'"{tmp_path}/m.dnn"')
        + f"""
    add = new EditAction [
        old = LoadModel (train.model.modelPath)
        twin = EditModel (old, [ twice = Plus (old.HLast, old.HLast) ])
        do = SaveModel (twin, "{tmp_path}\\n.dnn")
    ]
    again = new EditAction [ do = Dump (LoadModel ("{tmp_path}/n.dnn"), "{tmp_path}/n.txt") ]
    """
    )
    train, add, again = read(text)[0].actions
    assert isinstance(add, LaterAction) and add.name == "add"
    with pytest.raises(FormatError, match="there is no model file"):
        add.action()
    train.network.validate()
    initialize(train.network)
    write_model(train.network, tmp_path / "m.dnn")
    add.action().run()
    again.action().run()
    assert "twice=Plus" in (tmp_path / "n.txt").read_text().replace(" ", "")


# --- places and misspelt names


def test_places(tmp_path):
    (tmp_path / "rates.bs").write_text("# rates\nrate = 0.8 +\n  nothing\nepochs = 'x'\n")
    text = f"include '{tmp_path}/rates.bs'\n" + redesigned(rates="rate")
    with pytest.raises(FormatError, match=r"rates\.bs:3:3: unknown identifier 'nothing'"):
        read(text)
    # values that SGD and readers refuse later
    text = f"include '{tmp_path}/rates.bs'\n" + redesigned().replace(
        "Epochs = 5", "Epochs = epochs"
    )
    with pytest.raises(FormatError, match=r"^train\.bs:16:97: .*'x'"):
        SgdOptions.of(sgd(read(text)[0]))
    experiment, _ = read(redesigned(), {"train.optimizer.maxEpochs": "many"})
    with pytest.raises(
        FormatError, match=r"^command line: train\.optimizer\.maxEpochs=many:1:27: "
    ):
        SgdOptions.of(sgd(experiment))
    experiment, _ = read(redesigned().replace("minibatchSize = 256", "minibatchSize = 0"))
    with pytest.raises(FormatError, match=r"^train\.bs:15:52: a minibatch has at least one sample"):
        SgdOptions.of(sgd(experiment))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("train.optimizer.maxEpochs", "(1 + nothing)", ":1:32: unknown identifier 'nothing'"),
        ("train.optimzer.maxEpochs", "1", ":1:26: there is no member 'optimzer' to look into (did"),
        ("train.optimizer.maxEpochs.x", "1", ":1:29: there is no record to look into for 'x'"),
        ("train.model.modelPath", "3", ":1:23: 'modelPath' must be a string, not a number"),
        ("train.source", "[ a = 1 ]", "train.bs:11:65: unknown identifier 'labels'"),
    ],
)
def test_places_on_the_command_line(name, given, message):
    with pytest.raises(FormatError) as caught:
        read(redesigned(), {name: given})
    text = str(caught.value)
    assert text.startswith(
        message if "train.bs" in message else f"command line: {name}={given}{message}"
    )


STREAMS = """streams = ([ reader = features ; readr = 1 ; input = model.network.features ]
            : [ reader = labels ; input = model.network.labels ])"""
MISSPELT = [
    ({}, "train.bs:17:9: 'strems' is read by nobody (did you mean streams?)", "strems = 1"),
    ({"ExpDri": "x"}, "command line: ExpDri=x:1:1: 'ExpDri' is read by nobody", ""),
    ({"train.optimizer.maxEpoch": "7"}, "'maxEpoch' is read by nobody (did you mean maxE", ""),
    ({"train.model.network.needprior": "true"}, "", ""),  # capitals do not count
    ({}, "'needPriors' is read by nobody (did you mean needPrior?)", None),
    ({}, "'readr' is read by nobody (did you mean reader?)", STREAMS),
]


@pytest.mark.parametrize(("overrides", "message", "line"), MISSPELT)
def test_misspelt_names(overrides, message, line):
    text = redesigned(line or "")
    if line is None:
        text = text.replace("layerTypes =", "needPriors = true ; layerTypes =")
    _, told = read(text, overrides)
    assert len(told) == bool(message)
    assert message in "".join(told)


def test_misspelt_names_in_plain_records_and_functions():
    head = "make (h) = [ hiden = 4 ; hidden = h ]\noptions = make (3) + [ hidn = 2 ]\n"
    text = redesigned().replace("2 : 4 : 3", "2 : options.hidden : 3")
    _, told = read(head + text)
    assert told == [
        "train.bs:1:14: 'hiden' is read by nobody (did you mean hidden?)",
        "train.bs:2:24: 'hidn' is read by nobody (did you mean hidden?)",
    ]


@pytest.mark.parametrize("name", ["bidirectional", "timit_ndl", "timit_simple"])
def test_no_false_warnings(name):
    file = Path(__file__).parent / f"{name}.bs"
    folders = [f"{key}=x" for key in ("ExpDir", "ScpDir", "MlfDir")] if "simple" in name else []
    device = ["DeviceNumber=-1"] if "simple" in name else []
    assert not check_file(file, extra=[*folders, *device]).problems


def test_check_and_run_tell_of_them(tmp_path, monkeypatch):
    (tmp_path / "train.bs").write_text(redesigned("strems = 1"))
    assert [severity for severity, _ in check_file(tmp_path / "train.bs").problems] == ["warning"]


# --- nothing kills the interpreter (deep ones run in processes of their own: tests/mistakes)


@pytest.mark.parametrize(
    "line",
    [
        "strems = ([ reader = features ] : [ reader = labels ])",
        "streams = ([ a = [ b = streams ] ])",
        "contextWindow = ([ a = 1 ] : [ b = 2 ])",
        "readMethod = (x => x)",
        "randomize = array [1..3] (i => [ a = i ])",
        "verbosity = array [1..2] (i => verbosity)",
        "f (n) = [ a = f (n + 1) ] ; readMethod = f (1)",
    ],
)
def test_records_where_plain_members_are_wanted(line):
    try:
        _, told = read(redesigned(line))
        assert told
    except OpscopeError as error:
        assert str(error).startswith("train.bs:")
        assert max(map(len, str(error).split("\n"))) <= 500
