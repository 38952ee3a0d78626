"""The tables of classes say what is read: names and defaults of SGD, readers and networks."""

import pytest

from htk_files import corpus
from opscope.cntk.brainscript.redesign.classes import TOP_CLASSES
from opscope.cntk.brainscript.redesign.members import PLAIN
from opscope.cntk.config import parse_config
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.config.section import Section
from opscope.cntk.network.standard.settings import SimpleNetworkSettings
from opscope.cntk.readers.htk.reader import htk_mlf_reader
from opscope.cntk.sgd.options import SgdOptions


@pytest.fixture
def asked(monkeypatch):
    """The names that are looked up in configs, in lower case, by the section's last name."""
    names = {}

    def recording(method):
        def call(self, name, *more):
            names.setdefault(self.path.rpartition(":")[2], set()).add(name.lower())
            return method(self, name, *more)

        return call

    monkeypatch.setattr(ConfigParameters, "find", recording(ConfigParameters.find))
    monkeypatch.setattr(Section, "has", recording(Section.has))
    return names


def plain(name):
    return {s.name.lower(): s for s in TOP_CLASSES[name].settings.values() if s.kind in PLAIN}


def config(lines):
    return parse_config("\n".join(lines), "SGD")


NEEDED = {"maxepochs": "3", "learningratespermb": "0.8"}
LEARNERS = ("none", "adagrad", "rmsProp", "fsAdagrad")


def test_names_of_sgd(asked):
    for learner in LEARNERS:
        lines = [f"{name} = {value}" for name, value in NEEDED.items()]
        lines += [f"gradUpdateType = {learner}", "AutoAdjust = [ autoAdjustLR = none ]"]
        SgdOptions.of(config(lines))
        SgdOptions.of(config([*lines, "AutoAdjust = [ numMiniBatch4LRSearch = 3 ]"]))
        lines += ["gradientcheck = true ; precision = double", "adaptationRegType = KL"]
        SgdOptions.of(config(lines))
    elsewhere = {"precision", "autoadjust", "paralleltrain"}
    # What is not found in a section is looked up around it.
    assert asked["SGD"] - asked["AutoAdjust"] - elsewhere == {*plain("SGDOptimizer")}
    assert asked["AutoAdjust"] == {*plain("AutoAdjust")}


PARALLEL = {
    "DataParallelSGD": "gradientBits = 1",
    "ModelAveragingSGD": "blockSizePerWorker = 9",
    "BlockMomentumSGD": "blockMomentumPerSync = 0.5",
    "DataParallelASGD": "AdjustLearningRateAtBeginning = [ adjustType = linearly ]",
}


def test_names_of_parallel_training(asked):
    for method, line in PARALLEL.items():
        lines = [f"{name} = {value}" for name, value in NEEDED.items()]
        part = f"parallelizationMethod = {method} ; {method} = [ {line} ]"
        SgdOptions.of(config([*lines, f"ParallelTrain = [ {part} ]"]))
    sections = {name.lower() for name in PARALLEL}
    inside = set().union(*(asked[name] for name in PARALLEL))
    assert asked["ParallelTrain"] - inside - sections == {*plain("ParallelTrain")}
    ramp = "AdjustLearningRateAtBeginning"
    for name in (*PARALLEL, ramp):
        around = asked[ramp] | {ramp.lower()} if name != ramp else set()
        assert asked[name] - around == {*plain(name)}


def test_defaults_of_parallel_training():
    for method in PARALLEL:
        for name, setting in plain(method).items():
            text = written(setting.default)
            if text is None:
                continue
            begin = [f"{key} = {value}" for key, value in NEEDED.items()]
            section = f"parallelizationMethod = {method} ; {method} = [ {{}} ]"
            found = [
                SgdOptions.of(config([*begin, f"ParallelTrain = [ {section.format(line)} ]"]))
                for line in (f"{name} = {text}", "")
            ]
            assert found[0].parallel == found[1].parallel, name


def written(default):
    """A default of the table as a config has it; None where the table tells it in words."""
    text = default.replace("'", '"')
    words = default.replace(".", "").replace("-", "").replace("e", "").isdigit()
    return text if words or text[:1] == '"' or text in ("true", "false") else None


@pytest.mark.parametrize("name", [n for n in plain("SGDOptimizer") if n not in NEEDED])
def test_defaults_of_sgd(name):
    """An option given with its default changes nothing."""
    text = written(plain("SGDOptimizer")[name].default)
    for learner in LEARNERS if text is not None else ():
        lines = [f"{key} = {value}" for key, value in NEEDED.items()]
        lines += [f"gradUpdateType = {learner}"] if name != "gradupdatetype" else []
        assert SgdOptions.of(config([*lines, f"{name} = {text}"])) == SgdOptions.of(config(lines))


def test_some_defaults_are_told():
    settings = {**plain("SGDOptimizer"), **plain("AutoAdjust")}
    told = [s for s in settings.values() if written(s.default) is not None]
    assert len(told) > 0.7 * len(settings)


@pytest.mark.parametrize("name", plain("AutoAdjust"))
def test_defaults_of_automatic_rates(name):
    text = written(plain("AutoAdjust")[name].default)
    lines = [f"{key} = {value}" for key, value in NEEDED.items()]
    if text is not None:
        given = config([*lines, f"AutoAdjust = [ {name} = {text} ]"])
        assert SgdOptions.of(given).adjust == SgdOptions.of(config(lines)).adjust


@pytest.mark.parametrize("more", ["", "frameMode = false", "frameMode = false ; truncated = true"])
def test_names_of_readers(more, asked, tmp_path):
    corpus(tmp_path, [6, 8])
    section = parse_config(
        f"""readerType = HTKMLFReader ; {more}
        features = [ dim = 2 ; scpFile = "{tmp_path}/a.scp" ]
        labels = [ mlfFile = "{tmp_path}/a.mlf" ; labelMappingFile = "{tmp_path}/states"
                   labelDim = 3 ]""",
        "reader",
    )
    htk_mlf_reader(section).open().close()
    parts = {"scpfile", "mlffile", "mlffilelist", "features", "labels", "dim", "labeldim"}
    parts |= {
        "readertype",
        "precision",
        "action",
        "legacymode",
        "dendlats",
        "denlattocfile",
        "sectiontype",
    }
    for name, known in (
        ("reader", "RandomizingSource"),
        ("features", "HTKFeatReader"),
        ("labels", "HTKMLFReader"),
    ):
        inside = asked["features"] | asked["labels"] if name == "reader" else set()
        assert asked[name] - inside - parts <= {*plain(known)}, name


def test_names_and_defaults_of_simple_networks():
    known = {s.name: s.default for s in TOP_CLASSES["SimpleNetworkBuilder"].settings.values()}
    section = parse_config("trainingCriterion = a ; evalCriterion = b", "SimpleNetworkBuilder")
    told = SimpleNetworkSettings.from_config(section)
    assert known["applyMeanVarNorm"] == str(told.apply_mean_var_norm).lower()
    assert known["needPrior"] == str(told.need_prior).lower()
    assert known["uniformInit"] == str(told.uniform_init).lower()
    assert float(known["initValueScale"]) == told.init_value_scale
    assert known["layerTypes"] == repr(told.layer_types[0])
