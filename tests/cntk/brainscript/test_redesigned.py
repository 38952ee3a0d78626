"""The redesigned language of 2015: settings, laziness, paths, places, names that nobody reads."""

import os
from pathlib import Path

import pytest

from mistakes.cntk import redesigned
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.experiment import run_experiment
from opscope.cntk.brainscript.experiment import LaterAction, load_experiment
from opscope.cntk.brainscript.values import flatten
from opscope.cntk.models.v1 import write_model
from opscope.cntk.network.initialize import initialize
from opscope.cntk.programs.check import check_file
from opscope.cntk.sgd.options import SgdOptions
from opscope.framework.base.errors import FormatError, OpscopeError
from redesigned_files import read, sgd, value

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
    assert told == ["train.bs:23:1: 'minibatchSize' is never read"]


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
        "'numPrevLernRates' is never read (did you mean numPrevLearnRates?)"
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
    (tmp_path / "train.bs").write_text(text)
    assert found_in(tmp_path / "train.bs") == []
    with pytest.raises(FormatError, match="there is no model file"):
        add.action()
    train.network.validate()
    initialize(train.network)
    write_model(train.network, tmp_path / "m.dnn")
    add.action().run()
    again.action().run()
    assert "twice=Plus" in (tmp_path / "n.txt").read_text().replace(" ", "")


# --- arrays


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0.8 : Repeat (3.2, 3) : 0.08", [0.8, 3.2, 3.2, 3.2, 0.08]),
        ("[ a = 1 : 2 ; r = a : (3 : a) : [| a ; 4 |] ].r", [1, 2, 3, 1, 2, 1, 2, 4]),
        ("[ a = 1 : a[0] : a[1] ].a", [1, 1, 1]),
        ("array [0..1] (i => i : i) : 2", [0, 0, 1, 1, 2]),
        ("Append (Repeat ('a', 2), 'b')", ["a", "a", "b"]),
        ("(1 : Fail ('no'))[0]", [1]),
        ("(array [1..1000000] (i => 2 * i))[500000]", [1000000]),
        ("[ f (n) = if n > 1 then f (n - 1) : n else 1 ; r = f (5000)[4999] ].r", [5000]),
        ("[ f (n) = if n > 1 then n : f (n - 1) else 1 ; r = Length (f (5000)) ].r", [5000]),
        # layers are CNTK's library, with its own arrays
        ("ConvolutionalLayer {2, (3:3)} (Input {4:4:1}).inputs[1].dims", [1, 1, 2]),
    ],
)
def test_colons_join_arrays(text, wanted):
    assert flatten(value(text)) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ a = 1 : a ; r = a[5] ].r", "an array is an element of itself"),
        ("[ a = 1 : b ; b = a : 2 ; r = Length (b) ].r", "an array is an element of itself"),
        ("[ a = 1 : a[1] ; r = a[1] ].r", "circular reference"),
        ("(1 : 2)[2]", r"Index 2 out of bounds \[0..1\]"),
        ("(1 : 2)[-1]", r"Index -1 out of bounds"),
        ("array [1..2.5] (i => i)", "expected an integer, not 2.5"),
        ("Repeat (3, 'a')", "expected a number, not a string"),
        ("Fac (2.5)", r"^t:1:1: expected an integer, not 2.5, in Fac"),
        ("BatchNormalizationLayer {spatialRank = 1.5} (Input {2})", "expected an integer, not 1.5"),
    ],
)
def test_wrong_arrays_and_fractions(text, message):
    with pytest.raises(FormatError, match=message):
        flatten(value(text))


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
    ({}, "train.bs:17:9: 'strems' is never read (did you mean streams?)", "strems = 1"),
    ({"ExpDri": "x"}, "command line: ExpDri=x:1:1: 'ExpDri' is never read", ""),
    ({"train.optimizer.maxEpoch": "7"}, "'maxEpoch' is never read (did you mean maxE", ""),
    ({"train.model.network.needprior": "true"}, "", ""),  # capitals do not count
    ({}, "'needPriors' is never read (did you mean needPrior?)", None),
    ({}, "'readr' is never read (did you mean reader?)", STREAMS),
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
    head = "make (h) = [ hiden = 4 ; hidden = h ; unused = 1 ]\noptions = make (3) + [ hidn = 2 ]\n"
    text = redesigned().replace("2 : 4 : 3", "2 : options.hidden : 3")
    _, told = read(head + text)
    assert told == [
        "train.bs:1:14: 'hiden' is never read (did you mean hidden?)",
        "train.bs:2:24: 'hidn' is never read (did you mean hidden?)",
    ]


