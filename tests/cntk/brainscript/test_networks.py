"""Networks from files, edited networks, cloned parts, and the redesigned top level."""

from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import TYPES, build_network, build_section, evaluate
from opscope.cntk.brainscript.experiment import is_redesigned, load_experiment, read_experiment
from opscope.cntk.brainscript.language.parser import parse_expression
from opscope.cntk.brainscript.values import Session
from opscope.cntk.config import parse_config
from opscope.cntk.models.v1 import read_model, write_model
from opscope.cntk.network.initialize import initialize
from opscope.framework.base.errors import FormatError, OpscopeError

HERE = Path(__file__).parent
TRAINED = """{
    features = Input {4} ; labels = Input {2, tag = 'label'}
    h1 = DenseLayer {3, activation = Sigmoid} (features)
    h2 = DenseLayer {3, activation = Sigmoid} (h1)
    z = LinearLayer {2} (h2)
    ce = CrossEntropyWithSoftmax (labels, z, tag = 'criterion')
}"""


@pytest.fixture
def model(tmp_path):
    network = build_network(TRAINED)
    network.validate()
    initialize(network)
    write_model(network, tmp_path / "trained.dnn")
    return tmp_path


def built(text, folder):
    network = build_network(text, folders=[folder])
    network.validate()
    return network


def test_a_network_can_be_loaded(model):
    network = built("(BS.Network.Load ('trained.dnn'))", model)
    assert len(network) == len(build_network(TRAINED))
    assert network.find("z").shape == (2,)


def test_numbers_among_inputs_become_constants(model):
    network = built(
        """{
        x = Input {3}
        z = new ComputationNode [ operation = 'Plus' ; inputs = (1 : x) ]
        }""",
        model,
    )
    one = network.find("z").inputs[0]
    assert one.attributes["initValue"] == 1 and one.learning_rate == 0
    assert str(one.location).endswith(":3:68")  # of the array


def test_a_clone_has_its_own_parameters(model):
    network = built(
        """{
        old = BS.Network.Load ('trained.dnn')
        f = BS.Network.CloneFunction (old.features, old.h2)
        x = Input {4} ; y = Input {4}
        a = f (x) ; b = f (y)
        }""",
        model,
    )
    assert network.find("a").operation == network.find("b").operation == "Sigmoid"
    assert network.parameter_count() == 2 * (15 + 12)
    old = read_model(model / "trained.dnn").nodes["h2.arrayOfFunctions[0].W"]
    first, second = (network.find(f"{c}.h2.arrayOfFunctions[0].W") for c in "ab")
    assert first is not second
    assert np.array_equal(first.value, old.value) and np.array_equal(second.value, old.value)


@pytest.mark.parametrize(("treatment", "learning"), [("constant", 0), ("shared", 27)])
def test_clones_can_be_constant_or_share(model, treatment, learning):
    network = built(
        f"""{{
        old = BS.Network.Load ('trained.dnn')
        f = BS.Network.CloneFunction (old.features, [ first = old.h1 ; second = old.h2 ],
                                      parameters = '{treatment}')
        a = f (Input {{4}}).second ; b = f (Input {{4}}).second
        }}""",
        model,
    )
    assert network.parameter_count() == learning


def test_a_network_can_be_edited(model):
    network = built(
        """([
            old = BS.Network.Load ('trained.dnn')
            change = Tanh (old.h1)
            extra = Pass (change, tag = 'output')
            edit = BS.Network.Editing.ReplaceLinksToNode (old.h2, change)
            result = BS.Network.Edit (old, edit, (extra))
        ].result)""",
        model,
    )
    assert "h2" not in network
    product = network.find("z").inputs[0]
    assert product.inputs[1].operation == "Tanh"
    assert [n.operation for n in network.groups["output"]] == ["Pass"]
    assert [n.name for n in network.groups["criterion"]] == ["ce"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("old.features, old.nothing", "the network has no such node"),
        ("old.labels, old.h2", "no output depends on the input 'labels'"),
        ("old.features, 1", "'outputNodes' must be a node or a record"),
        ("old.features, old.h2, parameters = 'free'", "must be one of learnable"),
    ],
)
def test_wrong_clones(model, arguments, message):
    with pytest.raises(FormatError, match=message):
        built(
            f"{{ old = BS.Network.Load ('trained.dnn')\n"
            f"f = BS.Network.CloneFunction ({arguments}) ; z = f (Input {{4}}) }}",
            model,
        )


