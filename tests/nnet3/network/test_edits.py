"""Edit directives of `--edits`."""

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.framework.editing.patterns import name_matches
from opscope.nnet3.network.editing.orphans import orphan_nodes
from opscope.nnet3.network.edits import apply_edits, parse_edits
from opscope.nnet3.network.nnet import Nnet

CONFIG = """
input-node name=input dim=8
input-node name=extra dim=2
component name=a1 type=NaturalGradientAffineComponent input-dim=8 output-dim=7 max-change=2
component name=a2 type=AffineComponent input-dim=7 output-dim=6 learning-rate-factor=0.5
component name=drop type=DropoutComponent dim=7 dropout-proportion=0.1
component name=mask type=DropoutMaskComponent output-dim=2
component name=x type=PerElementScaleComponent dim=2
component-node name=a1 component=a1 input=input
component-node name=drop component=drop input=a1
dim-range-node name=r input-node=a1 dim-offset=1 dim=2
component-node name=x component=x input=Sum(r, extra)
component-node name=a2 component=a2 input=Offset(drop, 1)
output-node name=output input=a2
output-node name=output-x input=x
"""


@pytest.fixture
def nnet():
    return Nnet.from_config_text(CONFIG, 0)


def edit(nnet, text):
    return apply_edits(nnet, parse_edits(text))


def names(nnet):
    return [node.name for node in nnet.nodes if node.kind != "descriptor"]


def test_patterns():
    assert name_matches("output-x", "output*")
    assert name_matches("a.b", "*.b")
    assert name_matches("", "*")
    assert name_matches("abcabc", "*b*c")
    assert not name_matches("axb", "a.b")
    assert not name_matches("output-x", "output")


def test_remove_outputs_and_orphans(nnet):
    done = edit(nnet, "remove-output-nodes name=*-x; remove-orphans")
    assert done == [
        "Removed 1 output nodes.",
        "Removed 2 orphan nodes. Removed 2 orphan components.",
    ]
    assert names(nnet) == ["input", "extra", "a1", "drop", "a2"]
    assert list(nnet.components) == ["a1", "a2", "drop"]
    edit(nnet, "remove-orphans remove-orphan-inputs=true")
    assert names(nnet) == ["input", "a1", "drop", "a2"]


def test_orphans_one_kind_at_a_time(nnet):
    assert orphan_nodes(nnet) == []
    edit(nnet, "remove-output-nodes name=output-x")
    assert orphan_nodes(nnet) == ["extra", "r", "x_input", "x"]
    edit(nnet, "remove-orphan-components")
    assert list(nnet.components) == ["a1", "a2", "drop", "x"]
    edit(nnet, "remove-orphan-nodes; remove-orphan-components")
    assert list(nnet.components) == ["a1", "a2", "drop"]


def test_rename(nnet):
    edit(nnet, "rename-node old-name=a1 new-name=first; rename-node old-name=output new-name=y")
    assert nnet.config_lines()[2:] == [
        "component-node name=first component=a1 input=input",
        "component-node name=drop component=drop input=first",
        "dim-range-node name=r input-node=first dim-offset=1 dim=2",
        "component-node name=x component=x input=Sum(r, extra)",
        "component-node name=a2 component=a2 input=Offset(drop, 1)",
        "output-node name=y input=a2 objective=linear",
        "output-node name=output-x input=x objective=linear",
    ]
    nnet.check()


def test_learning_rates(nnet):
    done = edit(
        nnet,
        "set-learning-rate learning-rate=0.25; set-learning-rate-factor name=a*\
 learning-rate-factor=2",
    )
    assert done[0] == "Set learning rates for 3 components."
    assert done[1] == "Set learning rate factors for 2 components."
    a1, a2, x = (nnet.components[name] for name in ("a1", "a2", "x"))
    assert (a1.learning_rate, a2.learning_rate, x.learning_rate) == (0.25, 0.125, 0.25)
    assert (a1.learning_rate_factor, x.learning_rate_factor) == (2, 1)


def test_dropout(nnet):
    edit(nnet, "set-dropout-proportion name=dr* proportion=0.5")
    assert nnet.components["drop"].dropout_proportion == 0.5
    assert edit(nnet, "set-dropout-proportion proportion=0")[0].endswith(" 2 components.")
    assert nnet.components["mask"].dropout_proportion == 0


def test_fixed_affine(nnet):
    old = nnet.components["a1"]
    edit(nnet, "convert-to-fixed-affine name=a1")
    new = nnet.components["a1"]
    assert new.type == "FixedAffineComponent"
    np.testing.assert_array_equal(new.linear_params, old.linear_params)
    assert nnet.components["a2"].type == "AffineComponent"
    edit(nnet, "convert-to-fixed-affine")
    assert nnet.components["a2"].type == "FixedAffineComponent"


