"""Compiled computations in a file, so that the next pass of training need not compile again.

The file is a NetDesc in the dialect `nnet3.cache`, with an operator for each computation: its
attributes are the text of the request and the commands, a NetDesc as bytes. It tells which
structure of network and which passes it was made with, and the digest of all this. In binary it is
Kaldi's mark of binary files and the bytes of the message, else protobuf's text.

Source: `CachingOptimizingCompiler::ReadCache` and `WriteCache` in Kaldi's `nnet3/nnet-optimize.cc`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.ir.attributes.checked import attribute
from ...framework.ir.desc import make_op
from ...framework.ir.messages import (
    FORMAT_VERSION,
    from_message,
    parse_net,
    serialize_net,
    to_message,
)
from ...framework.ir.op_list import OpList
from ...proto import net_pb2 as pb
from ..components import Component
from ..components.composite import CompositeComponent
from ..files.kaldi_io import Reader, Writer
from ..graph.request import ComputationRequest
from ..lower.command_dialect import from_desc, to_desc
from ..network.adjust import STATISTICS
from ..network.nnet import Nnet
from ..optimize.checker import check_computation
from .computations import CachingCompiler

DIALECT: Final = "nnet3.cache"
_OP: Final = "nnet3.cached"


def write_cache(compiler: CachingCompiler, nnet: Nnet, writer: Writer) -> None:
    """Write the computations that a compiler made for a network."""
    net = OpList("computations", format_version=FORMAT_VERSION)
    net.metadata["dialect"] = DIALECT
    net.metadata["network"] = structure(nnet)
    net.metadata["passes"] = compiler.settings
    for request, computation in compiler.computed():
        commands = np.frombuffer(serialize_net(to_desc(computation)), np.uint8)
        attrs = {"request": request.to_text(), "commands": commands}
        net.ops.append(make_op(_OP, {}, {}, attrs))
    net.metadata["digest"] = _digest(net)
    if writer.binary:
        writer.write_raw(serialize_net(net))
    else:
        from google.protobuf import text_format  # slow to load, and text is rare

        writer.write_raw(text_format.MessageToString(to_message(net)))


def read_cache(compiler: CachingCompiler, nnet: Nnet, reader: Reader) -> int:
    """Give a compiler the computations of a file; returns how many there are.

    It gets none where the file was made with other passes, as in Kaldi, or for a network of another
    structure.

    Raises:
        FormatError: this is no such file, or it is damaged.
    """
    data = bytes(reader.data[reader.offset :])
    if reader.binary:
        desc = parse_net(data, reader.name)
    else:
        from google.protobuf import text_format  # as above

        desc = pb.NetDesc()
        try:
            text_format.Parse(data, desc)
        except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
            raise FormatError(f"{reader.name}: no computations in text form: {error}") from error
    net = from_message(desc)
    if net.metadata.get("dialect") != DIALECT or net.metadata.get("digest") != _digest(net):
        raise FormatError(f"{reader.name}: no cache of computations, or it is damaged")
    if net.metadata["network"] != structure(nnet) or net.metadata["passes"] != compiler.settings:
        return 0
    topology = nnet.topology()
    for op in net.ops:
        request = ComputationRequest.parse(attribute(op, "request", "string"), reader.name)
        commands = attribute(op, "commands", "tensor").tobytes()
        computation = from_desc(parse_net(commands, reader.name), topology)
        check_computation(computation)
        compiler.add(request, computation)
    return len(net.ops)


def structure(nnet: Nnet) -> str:
    """A digest of what computations depend on: nodes, and of components all but real numbers."""
    digest = hashlib.sha256()
    for line in nnet.config_lines():
        digest.update(line.encode() + b"\n")
    for name, component in nnet.components.items():
        digest.update(f"{name} {list(_facts(component))}\n".encode())
    return digest.hexdigest()


def _facts(component: Component) -> Iterator[object]:
    rate = getattr(component, "learning_rate", 0.0)
    yield component.type, component.is_updatable and rate != 0
    if isinstance(component, CompositeComponent):
        for part in component.components:
            yield list(_facts(part))
    for name, value in sorted(vars(component).items()):
        if name in STATISTICS:
            continue
        if isinstance(value, np.ndarray):
            yield name, value.shape, value.tolist() if value.dtype.kind == "i" else ""
        elif isinstance(value, bool | int | str | tuple | list):
            yield name, _without_floats(value)


def _without_floats(value: Any) -> object:
    if isinstance(value, tuple | list):
        return [_without_floats(part) for part in value]
    return value if isinstance(value, bool | int | str) else type(value).__name__


def _digest(net: OpList) -> str:
    digest = hashlib.sha256()
    for name in ("network", "passes"):
        digest.update(net.metadata.get(name, "").encode() + b"\n")
    for op in net.ops:
        digest.update(attribute(op, "request", "string").encode() + b"\n")
        digest.update(attribute(op, "commands", "tensor").tobytes())
    return digest.hexdigest()
