"""The action write: values of nodes over data, as text files or through a writer.

Source: CNTK's `SGDLib/SimpleOutputWriter.h`, `ActionsLib/EvalActions.cpp`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...framework.base.context import OpContext
from ...framework.base.errors import FormatError, VariableError, nearest
from ...framework.base.files.atomic import atomic_file, make_folder_of
from ...framework.base.options.plugins import call_plugin, owner_of
from ..base.text import located
from ..config.parameters import ConfigParameters
from ..config.value import ConfigValue
from ..network.catalog import kind
from ..network.network import Network
from ..network.nodes.analysis import depth_first
from ..network.nodes.node import Node
from ..readers.base.data import Samples
from ..readers.base.minibatches import minibatches
from ..readers.base.pack import Minibatch
from ..readers.catalog import create_writer
from ..run.runtime import BoundNet, CntkNet, goes_on
from ..run.tracing import names_of, trace
from ..run.value_format import NodeWriter, WriteFormat
from ..sgd.measure import columns_of
from .common import (
    Run,
    build_or_load,
    minibatch_size,
    net_of,
    reader_of,
    refuse_overwriting,
    whole,
)

_STDOUT = "-"


@dataclass(frozen=True)
class WriteOptions:
    """The settings of write.

    Attributes:
        names: of the nodes to write; none: the network's output nodes.
        size, epoch_size: of a minibatch and of the data, in samples; None: all there are.
        gradients: whether gradients are also written.
        path: before the names of files; "" with a writer.
        form: of the values in files; None with a writer.
        writer: its section.
        inputs: whether the writer takes the values of inputs in place of nodes' values.
        traced: nodes whose values are shown, and how.
    """

    names: list[str]
    size: int
    epoch_size: int | None
    gradients: bool
    path: str
    form: WriteFormat | None
    writer: ConfigParameters | None
    inputs: bool
    traced: dict[str, str]

    @classmethod
    def of(cls, section: ConfigParameters) -> WriteOptions:
        """The settings of a section.

        Raises:
            FormatError: a value is wrong, or there is neither a writer nor an outputPath.
        """
        path = section.string("outputPath", "")
        form = None
        writer = None
        if "writer" in section:
            writer = section.section("writer")
            section.only_if(False, "values go to the writer", "format")
        elif path:
            form = WriteFormat.of(section)
        else:
            raise located(
                FormatError,
                "write command: You must specify either 'writer'or 'outputPath'",
                section.text.locate(),
            )
        return cls(
            names=section.array("outputNodeNames", "").strings(),
            size=minibatch_size(section, 2048),
            epoch_size=whole(section.int("epochSize", 0)),
            gradients=section.bool("nodeUnitTest", False),
            path=path,
            form=form,
            writer=writer,
            inputs=writer is not None and writer.bool("unittest", False),
            traced=names_of(section),
        )


def write(run: Run, section: ConfigParameters) -> None:
    """Write the values of nodes: to the file `outputPath.NODE` each, or through `writer`.

    With `nodeUnitTest` there is one output node, which takes the place of a criterion: gradients of
    the sum of its elements by inputs and parameters go to `outputPath.NODE.grad`.

    Raises:
        OpscopeError: the config, the model or the data are wrong, or a file cannot be written.
    """
    options = WriteOptions.of(section)
    network = build_or_load(run, section, options.names)
    nodes = written_nodes(network, options)
    gradients = _gradient_nodes(section, network) if options.gradients else []
    if options.path:
        written = [*(node.name for node in nodes), *map(_gradient_name, gradients)]
        paths = [f"{options.path}.{name}" for name in written]
        refuse_overwriting(section.section("reader"), paths)
    net = net_of(section, network, run)
    trace(net, options.traced, run.say)
    with reader_of(section, in_order="always") as reader:
        coming = minibatches(reader, options.size, 0, options.epoch_size)
        if options.form is None:
            _through_writer(run, section, net, nodes, coming)
        else:
            _to_files(run, net, nodes, gradients, coming, options.path, options.form)


def written_nodes(network: Network, options: WriteOptions) -> list[Node]:
    """The nodes whose values are written.

    Raises:
        VariableError: there are none.
    """
    nodes = list(network.groups["output"])
    if not nodes:
        raise VariableError("There is no default output node specified in the network.")
    if options.inputs:  # the values are read and written
        return [node for node in depth_first(nodes) if node.is_input]
    return nodes


def _gradient_nodes(section: ConfigParameters, network: Network) -> list[Node]:
    """The inputs and parameters of the only output node."""
    nodes = network.groups["output"]
    if len(nodes) != 1:
        raise section["nodeUnitTest"].error(
            f"Expected exactly 1 output node for unit test, got {len(nodes)}."
        )
    below = depth_first(nodes)
    inputs = [node for node in below if node.is_input]
    for node in inputs:
        node.kind = kind("InputValue")  # whose gradients are dense
    return inputs + [node for node in below if node.is_parameter]


def _gradient_name(node: Node) -> str:
    return f"{node.name}.grad"


def _computed(
    net: CntkNet,
    nodes: list[Node],
    coming: Iterator[Minibatch],
    gradients: list[Node] | None = None,
) -> Iterator[tuple[Minibatch, BoundNet]]:
    """Minibatches, each with the net that has run on it."""
    carried = False
    target = nodes[0] if gradients else None
    context = OpContext(train=target is not None, seed=0)
    for minibatch in coming:
        carried = carried or goes_on(minibatch)
        bound = net.bound_net(nodes, target, carried=carried, extra_gradients=gradients or ())
        bound.run(minibatch, context)
        yield minibatch, bound


def _to_files(
    run: Run,
    net: CntkNet,
    nodes: list[Node],
    gradients: list[Node],
    coming: Iterator[Minibatch],
    path: str,
    form: WriteFormat,
) -> None:
    samples = 0
    names = [*(node.name for node in nodes), *map(_gradient_name, gradients)]
    with ExitStack() as stack:
        files = [_open(stack, path, name) for name in names]
        writers = [
            NodeWriter(name, node.shape or (1,), form)
            for name, node in zip(names, [*nodes, *gradients], strict=True)
        ]
        for node, writer in zip(nodes, writers, strict=False):
            if writer.unmapped:
                run.say(
                    f"write: Row dimension {math.prod(node.shape)} does not match number of "
                    f"entries {len(form.labels)} in labelMappingFile, not using mapping\n"
                )
        for file in files[: len(nodes)]:
            file.write(form.prologue.encode())
        computed = _computed(net, nodes, coming, gradients)
        for number, (minibatch, bound) in enumerate(computed):
            values = [*map(bound.value, nodes), *map(bound.gradient, gradients)]
            for name, value, file, writer in zip(names, values, files, writers, strict=True):
                if value is not None:
                    file.write(writer.text(value, number).encode())
                else:
                    run.say(
                        f"Warning: Gradient of node '{name}' is empty. Not used in backward pass?\n"
                    )
            columns = columns_of(net.network, minibatch)
            samples += columns
            run.say(f"Minibatch[{number}]: ActualMBSize = {columns}\n")
            if path == _STDOUT:
                files[0].write(b"\n")
        for file in files:
            file.write(form.epilogue.encode())
    run.say(f"Written to {path}*\nTotal Samples Evaluated = {samples}\n")


def _open(stack: ExitStack, path: str, name: str) -> IO[bytes]:
    if path == _STDOUT:
        return sys.stdout.buffer
    target = Path(f"{path}.{name}")
    make_folder_of(target)
    return stack.enter_context(atomic_file(target))


def check_written(value: ConfigValue, name: str, nodes: list[Node]) -> Node:
    """The node that a writer takes, of those that are written.

    Args:
        value: the place in the config, for the error.
        name: of the node.
        nodes: that are written.

    Raises:
        FormatError: it is none of them.
    """
    known = {node.name: node for node in nodes}
    if name not in known:
        raise value.error(
            f"the node {name!r} is none of those that are written{nearest(name, known)}"
        )
    return known[name]


def _through_writer(
    run: Run,
    section: ConfigParameters,
    net: CntkNet,
    nodes: list[Node],
    coming: Iterator[Minibatch],
) -> None:
    samples = 0
    with create_writer(section.section("writer"), section.section("reader")) as writer:
        for name in writer.names:
            check_written(section["writer"], name, nodes)
        for minibatch, bound in _computed(net, nodes, coming):
            values = {}
            for node in nodes:
                value = bound.value(node)
                if value.offsets is None:
                    raise node.error("it has no samples to write")
                rows = value.data.reshape(len(value.data), -1)
                values[node.name] = Samples(value.offsets, rows)
            call_plugin(owner_of("writer", writer), writer.save_data, values)
            samples += columns_of(net.network, minibatch)
    run.say(f"Total Samples Evaluated = {samples}\n")
