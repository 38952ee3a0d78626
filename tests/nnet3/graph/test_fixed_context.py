"""Contexts by adding up offsets are those by following rows, as Kaldi does."""

import random

import pytest

from kaldi_data import need
from opscope.nnet3.graph.context import explored_context, reads_further, simple_context
from opscope.nnet3.graph.fixed_context import fixed_context
from opscope.nnet3.network.nnet import Nnet


def of_lines(*lines: str) -> Nnet:
    """A network whose nodes read what the lines say; all have 2 columns."""
    text = ["input-node name=input dim=2"]
    for number, read in enumerate(lines):
        name = f"n{number}"
        text += [f"component name={name} type=SigmoidComponent dim=2"]
        text += [f"component-node name={name} component={name} input={read}"]
    text.append(f"output-node name=output input=n{len(lines) - 1}")
    return Nnet.from_config_text("\n".join(text), 0)


@pytest.mark.parametrize("seed", range(12))
def test_random_offsets(seed):
    chosen = random.Random(seed)
    lines = []
    for number in range(chosen.randint(1, 7)):
        earlier = ["input", *(f"n{i}" for i in range(number))][-3:]
        leaves = [f"Offset({chosen.choice(earlier)}, {chosen.randint(-4, 4)})" for _ in range(3)]
        lines.append(f"Sum({leaves[0]}, {leaves[1]})" if number % 2 else leaves[2])
    nnet = of_lines(*lines)
    found = fixed_context(nnet.topology(), nnet.modulus())
    assert found is not None
    assert found == explored_context(nnet.topology(), nnet.modulus()) == nnet.context()
    assert not reads_further(nnet.topology(), nnet.modulus(), *found, back=True)


@pytest.mark.parametrize(
    "read",
    [
        "Sum(input, IfDefined(Offset(input, -3)))",
        "Failover(Offset(input, 9), input)",
        "Round(input, 3)",
        "Switch(input, Offset(input, 1))",
        "Sum(input, IfDefined(Offset(n0, -1)))",
    ],
)
def test_what_is_not_fixed_is_followed(read):
    nnet = of_lines(read)
    topology, modulus = nnet.topology(), nnet.modulus()
    assert fixed_context(topology, modulus) is None
    assert simple_context(topology, modulus) == explored_context(topology, modulus)


@pytest.mark.parametrize("read", ["ReplaceIndex(ivector, t, 0)", "Round(ivector, 10)"])
def test_ivectors(read):
    text = f"""
    input-node name=input dim=2
    input-node name=ivector dim=3
    component name=a type=AffineComponent input-dim=7 output-dim=2
    component-node name=a component=a input=Append(Offset(input, -2), Offset(input, 1), {read})
    output-node name=output input=a
    """
    nnet = Nnet.from_config_text(text, 0)
    topology, modulus = nnet.topology(), nnet.modulus()
    assert fixed_context(topology, modulus) == explored_context(topology, modulus) == (2, 1)


def test_networks_of_kaldi():
    found = 0
    for folder in sorted(need("random_nets").glob("case_*"))[::4]:
        nnet = Nnet.read(folder / "model.raw")
        topology, modulus = nnet.topology(), nnet.modulus()
        fixed = fixed_context(topology, modulus)
        if fixed is not None:
            found += 1
            assert fixed == explored_context(topology, modulus), folder
    assert found >= 5


def test_a_window_that_is_too_wide_is_refused_as_before():
    from opscope.framework.base.errors import ShapeError

    nnet = of_lines("Offset(input, -400)", "Sum(n0, Offset(input, 300))")
    with pytest.raises(ShapeError, match="the context of the network is above 640 frames"):
        nnet.context()
