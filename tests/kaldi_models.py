"""Small models for the tests of Kaldi's programs, and what a program must have said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from click.testing import CliRunner

from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main

CONFIG = """# a small network
input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=16
component name=r type=RepeatedAffineComponent input-dim=16 output-dim=16 num-repeats=2
component name=b type=AffineComponent input-dim=32 output-dim=5 learning-rate-factor=0.5
component name=n type=BatchNormComponent dim=5 test-mode=true
component name=d type=DropoutComponent dim=5 dropout-proportion=0.5
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r component=r input=a
component-node name=b component=b input=Append(Offset(a, -2), r)
component-node name=n component=n input=b
component-node name=d component=d input=n
output-node name=output input=d
"""
MORE = """component name=c type=AffineComponent input-dim=5 output-dim=3
component-node name=c component=c input=b
output-node name=output input=c
"""
_ONE_STATE = """<TransitionModel> <Topology> <TopologyEntry> <ForPhones> {phones} </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 </State> </TopologyEntry> </Topology>
<Triples> {count}
{triples}
</Triples>
<LogProbs>
 [ 0 {logs} ]
</LogProbs>
</TransitionModel>
"""


def one_state_model(phones: int, stays: float = -0.25, leaves: float = -1.4) -> str:
    """A transition model, as text, whose phones have a state and a pdf each.

    Args:
        stays, leaves: logarithms of the two transitions of each.
    """
    numbers = range(1, phones + 1)
    return _ONE_STATE.format(
        phones=" ".join(map(str, numbers)),
        count=phones,
        triples="\n".join(f"{phone} 0 {phone - 1}" for phone in numbers),
        logs=" ".join([f"{stays:g} {leaves:g}"] * phones),
    )


EXCHANGED_PDFS = one_state_model(2).replace("1 0 0\n2 0 1", "1 0 1\n2 0 0")
"""Phone 1 has pdf 1, phone 2 has pdf 0."""
TRANSITIONS = b"""<TransitionModel> 
<Topology> 
<TopologyEntry> 
<ForPhones> 
1 2 
</ForPhones> 
<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State> 
<State> 1 </State> 
</TopologyEntry> 
</Topology> 
<Triples> 2 
1 0 0 
2 0 1 
</Triples> 
<LogProbs> 
 [ 0 -0.25 -0.5 -0.25 -0.5 ]
</LogProbs> 
</TransitionModel> 
"""  # noqa: W291 (the format ends lines with a space)


def write_models() -> None:
    """A network as config, raw network and acoustic model in the current folder."""
    Path("net.config").write_text(CONFIG)
    Path("more.config").write_text(MORE)
    nnet = Nnet.from_config_text(CONFIG, 1)
    nnet.write("net.raw")
    nnet.write("net.txt", binary=False)
    model = AmNnetSimple(nnet, TRANSITIONS, binary=False)
    model.set_context()
    model.set_priors(np.full(5, 0.2))
    model.write("net.mdl")


def call_main(*args, input=None):
    """Run the command line: (exit code, stdout, stderr)."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout_bytes, result.stderr


def done(result, *parts):
    """It went well; the lines on stderr, without the command line, hold `parts`."""
    code, out, err = result
    assert code == 0, err
    assert all(part in err for part in parts), err
    return out


def refused(result, *parts):
    """Exit code 1 and one line behind the command line."""
    code, out, err = result
    assert code == 1 and out == b""
    lines = err.splitlines()
    assert len(lines) <= 2 and lines[-1].startswith("ERROR ("), err
    assert all(part in lines[-1] for part in parts), err
