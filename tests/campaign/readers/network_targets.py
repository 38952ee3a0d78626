"""The campaign's readers of nets as messages: networks, computations, caches of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from google.protobuf import text_format

import golden_nets
from opscope.framework.files.saved import loaded, op_list_of
from opscope.framework.files.tensor_file import TensorFile
from opscope.framework.ir.messages import from_message, parse_net, serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import net_text
from opscope.framework.passes.verify.verifier import problems, verify
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.cache.computations import CachingCompiler
from opscope.nnet3.cache.files import _digest, read_cache, write_cache
from opscope.nnet3.compiler.computation import Computation
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.inference.saved import save_nnet
from opscope.nnet3.lower import command_dialect
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import compile_optimized
from opscope.nnet3.optimize.checker import check_computation
from opscope.nnet3.run.computer import NnetComputer
from opscope.proto.net_pb2 import NetDesc

from ..inputs import Target
from .mutate import BYTES, TEXT, Mutation, message
from .nets import arrays, net

# No 'input' and no 'output': the context of a simple network is long to find, for each mutant.
CONFIG = """
input-node name=x dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=6
component-node name=a component=a input=Append(Offset(x, -1), x, Round(x, 2))
component name=b type=BatchNormComponent dim=6 block-dim=3
component-node name=b component=b input=Sum(a, IfDefined(Offset(a, -1)))
component name=c type=CompositeComponent num-components=2 \
    component1='type=AffineComponent input-dim=6 output-dim=3' \
    component2='type=RectifiedLinearComponent dim=3'
component-node name=c component=c input=b
component name=p type=PermuteComponent column-map=1,0,2
component-node name=p component=p input=c
component name=t type=TdnnComponent input-dim=3 output-dim=2 time-offsets=-1,0
component-node name=t component=t input=p
dim-range-node name=d input-node=t dim=1 dim-offset=1
output-node name=y input=Append(t, d) objective=quadratic
"""


def _io(name: str, first: int, last: int) -> str:
    rows = [f"{n},{t},0" for n in range(2) for t in range(first, last)]
    return f"{name} has_deriv=1 {' '.join(rows)}\n"


REQUEST = ComputationRequest.parse(
    f"input {_io('x', -6, 4)}output {_io('y', 0, 2)}need_model_derivative=1\n"
)
_SMALL = ComputationRequest.parse("input x 0,0,0 0,1,0 0,-1,0 0,-2,0\noutput y 0,1,0\n")


@lru_cache
def network() -> Nnet:
    return Nnet.from_config_text(CONFIG, 0)


def _golden(folder: Path) -> Sequence[bytes]:
    names = ("mlp", "images", "words", "block", "trees", "attributes")
    return [serialize_net(op_list_of(getattr(golden_nets, name)())) for name in names]


def use_net(path: Path) -> None:
    """Show, check and load a net of operators, and write it again."""
    found = from_message(parse_net(path.read_bytes()))
    net_text(found)
    problems(found)
    verify(found, undeclared=True)
    whole = loaded(found, {}, None, True)
    whole.summary()
    serialize_net(whole.net.op_list)


def use_network(path: Path) -> None:
    """Load, show and lower an nnet3 network, and write it again."""
    _use_network(from_message(parse_net(path.read_bytes())), network().arrays())


def _use_arrays(path: Path) -> None:
    file = TensorFile(path)
    _use_network(network().to_desc(), {name: file.read(name) for name in file})


def _use_network(desc: OpList, values: dict[str, np.ndarray]) -> None:
    net_text(desc)
    nnet = Nnet.from_desc(desc, values)
    nnet.info()
    compile_request(nnet, REQUEST, natural_gradient=True)
    serialize_net(nnet.to_desc())


def _network_arrays(folder: Path) -> Sequence[bytes]:
    save_nnet(network(), folder / "seed")
    return [(folder / "seed.safetensors").read_bytes()]


@lru_cache
def _computations() -> list[Computation]:
    topology = network().topology()
    return [
        compile_optimized(topology, REQUEST, None),
        compile_optimized(topology, _SMALL, None),
    ]


def _computation_files(folder: Path) -> Sequence[bytes]:
    return [serialize_net(command_dialect.to_desc(each)) for each in _computations()]


def _read_computation(path: Path) -> None:
    """Read, check, print, lower and run a computation."""
    found = from_message(parse_net(path.read_bytes()))
    net_text(found)
    command_dialect.from_desc(found, None)
    computation = command_dialect.from_desc(found, network().topology())
    check_computation(computation)
    computation.to_kaldi()
    lower_computation(computation)
    lower_computation(computation, natural_gradient=True)


def _caches(binary: bool) -> Callable[[Path], Sequence[bytes]]:
    def seeds(folder: Path) -> Sequence[bytes]:
        compiler = CachingCompiler(network())
        compiler.compile(_SMALL)
        writer = Writer(binary)
        write_cache(compiler, network(), writer)
        return [writer.getvalue()]

    return seeds


def signed(mutate: Mutation, binary: bool) -> Mutation:
    """A mutation of the commands of a cache, whose digest fits again: whoever makes one can."""

    def change(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
        desc = NetDesc()
        if binary:
            desc.ParseFromString(data[2:])
        else:
            text_format.Parse(data, desc)
        for op in desc.ops:
            tensor = op.attrs["commands"].tensor
            tensor.data = mutate(tensor.data, rng, [tensor.data])
            tensor.dims[0] = len(tensor.data)
        desc.metadata["digest"] = _digest(from_message(desc))
        if binary:
            return b"\0B" + desc.SerializeToString(deterministic=True)
        return text_format.MessageToString(desc).encode()

    return change


def _read_cache(path: Path) -> None:
    """Take the computations of a file, and run what is there."""
    nnet = network()
    compiler = CachingCompiler(nnet)
    read_cache(compiler, nnet, Reader(path))
    for _, computation in compiler.computed():
        computer = NnetComputer(lower_computation(computation), nnet)
        computer.accept_input("x", np.ones((4, 4), np.float32))
        computer.run()
        computer.get_output("y")


_NETS = (message(NetDesc), net, net)

TARGETS = (
    Target("operators", ".pb", _golden, use_net, (net,)),
    Target("network", ".pb", lambda _: [serialize_net(network().to_desc())], use_network, _NETS),
    Target("network arrays", ".safetensors", _network_arrays, _use_arrays, (arrays,)),
    Target("computation", ".pb", _computation_files, _read_computation, _NETS),
    Target("computation cache", ".cache", _caches(True), _read_cache, BYTES),
    Target("computation cache text", ".cache", _caches(False), _read_cache, TEXT),
    Target(
        "signed cache",
        ".cache",
        _caches(True),
        _read_cache,
        (signed(message(NetDesc), True), signed(net, True)),
    ),
)