def test_reduce_rank(nnet):
    before = nnet.components["a1"].linear_params.copy()
    assert edit(nnet, "reduce-rank name=a* rank=3")[0].endswith(" 2 components.")
    after = nnet.components["a1"].linear_params
    s = np.linalg.svd(before, compute_uv=False)
    assert np.linalg.matrix_rank(after, tol=1e-4) == 3
    assert np.linalg.norm(before - after) == pytest.approx(np.linalg.norm(s[3:]), rel=1e-4)
    assert edit(nnet, "reduce-rank name=a2 rank=6")[0].endswith(" 0 components.")


def test_svd_with_a_given_dimension(nnet):
    before = nnet.components["a1"]
    edit(nnet, "apply-svd name=a1 bottleneck-dim=3 shrinkage-threshold=0.99")
    a, b = nnet.components["a1_a"], nnet.components["a1_b"]
    assert (a.type, b.type) == ("LinearComponent", "NaturalGradientAffineComponent")
    assert (a.output_dim, b.input_dim, a.max_change, b.max_change) == (3, 3, 2, 2)
    u, s, vt = np.linalg.svd(before.linear_params)
    np.testing.assert_allclose(b.linear_params @ a.params, (u[:, :3] * s[:3]) @ vt[:3], atol=1e-5)
    np.testing.assert_array_equal(b.bias_params, before.bias_params)
    assert "a1" not in nnet.components
    assert nnet.config_lines()[:5] == [
        "input-node name=input dim=8",
        "input-node name=extra dim=2",
        "component-node name=a1_a component=a1_a input=input",
        "component-node name=a1_b component=a1_b input=a1_a",
        "component-node name=drop component=drop input=a1_b",
    ]
    nnet.check()


def test_svd_by_energy(nnet):
    edit(nnet, "apply-svd name=a2 energy-threshold=0.9 shrinkage-threshold=2")
    s = np.linalg.svd(Nnet.from_config_text(CONFIG, 0).components["a2"].linear_params)[1]
    kept = nnet.components["a2_a"].output_dim
    energy = np.cumsum(s**2) / np.sum(s**2)
    assert energy[kept - 1] >= 0.9 > energy[kept - 2]


def test_svd_that_would_not_shrink(nnet):
    assert "Decomposed 0" in edit(nnet, "apply-svd name=a1 bottleneck-dim=5")[0]
    assert "Decomposed 0" in edit(nnet, "apply-svd name=a1 bottleneck-dim=7")[0]
    assert "Decomposed 0" in edit(nnet, "apply-svd name=x bottleneck-dim=1")[0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("remove-orphan", "no edit directive.*remove-orphans"),
        ("remove-orphans x=1", "x=1 is not used"),
        ("set-learning-rate", "learning-rate= is missing"),
        ("set-learning-rate learning-rate=fast", "no number"),
        ("set-learning-rate-factor name=a1", "learning-rate-factor= is missing"),
        ("set-dropout-proportion", "proportion= is missing"),
        ("rename-node old-name=a1", "new-name= is missing"),
        ("rename-node old-name=a9 new-name=b", "no node 'a9'"),
        ("rename-node old-name=a1 new-name=a2", "a node 'a2' already"),
        ("rename-node old-name=a1 new-name=2", "not a valid name"),
        ("remove-output-nodes", "name= is missing"),
        ("remove-output-nodes name=*", "remove all outputs"),
        ("reduce-rank name=a1", "rank= is missing"),
        ("reduce-rank name=a1 rank=0", "rank=0: at least 1 is wanted"),
        ("set-learning-rate learning-rate=-1", "learning-rate=-1.0: at least 0"),
        ("set-dropout-proportion proportion=1.5", "proportion=1.5 must be from 0 to 1"),
        ("apply-svd bottleneck-dim=3", "name= is missing"),
        ("apply-svd name=a1", "bottleneck-dim= or energy-threshold="),
        ("apply-svd name=a1 energy-threshold=1", "below 1"),
    ],
)
def test_refused_directives_change_nothing(nnet, text, what):
    lines = nnet.config_lines()
    with pytest.raises(FormatError, match=what):
        edit(nnet, f"set-learning-rate learning-rate=0.5; {text}")
    assert nnet.config_lines() == lines
    assert nnet.components["a1"].learning_rate == np.float32(0.001)


def test_no_input_may_be_left():
    nnet = Nnet.from_config_text(
        "input-node name=input dim=2\n"
        "component name=c type=ConstantComponent output-dim=2\n"
        "component-node name=c component=c input=input\n"
        "output-node name=output input=Const(1.0, 2)\n"
    )
    with pytest.raises(OpscopeError, match="no input"):
        edit(nnet, "remove-orphans remove-orphan-inputs=true")
    assert len(nnet.inputs()) == 1


def test_a_component_name_that_is_taken():
    text = CONFIG.replace("name=mask", "name=a1_a")
    nnet = Nnet.from_config_text(text, 0)
    with pytest.raises(FormatError, match="'a1_a' already"):
        edit(nnet, "apply-svd name=a1 bottleneck-dim=3")
