"""The action write: values of nodes over data, as text files or through a writer.

Source: CNTK's `SGDLib/SimpleOutputWriter.h`, `ActionsLib/EvalActions.cpp`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...framework.atomic import atomic_file
from ...framework.errors import FormatError, VariableError
from ..config.parameters import ConfigParameters
from ..network.node import Node
from ..readers.data import Samples
from ..readers.pack import Minibatch
from ..readers.reader import DataReader
from ..readers.writer import create_writer
from ..runtime import CntkNet, Program, goes_on
from ..sgd.measure import columns_of
from ..text import located
from .common import Run, build_or_load, net_of, reader_of, refuse_overwriting, whole
from .formatting import NodeWriter, WriteFormat

_STDOUT = "-"


def write(run: Run, section: ConfigParameters) -> None:
    """Write the values of nodes: to the file `outputPath.NODE` each, or through `writer`.

    Raises:
        OpscopeError: the config, the model or the data are wrong, or a file cannot be written.
    """
    network = build_or_load(run, section, section.array("outputNodeNames", "").strings())
    nodes = list(network.groups["output"])
    if not nodes:
        raise VariableError("There is no default output node specified in the network.")
    size = section.array("minibatchSize", "2048").ints()[0]
    epoch_size = whole(section.int("epochSize", 0))
    if section.bool("nodeUnitTest", False):
        raise section["nodeUnitTest"].error("write gives values of nodes, not gradients")
    if "outputPath" in section:
        path = section.string("outputPath")
        refuse_overwriting(section.section("reader"), [f"{path}.{node.name}" for node in nodes])
    net = net_of(section, network)
    with reader_of(section, in_order="always") as reader:
        reader.start_minibatch_loop(size, 0, epoch_size)
        if "writer" in section:
            _through_writer(run, section, net, nodes, reader)
        elif "outputPath" in section:
            path, form = section.string("outputPath"), WriteFormat.of(section)
            _to_files(run, net, nodes, reader, path, form)
        else:
            raise located(
                FormatError,
                "write command: You must specify either 'writer'or 'outputPath'",
                section.text.locate(),
            )


def _minibatches(
    net: CntkNet, nodes: list[Node], reader: DataReader
) -> Iterator[tuple[Minibatch, Program]]:
    """Minibatches, with a program that has run on them."""
    carried = False
    while (minibatch := reader.get_minibatch()) is not None:
        carried = carried or goes_on(minibatch)
        program = net.program(nodes, carried=carried)
        program.run(minibatch)
        yield minibatch, program


def _to_files(
    run: Run,
    net: CntkNet,
    nodes: list[Node],
    reader: DataReader,
    path: str,
    form: WriteFormat,
) -> None:
    samples = 0
    with ExitStack() as stack:
        files = [_open(stack, path, node.name) for node in nodes]
        writers = [NodeWriter(node.name, node.shape or (1,), form) for node in nodes]
        for file in files:
            file.write(form.prologue.encode())
        for number, (minibatch, program) in enumerate(_minibatches(net, nodes, reader)):
            for node, file, writer in zip(nodes, files, writers, strict=True):
                file.write(writer.text(program.value(node), number).encode())
            columns = columns_of(net.network, minibatch)
            samples += columns
            run.say(f"Minibatch[{number}]: ActualMBSize = {columns}\n")
            if path == _STDOUT:
                files[0].write(b"\n")
        for file in files:
            file.write(form.epilogue.encode())
    run.say(f"Written to {path}*\nTotal Samples Evaluated = {samples}\n")


def _open(stack: ExitStack, path: str, name: str) -> Any:
    if path == _STDOUT:
        return sys.stdout.buffer
    target = Path(f"{path}.{name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return stack.enter_context(atomic_file(target))


def _through_writer(
    run: Run, section: ConfigParameters, net: CntkNet, nodes: list[Node], reader: DataReader
) -> None:
    samples = 0
    with create_writer(section.section("writer")) as writer:
        for minibatch, program in _minibatches(net, nodes, reader):
            values = {}
            for node in nodes:
                value = program.value(node)
                if value.offsets is None:
                    raise node.error("it has no samples to write")
                rows = value.data.reshape(len(value.data), -1)
                values[node.name] = Samples(value.offsets, rows)
            writer.save_data(values)
            samples += columns_of(net.network, minibatch)
    run.say(f"Total Samples Evaluated = {samples}\n")