def test_a_section_of_a_config_shows_its_own_places(tmp_path):
    (tmp_path / "macros.bs").write_text("Layer (x) = LinearLayer {3} (x)\n")
    config = parse_config(
        "precision = double\nTrain = [\n  BrainScriptNetworkBuilder = {\n"
        f"    include '{tmp_path}/macros.bs'\n"
        "    x = Input {$dim$}   # comment\n    z = Layer (x)\n  }\n]\ndim = 7\n",
        "train.cntk",
    )
    network = build_section(config.section("Train"))
    assert network.precision == "double"
    assert network.find("x").attributes["shape"] == (7,)
    assert str(network.find("x").location) == "train.cntk:5:9"


# --- the redesigned top level


def test_a_simple_network():
    arguments = ["ExpDir=out", "ScpDir=scp", "MlfDir=mlf", "DeviceNumber=-1"]
    experiment = load_experiment([f"configFile={HERE / 'timit_simple.bs'}", *arguments])
    (action,) = experiment.actions
    assert action.name == "TIMIT_TrainSimple"
    assert experiment.settings["stderr"] == "out/TrainSimpleNetwork/log/log"
    network = action.network
    network.validate()
    sizes = [792, 512, 512, 512, 183]
    counted = sum((a + 1) * b for a, b in zip(sizes, sizes[1:], strict=False))
    assert network.parameter_count() == counted
    groups = {group: [n.name for n in nodes] for group, nodes in network.groups.items()}
    assert groups == {
        "feature": ["features"],
        "label": ["labels"],
        "criterion": ["trainingCriterion"],
        "evaluation": ["evalCriterion"],
        "output": ["ScaledLogLikelihood"],
    }
    config = action.config
    assert config.string("modelPath") == "out/TrainSimpleNetwork/model/cntkSpeech.dnn"
    assert list(config.section("SGD").array("learningRatesPerMB").floats()) == [
        0.8,
        *[3.2] * 14,
        0.08,
    ]
    reader = config.section("reader")
    assert reader.section("features").string("scpFile") == "scp/train.scp"
    assert reader.section("labels").int("labelDim") == 183


def test_a_network_in_a_loop_and_overrides():
    experiment = load_experiment([f"configFile={HERE / 'timit_ndl.bs'}", "ExpDir=elsewhere"])
    (action,) = experiment.actions
    network = action.network
    network.validate()
    assert network.parameter_count() == (39 + 1) * 64 + 5 * 65 * 64 + 65 * 91
    assert [n.name for n in network.groups["feature"]] == ["myFeatures"]
    assert [n.name for n in network.groups["label"]] == ["myLabels"]
    assert [n.name for n in network.groups["criterion"]] == ["CE"]
    assert [n.name for n in network.groups["evaluation"]] == ["Err"]
    assert action.config.string("modelPath") == "elsewhere/cntkSpeech.dnn"


def test_overrides_inside_records():
    (action,) = load_experiment(
        [
            f"configFile={HERE / 'timit_ndl.bs'}",
            "TIMIT_TrainNDL.optimizer.maxEpochs=7",
            "TIMIT_TrainNDL.model.network.hiddenDim=16",
            "TIMIT_TrainNDL.optimizer.learningRatesPerMB=0.5:0.25",
            "TIMIT_TrainNDL.optimizer.momentumPerMB=-1",
        ]
    ).actions
    section = action.config.section("SGD")
    assert section.int("maxEpochs") == 7 and section.float("momentumPerMB") == -1
    assert list(section.array("learningRatesPerMB").floats()) == [0.5, 0.25]
    action.network.validate()
    assert action.network.parameter_count() == 40 * 16 + 5 * 17 * 16 + 17 * 91


@pytest.mark.parametrize("given", ["b", "b : c", "(b : c)"])
def test_actions_on_the_command_line(given):
    text = "actions = a\n" + "\n".join(
        f"{name} = new EditAction [ do = Dump (new NDL [ x = Input (2) ], '{name}') ]"
        for name in "abc"
    )
    actions = read_experiment(Source("t.bs", text), {"actions": given}).actions
    assert [action.name for action in actions] == [name for name in given if name in "bc"]


@pytest.mark.parametrize(
    "name", ["Nothing.x", "numLayers.x", "TIMIT_TrainNDL.optimizer.maxEpochs.x"]
)
def test_overrides_that_have_no_place(name):
    with pytest.raises(FormatError, match="to look into"):
        load_experiment([f"configFile={HERE / 'timit_ndl.bs'}", f"{name}=1"])


