"""Compiled computations in a file, so that the next pass of training need not compile again.

The file is a NetDesc in the dialect `nnet3.cache`, with an operator for each computation: its
attributes are the text of the request and the commands, a NetDesc as bytes. It says which
structure of network and which passes it was made with, and the digest of all this. In binary it is
Kaldi's mark of binary files and the bytes of the message, else protobuf's text.

Source: `CachingOptimizingCompiler::ReadCache` and `WriteCache` in Kaldi's `nnet3/nnet-optimize.cc`.
"""

from __future__ import annotations

import hashlib
from typing import Final

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
from ...kaldi.files.kaldi_io import Reader, Writer
from ...proto import net_pb2 as pb
from ..graph.request import ComputationRequest
from ..lower.command_dialect import from_desc, to_desc
from ..network.nnet import Nnet
from ..optimize.checker import check_computation
from .computations import CachingCompiler
from .structure import structure

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


def _digest(net: OpList) -> str:
    digest = hashlib.sha256()
    for name in ("network", "passes"):
        digest.update(net.metadata.get(name, "").encode() + b"\n")
    for op in net.ops:
        digest.update(attribute(op, "request", "string").encode() + b"\n")
        digest.update(attribute(op, "commands", "tensor").tobytes())
    return digest.hexdigest()
