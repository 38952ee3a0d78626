"""The networks that claims about nnet3 are tried on: the documents' own, and a recurrent one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from opscope import nnet3
from opscope.nnet3.language.descriptor_parse import parse_descriptor

CONFIG = """# First the components
component name=affine1 type=NaturalGradientAffineComponent input-dim=48 output-dim=65
component name=relu1 type=RectifiedLinearComponent dim=65
component name=affine2 type=NaturalGradientAffineComponent input-dim=65 output-dim=115
component name=logsoftmax type=LogSoftmaxComponent dim=115
# Next the nodes
input-node name=input dim=12
component-node name=affine1_node component=affine1 input=Append(Offset(input, -1), Offset(input, 0), Offset(input, 1), Offset(input, 2))
component-node name=nonlin1 component=relu1 input=affine1_node
component-node name=affine2 component=affine2 input=nonlin1
component-node name=output_nonlin component=logsoftmax input=affine2
output-node name=output input=output_nonlin
"""  # noqa: E501  the document's line
RECURRENT = """component name=affine type=NaturalGradientAffineComponent input-dim=5 output-dim=3
component name=relu type=RectifiedLinearComponent dim=3
component name=out type=LinearComponent input-dim=2 output-dim=4
input-node name=input dim=2
component-node name=affine component=affine input=Append(input, IfDefined(Offset(relu, -1)))
component-node name=relu component=relu input=affine
dim-range-node name=part input-node=relu dim-offset=1 dim=2
component-node name=out component=out input=part
output-node name=output input=out
"""
NODES = {"a": 0, "b": 1, "c": 2}


@cache
def net(text: str = CONFIG) -> Any:
    """A network with drawn parameters."""
    return nnet3.Nnet.from_config_text(text, rng=0)


@cache
def compiled(line: str, text: str = CONFIG, **options: Any) -> Any:
    """What the compiler makes of a request in one line."""
    return nnet3.compile(net(text), line, **options)


@cache
def trained(text: str = RECURRENT) -> Any:
    """What it makes of a request that wants derivatives of model and input."""
    request = nnet3.ComputationRequest.parse(
        "input input has_deriv=1 0,0:3,0 1,0:3,0\noutput output has_deriv=1 0,0:3,0 1,0:3,0\n"
        "need_model_derivative=1 store_component_stats=1"
    )
    return nnet3.compile(net(text), request)


def types(computation: Any) -> list[str]:
    """The types of a computation's commands, in order."""
    return [command.type for command in computation.commands]


def output(text: str, rows: dict[tuple[int, int, int], float], wanted: list[Any]) -> list[Any]:
    """What rows of an output with this descriptor hold; None where they cannot be computed.

    Args:
        rows: of the input `in`, one column, by their indexes.
        wanted: indexes of the output.
    """
    net_ = nnet3.Nnet.from_config_text(
        f"input-node name=in dim=1\noutput-node name=out input={text}"
    )
    given = nnet3.IoSpecification("in", np.array(list(rows)))
    values = np.float32(list(rows.values()))[:, None]
    found: list[Any] = []
    for index in wanted:
        asked = nnet3.IoSpecification("out", np.array([index]))
        request = nnet3.ComputationRequest([given], [asked])
        try:
            computer = nnet3.NnetComputer(nnet3.compile_request(net_, request), net_)
        except nnet3.NotComputableError:
            found.append(None)
            continue
        computer.accept_input("in", values)
        computer.run()
        found.append(computer.get_output("out")[0].tolist())
    return found


def descriptor(text: str) -> Any:
    return parse_descriptor(text, NODES)


def leaf(text: str) -> Any:
    """The forwarding descriptor that a text is."""
    return descriptor(text).leaves()[0]


def mapped(text: str, t: int, x: int = 0) -> tuple[int, int, int]:
    """Node number, t and x that a forwarding descriptor reads an index from."""
    return tuple(int(part) for part in leaf(text).map_to_input(t, x, NODES))