def test_a_window_that_does_not_fit():
    arguments = [f"configFile={HERE / 'bidirectional.bs'}", "Train.source.features.contextWindow=4"]
    with pytest.raises(FormatError, match="65 dimensions differ from 4 frames"):
        load_experiment(arguments)


def test_the_bidirectional_network():
    (action,) = load_experiment([f"configFile={HERE / 'bidirectional.bs'}"]).actions
    network = action.network
    network.validate()
    hidden, features, labels = 16, 13, 7
    first = hidden * (features + 2 * hidden + 1)
    others = 2 * hidden * (4 * hidden + 1)
    assert network.parameter_count() == first + others + labels * (2 * hidden + 1)
    assert network.find("outZ").shape == (labels, 1)
    assert action.config.section("reader").section("myFeatures").int("dim") == features


def test_models_are_edited_and_saved(model):
    text = f"""
    actions = AddLayer
    AddLayer = new EditAction [
        currModelPath = "{model}/trained.dnn"
        newModelPath = "{model}/new.dnn"
        model = LoadModel(currModelPath);
        newModel = EditModel(model, [
            outZ = SBFF(model.h2, 5, model.h2.OUTDIM)
            z = BFF(outZ.Eh, 2, 5).z
        ])
        do = ( Dump(newModel, newModelPath + ".dump.txt")
             : SaveModel(newModel, newModelPath) )
    ]
    """
    (action,) = read_experiment(Source("edit.bs", text)).actions
    action.run()
    written = read_model(model / "new.dnn")
    old = read_model(model / "trained.dnn")
    weight = "h2.arrayOfFunctions[0].W"
    assert np.array_equal(written.find(weight).value, old.find(weight).value)
    assert written.find("z").inputs[0].operation == "Times"
    assert "outZ.Eh" in (model / "new.dnn.dump.txt").read_text()
    assert [n.name for n in written.groups["criterion"]] == ["ce"]
    assert written.find("ce").inputs[1].name == "z"


def test_what_is_redesigned():
    assert is_redesigned(Source("a", "actions = x"))
    assert is_redesigned(Source("a", "new CNTK [ actions = x ]"))
    assert is_redesigned(Source("a", "new CNTK [ actions = x ] + [ a = 1 ]"))
    assert not is_redesigned(Source("a", "new CNTK [ a = 1 ] + [ actions = x ] : 2"))
    assert not is_redesigned(Source("a", "command = x"))
    assert not is_redesigned(Source("a", "command = train\nx = [ = ]"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "the top level has no member 'actions'"),
        ("actions = 1", "an action must be one of TrainAction, EditAction, not a number"),
        ("actions = new TrainAction []", "'model' must be a Model"),
        ("actions = new EditAction [ do = 1 ]", "'do' must hold Dump or SaveModel"),
        ("actions = new EditAction [ do = Dump (1, 'a') ]", "bad.bs:1:39: Dump takes a network"),
        (
            "actions = new EditAction [ do = Dump (new NDL [ x = Input (2) ], 2) ]",
            "bad.bs:1:66: Dump takes the name of a file, not a number",
        ),
        ("new Other []", "expected"),
        ("actions = new TrainAction [ model = new Model [ network = 1 ] ]", "must be a network"),
        ("actions = nothing", "unknown identifier 'nothing'"),
    ],
)
def test_wrong_top_levels(text, message):
    with pytest.raises(OpscopeError) as caught:
        read_experiment(Source("bad.bs", text))
    assert message in str(caught.value) and str(caught.value).startswith("bad.bs:")


@pytest.mark.parametrize("arguments", [[], ["a=b"], ["configFile"], ["configFile=none.bs"]])
def test_wrong_command_lines(arguments):
    with pytest.raises(FormatError):
        load_experiment(arguments)


def test_the_redesigned_language_has_partial_application():
    head = "add (x, y, scale = 1) = scale * (x + y) ; twice (f) = f (f (1))"
    values = {
        "twice (add (2))": 5,
        "add (2, scale = 10) (3)": 50,
        "twice (add (1, scale = 2))": 10,
    }
    for expression, wanted in values.items():
        parsed = parse_expression(Source("t", f"[{head} ; r = {expression}].r"))
        assert evaluate(parsed, Session(TYPES, redesigned=True)) == wanted
        with pytest.raises(FormatError, match="expects 2 positional parameters .x, y., 1 were"):
            evaluate(parsed, Session(TYPES))