@pytest.mark.parametrize("name", ["bidirectional", "timit_ndl", "timit_simple"])
def test_no_false_warnings(name):
    file = Path(__file__).parent / f"{name}.bs"
    folders = [f"{key}=x" for key in ("ExpDir", "ScpDir", "MlfDir")] if "simple" in name else []
    device = ["DeviceNumber=-1"] if "simple" in name else []
    problems = check_file(file, extra=[*folders, *device]).problems
    assert problems and all(" error opening file " in text for _, text in problems)


def found_in(file):
    """What a check finds, but for the files of data, which are not there."""
    return [found for found in check_file(file).problems if " error opening file " not in found[1]]


def test_check_tells_of_them(tmp_path):
    (tmp_path / "train.bs").write_text(redesigned("strems = 1"))
    assert [severity for severity, _ in found_in(tmp_path / "train.bs")] == ["warning"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("precision = 'half'", 'train.bs:1:13: Invalid precision string: "half"'),
        ("deviceId = 'gpuu'", "train.bs:1:12: deviceId is a number, 'cpu', 'gpu' or 'auto'"),
        ("dropoutRate = 0.5 : 2", "train.bs:1:19: dropoutRate must be >= 0 and < 1"),
        ("numMBsToShowResult = 1.5", "train.bs:1:22: "),
    ],
)
def test_settings_are_checked_before_anything_runs(line, message, tmp_path):
    (tmp_path / "train.bs").write_text(f"{line}\n{redesigned()}")
    ((severity, text),) = found_in(tmp_path / "train.bs")
    assert severity == "error" and message in text
    said = []
    with pytest.raises(OpscopeError) as caught:
        run_experiment([f"configFile={tmp_path}/train.bs"], Run(say=said.append))
    assert message in str(caught.value) and not said


def test_files_are_looked_for_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.bs").write_text(redesigned("strems = 1"))
    said = []
    with pytest.raises(OpscopeError, match=r"train\.bs:18:50: there is no file 'a\.scp'"):
        run_experiment(["configFile=train.bs"], Run(say=said.append))
    assert said == ["WARNING: train.bs:17:9: 'strems' is never read (did you mean streams?)\n"]


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


WRONG = [
    ("dim = 2 ]", "dim = [| |] ]", "train.bs:18:94: 'dim' must be a positive number without a f"),
    ("dim = 2 ]", "dim = 2.5 ]", "train.bs:18:94: 'dim' must be a positive number"),
    (
        "dim = 3 ]",
        "dim = 'x' ]",
        "'dim' must be a positive number without a fraction, not a string",
    ),
    (
        "layerTypes = 'Sigmoid'",
        "layerTypes = [| |]",
        "train.bs:8:26: 'layerTypes' is an empty array",
    ),
    ("2 : 4 : 3", "5 : 4 : 3", "train.bs:6:19: W0*features Times operation"),
    ("new ComputeNodeRef [ dim = 2 ]", "Sigmoid (Input (2))", "'data' must be a ComputeNodeRef"),
    (
        "        features =",
        "streams = [ reader = labels ; input = 1 ]\nfeatures =",
        "must be an input",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=[new for _, new, _ in WRONG])
def test_wrong_values(old, new, message):
    text = redesigned().replace(old, new)
    assert text != redesigned()
    with pytest.raises(OpscopeError) as caught:
        read(text)[0].actions[0].network.validate()
    assert message in str(caught.value) and str(caught.value).startswith("train.bs:")
