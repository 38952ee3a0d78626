"""Node kinds, learners and actions of other packages, and a package with all kinds of plug-ins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from cntk_runtime_nets import Builder, minibatch
from opscope.cntk.actions.checks.config import warnings_of
from opscope.cntk.actions.run import PLUGINS, add_action
from opscope.cntk.config import parse_config
from opscope.cntk.lower import lowers
from opscope.cntk.lower.table import TABLE
from opscope.cntk.models.checkpoint import Checkpoint
from opscope.cntk.network import catalog
from opscope.cntk.network.nodes import rules
from opscope.cntk.network.nodes.kind import register, standard, unregister
from opscope.cntk.network.nodes.node import Kind, NdlFunction
from opscope.cntk.operators.updates.learning import PLUGINS as LEARNERS
from opscope.cntk.operators.updates.learning import Learner, add_learner
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.updates import Updates
from opscope.framework.base.errors import FormatError, OpscopeError, RunError
from opscope.framework.base.options import plugins
from opscope.framework.base.options.plugins import Plugins
from opscope.framework.ir.schema import AttrSpec

ROOT = Path(__file__).parents[2]


def test_entry_points_are_loaded_when_a_node_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "my_nodes.py").write_text(
        "from opscope.cntk.network.nodes import rules\n"
        "from opscope.cntk.network.nodes.kind import register\n"
        "from opscope.cntk.network.nodes.node import Kind\n"
        "register(Kind('MyNode', (1, 1), rules.unary))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "my_nodes", catalog.GROUP)
    monkeypatch.setattr(catalog, "entry_points", lambda group: [point])
    catalog.load_plugins.cache_clear()
    try:
        assert catalog.kind("MyNode").inputs == (1, 1)
    finally:
        unregister("MyNode")
        catalog.load_plugins.cache_clear()


def test_an_action_is_added_once():
    add_action("my_action", print)
    try:
        with pytest.raises(OpscopeError, match="'my_action' is there already"):
            add_action("my_action", print)
    finally:
        PLUGINS.remove("my_action")
    with pytest.raises(OpscopeError, match="'train' is there already"):
        add_action("train", print)


def test_two_packages_of_one_name(monkeypatch):
    points = [EntryPoint("Mine", value, "opscope.readers") for value in ("a:b", "a:b", "c:d")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    with pytest.raises(OpscopeError, match="'Mine' is brought by two packages .*: a:b and c:d"):
        Plugins[object]("reader type", "opscope.readers").find("Mine")


# -- nodes -----------------------------------------------------------------------------------------


def boom(*given: object) -> None:
    raise KeyError("boom")


class TestNodes:
    @pytest.fixture(autouse=True)
    def forget(self):
        yield
        unregister("Mine")
        TABLE.pop("Mine", None)

    def forward(self) -> None:
        b = Builder()
        b.add("Mine", "z", b.add("InputValue", "x", shape=2))
        b.net().forward(minibatch(x=np.ones((3, 2))), ["z"])

    def test_a_fault_of_the_shape_rule(self):
        standard("Mine", 1, boom)
        with pytest.raises(RunError, match="z Mine operation: the shape rule of its kind fail"):
            self.forward()

    @pytest.mark.parametrize(
        ("lowering", "message"),
        [
            (boom, "KeyError: 'boom'"),
            (lambda e, node: None, "TypeError: it gives a NoneType, not the name of a variable"),
            (lambda e, node: "q", "ValueError: it gives 'q', which no operator writes"),
        ],
    )
    def test_a_fault_of_the_lowering(self, lowering, message):
        standard("Mine", 1, rules.unary)
        lowers("Mine")(lowering)
        wanted = f"z Mine operation: the lowering of its kind failed: {message}"
        with pytest.raises(RunError, match=re.escape(wanted)):
            self.forward()

    def test_a_fault_of_the_attributes(self):
        register(Kind("Mine", (1, 1), rules.unary, finish=boom))
        with pytest.raises(RunError, match="Mine: finishing its attributes failed: KeyError"):
            self.forward()

    @pytest.mark.parametrize("attributes", [boom, lambda values, options: 5])
    def test_a_fault_of_the_function_of_ndl(self, attributes):
        from opscope.cntk.ndl import build_ndl_section

        function = NdlFunction(("Mine",), "Mine", (1,), attributes=attributes)
        register(Kind("Mine", (1, 1), rules.unary, ndl=(function,)))
        text = "B = [ run = N\n N = [ x = Input(2)\n z = Mine(x) ] ]"
        with pytest.raises(OpscopeError, match=r":3:\d+: z: Mine: "):
            build_ndl_section(parse_config(text).section("B"))

    def test_names_are_taken_once(self):
        standard("Mine", 1, rules.unary)
        with pytest.raises(OpscopeError, match="the node kind 'Mine' is there already"):
            standard("Mine", 1, rules.unary)
        with pytest.raises(OpscopeError, match="the node kind 'times' is there already"):
            standard("Mine2", 1, rules.unary, ndl=("Times",))
        with pytest.raises(OpscopeError, match="a function that lowers 'Times' already"):
            lowers("Times")(boom)


# -- learners --------------------------------------------------------------------------------------


def falling(k, shape):
    """Goes down the gradient; keeps how far, and how often."""

    def update(control, param, gradient, states, count):
        count[...] += 1
        states[0][...] += gradient
        param -= control[0] * k.attrs["factor"] * gradient / float(count)

    return update


SGD = "maxEpochs = 1 ; learningRatesPerSample = 0.5 ; gradUpdateType = {name} ; Mine = [ {attrs} ]"


def options(name: str = "mine", attrs: str = "factor = 3") -> SgdOptions:
    return SgdOptions.of(parse_config(SGD.format(name=name, attrs=attrs)))


class TestLearners:
    @pytest.fixture(autouse=True)
    def learner(self):
        factor = AttrSpec("factor", "float", "of the step", 1.0, 0.0)
        learner = Learner("my.falling", "Falls.", ("way",), falling, counted=True, attrs=(factor,))
        add_learner("Mine", learner)
        yield
        LEARNERS.remove("Mine")

    def test_its_section_has_its_attributes(self):
        assert options().learner == "mine" and options().learner_attrs == {"factor": 3.0}
        assert options(attrs="").learner_attrs == {}

    @pytest.mark.parametrize(
        ("name", "attrs", "message"),
        [
            (
                "Mine",
                "facto = 2",
                r"the learner 'Mine' has no attribute 'facto' \(did you mean",
            ),
            ("Mine", "factor = -1", "factor=-1.0 is below 0"),
            ("Mine", "factor = x", "invalid input string 'x'"),
            ("Minee", "", r"fsAdagrad \| Mine\), not 'Minee' \(did you mean Mine\?"),
            ("Mine", "] ; useNAG = true ; x = [", "useNAG is about CNTK's learners, not 'Mine'"),
        ],
    )
    def test_wrong_sections(self, name, attrs, message):
        with pytest.raises(FormatError, match=message):
            options(name, attrs)

    def test_a_check_knows_its_section(self):
        text = SGD.format(name="mine", attrs="factor = 3") + " ; rms_gamma = 0.5 ; modelPath = m"
        config = parse_config(f"command = T\nT = [ SGD = [ {text} ] ]", "f")
        (told,) = map(str, warnings_of(config))
        assert "f:T:SGD:rms_gamma is not used: the learner is mine" in told

    def test_names_are_taken_once(self):
        learner = LEARNERS.find("mine")
        for name in ("MINE", "adagrad", "RMSProp"):
            with pytest.raises(OpscopeError, match="the learner .* is there already"):
                add_learner(name, learner)

    def test_an_object_of_another_class(self):
        LEARNERS.remove("Mine")
        add_learner("Mine", falling)
        with pytest.raises(OpscopeError, match="is an object of the class function, no Learner"):
            options()

    def test_states_go_into_checkpoints(self):
        b = Builder()
        x = b.add("InputValue", "x", shape=3)
        b.criterion(b.add("Plus", "y", x, b.parameter("w", 3)))
        net = b.net()
        updates = Updates(options(), [net.network.find("w")], net.dtype)
        updates.reset(net.scope)
        saved = Checkpoint(0, 0.0, 0.0, None)
        updates.save(net.scope, saved)
        assert saved.gradients[0].shape == (3, 1) and saved.counts == [0.0]
        saved.gradients, saved.counts = [np.array([[1.0], [2.0], [3.0]])], [7.0]
        updates.load(net.scope, saved)
        again = Checkpoint(0, 0.0, 0.0, None)
        updates.save(net.scope, again)
        assert again.gradients[0].ravel().tolist() == [1, 2, 3] and again.counts == [7.0]


# -- a package -------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The sample package as an installation leaves it: its module, and a folder about it."""
    source = ROOT / "examples/plugin_cntk"
    shutil.copy(source / "opscope_marbles.py", tmp_path)
    about = tmp_path / "opscope_marbles-0.1.0.dist-info"
    about.mkdir()
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )
    (about / "entry_points.txt").write_text("\n".join(groups))
    return tmp_path


def run(site: Path, *argv: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-P", "-m", "opscope", "cntk", *map(str, argv)],
        cwd=site,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_package_with_all_kinds(installed):
    config = ROOT / "examples/plugin_cntk/marbles.cntk"
    done = run(installed, f"configFile={config}")
    assert done.returncode == 0, done.stderr
    errors = re.findall(r"err = ([0-9.]+) ", done.stderr)
    assert float(errors[-1]) < 0.05 < float(errors[0]), done.stderr
    assert "82 parameters\n" in done.stderr and "unknown" not in done.stderr
    assert np.loadtxt(installed / "scores.csv", delimiter=",").shape == (5, 2)


def test_a_package_without_its_module(installed):
    (installed / "opscope_marbles.py").unlink()
    done = run(installed, f"configFile={ROOT / 'examples/plugin_cntk/marbles.cntk'}")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "cannot be loaded: opscope_marbles" in done.stderr
