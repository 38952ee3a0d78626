"""A compiled request in another precision than the network's: in float64, to judge by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.desc import PARAMETER, STATE
from ...framework.ir.op_list import OpList
from ...framework.passes.precision.to_dtype import ToFloat64
from ...framework.runtime.plain_net import PlainNet
from ..components import part_of
from ..graph.request import ComputationRequest
from ..lower.variables import first_value
from ..network.nnet import Nnet
from .pipeline import compile_request


def run_converted(
    net: OpList, nnet: Nnet, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]
) -> dict[str, np.ndarray]:
    """The outputs of a compiled request that was converted to another dtype.

    Args:
        net: the op list; it declares the dtypes of the parameters.
        nnet: holds these.
        inputs: by name [rows, columns], in the dtype of `net`.
        outputs: names of output nodes.

    Raises:
        OpscopeError: an operator does not take the dtype.
    """
    scope = Scope()
    for var in net.vars:
        if var.kind == PARAMETER:
            component, _, path = var.name.partition("/")
            array = getattr(*part_of(nnet.components[component], path))
            scope.var(var.name).set(np.asarray(array, var.dtype))
        elif var.kind == STATE:
            scope.var(var.name).set(first_value(var).copy())
    for name, array in inputs.items():
        scope.var(f"input.{name}").set(array)
    live = [f"output.{name}" for name in outputs]
    PlainNet(net, check=False).run(scope, OpContext(train=False, live_out=live))
    return {name: np.array(scope.numpy(f"output.{name}")) for name in outputs}


def in_float64(
    nnet: Nnet, request: ComputationRequest, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What a network in test mode gives where every operator computes in float64.

    Sums, products and what lies between layers are float64; parameters stay the network's. So the
    result has no rounding of float32 from between the layers.

    Args:
        inputs: by name [rows, columns], as the request lists their rows.

    Returns:
        The outputs by name, float64 [rows, columns].

    Raises:
        OpscopeError: an operator has no float64; the request cannot be computed.
    """
    net = ToFloat64().apply(compile_request(nnet, request, test_mode=True))
    wide = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
    return run_converted(net, nnet, wide, [io.name for io in request.outputs])
