"""What is reported of files that hold no model: tables, FSTs, trees, HTK's files, text of data."""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.opener import open_file, read_file
from ...framework.base.untrusted.values import plain, shown
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.tables.specifiers import ReadSpecifier
from ...kaldi.tables.streams import Files
from ...kaldi.tables.tables import read_script
from ...nnet3.programs.base.file_kinds import TABLE
from .info import FileInfo, first_line
from .networks import tell_transitions

_LONGEST = 200
_HEAD = 4096
_OBJECT = re.compile(rb"\0B(<[A-Za-z]\w{0,40}>) ")


def table(info: FileInfo) -> None:
    """An archive or a script file of Kaldi's: what its first entry is, how many there are.

    Of a script file only the first value is read; that it is not there is reported, and no error.
    """
    from ...nnet3.programs.listing import entries

    is_script = info.kind == "script file"
    match = TABLE.match(info.path)
    name = info.path if match else f"{'scp' if is_script else 'ark'}:{info.path}"
    if is_script:
        path = ReadSpecifier.parse(name).name
        info.facts.append(("entries", f"{len(read_script(Files(None), path)):,}"))
        try:
            for key, value in entries(name):
                _tell_first(info, key, value)
                break
        except OpscopeError as error:
            info.unusual.append(f"the first value cannot be read: {first_line(error)}")
        return
    count = 0
    for key, value in entries(name):
        if not count:
            _tell_first(info, key, value)
        count += 1
    info.facts.append(("entries", f"{count:,}"))
    if not count:
        info.unusual.append("no entries")


def _tell_first(info: FileInfo, key: str, value: Any) -> None:
    from ...nnet3.programs.listing import describe

    text = describe(value)
    info.facts.append(("first", f"{plain(key)}: {text[:_LONGEST]}"))
    if text.startswith(("example:", "chain example:")):
        info.title += f" of {'chain ' if text[0] == 'c' else ''}training examples"


def value(info: FileInfo) -> None:
    """A matrix, a vector or another value of Kaldi's."""
    from ...nnet3.programs.listing import describe, read_value

    try:
        info.facts.append(("value", describe(read_value(info.path))))
    except FormatError as error:
        with open_file(info.path) as file:
            match = _OBJECT.match(file.read(_HEAD))
        if match is None:
            raise
        name = match[1].decode()
        raise FormatError(f"{error}; {name} is an object of Kaldi's that is not read") from None


def request(info: FileInfo) -> None:
    """A computation request."""
    from ...nnet3.programs.listing import read_request

    request_read = read_request(info.path)
    for name, ports in (("inputs", request_read.inputs), ("outputs", request_read.outputs)):
        info.facts.append((name, ", ".join(f"{io.name} {len(io.indexes)} rows" for io in ports)))


def fst(info: FileInfo) -> None:
    """An FST; of types that are not read, what its header says."""
    from ...kaldi.fst.files.byte_file import ByteFile
    from ...kaldi.fst.files.fst_io import read_fst
    from ...kaldi.fst.files.openfst import TYPES, is_openfst, read_header

    with open_file(info.path) as file:  # what is not read may be large
        head = file.read(_HEAD).removeprefix(b"\0B")
    if is_openfst(head):
        header, _, states = read_header(ByteFile(head, info.path))
        info.version = f"{plain(header.kind)} {header.version}, arcs {plain(header.arc)}"
        if header.kind not in TYPES or header.arc != "standard":
            arcs = f", {header.arcs:,} arcs" if header.arcs > 0 else ""
            info.facts.append(("header", f"{states:,} states{arcs}"))
            kind = f"{header.kind} with arcs {header.arc}" if header.kind in TYPES else header.kind
            info.unusual.append(f"FSTs of type {plain(kind)} are not read here")
            return
    else:
        info.version = "text"
    graph = read_fst(Reader(read_file(info.path), name=info.path, binary=False))
    what = "acceptor" if np.array_equal(graph.ilabel, graph.olabel) else "transducer"
    finals = int(np.isfinite(graph.final).sum())
    info.facts += [
        ("size", f"{graph.states:,} states ({finals:,} final), {len(graph.weight):,} arcs"),
        ("what", what),
    ]
    if graph.start < 0:
        info.unusual.append("no start state: it is empty")


def tree(info: FileInfo) -> None:
    """A decision tree."""
    from ...kaldi.files.context_dependency import ContextDependency, answers

    reader = Reader(info.path)
    tree_read = ContextDependency.read(reader)
    leaves = answers(tree_read.tree, {})
    info.facts += [
        ("window", f"{tree_read.width} phones, place {tree_read.central}"),
        ("pdfs", f"{len(leaves):,}"),
    ]


def topology(info: FileInfo) -> None:
    """The topology of the HMMs of phones."""
    from ...kaldi.files.transition_model import read_topology

    phones, _, entries = read_topology(Reader(info.path))
    sizes = Counter(len(states) for states in entries)
    counts = ", ".join(f"{count} of {states} states" for states, count in sorted(sizes.items()))
    info.facts.append(("topology", f"{len(phones):,} phones; HMMs: {counts}"))


def transition_model(info: FileInfo) -> None:
    """A transition model alone, or one before a model that is not nnet3."""
    from ...kaldi.files.transition_model import TransitionModel

    reader = Reader(info.path)
    tell_transitions(info, TransitionModel.read_from(reader))
    if not reader.at_end():
        info.unusual.append("what stands after it is no nnet3 network and is not read here")


# -- HTK and CNTK


def htk_features(info: FileInfo) -> None:
    """A parameter file of HTK's."""
    from ...cntk.readers.base.htk_files import HtkFile

    file = HtkFile.open(info.path)
    seconds = file.frames * file.period * 1e-7
    info.facts += [
        ("frames", f"{file.frames:,} of {file.dim} numbers, {file.kind}"),
        ("period", f"{file.period / 1e4:g} ms, {seconds:.2f} s in all"),
    ]


def mlf(info: FileInfo) -> None:
    """A master label file."""
    labels: Counter[str] = Counter()
    utterances = 0
    inside = False
    for number, line in enumerate(_lines(info.path)[1:], 2):
        words = line.split()
        if not words:
            continue
        if not inside:
            if words[0] == "#!MLF!#":
                continue
            if not line.strip().startswith('"'):
                raise FormatError(
                    f"{info.path}:{number}: a name in quotes was expected, not {shown(line)}"
                )
            inside = True
            utterances = utterances + 1
        elif words == ["."]:
            inside = False
        else:
            labels[words[2] if len(words) > 2 else words[0]] += 1
    if inside:
        raise FormatError(f"{info.path}: the last utterance does not end with '.'")
    info.facts += [
        ("utterances", f"{utterances:,}"),
        ("labels", f"{labels.total():,} segments of {len(labels):,} labels"),
    ]


def htk_lattice(info: FileInfo) -> None:
    """A lattice in HTK's text."""
    nodes = links = 0
    for line in _lines(info.path):
        words = line.split()
        nodes += bool(words) and words[0].startswith("I=")
        links += bool(words) and words[0].startswith("J=")
    info.facts.append(("size", f"{nodes:,} nodes, {links:,} links"))


def lattice_archive(info: FileInfo) -> None:
    """CNTK's archive of lattices: bytes, whose table of contents is a file of its own."""
    head = read_file(info.path)
    if len(head) < 8:
        raise FormatError(f"{info.path}: the file ends within the header of a lattice")
    (info_version,) = struct.unpack_from("<I", head, 4)
    info.version = str(info_version)
    toc = os.path.splitext(info.path)[0] + ".lats.toc"
    info.facts.append(("bytes", f"{len(head):,}"))
    if os.path.isfile(toc):
        info.facts.append(("table", toc))


def ctf(info: FileInfo) -> None:
    """CNTK's text format: its streams and sequences."""
    streams: dict[str, str] = {}
    rows = 0
    ids = set[str]()
    for line in _lines(info.path):
        before, *parts = line.split("|")
        if not parts:
            continue
        rows += 1
        if before.strip():
            ids.add(before.strip())
        for part in parts:
            words = part.split()
            if words and not words[0].startswith("#"):
                form = "sparse" if any(":" in word for word in words[1:]) else "dense"
                if streams.get(words[0]) != "sparse":
                    streams[words[0]] = f"{form} {len(words) - 1}" if form == "dense" else form
    listed = ", ".join(f"{plain(name)} ({form})" for name, form in list(streams.items())[:12])
    info.facts.append(("streams", listed))
    info.facts.append(("lines", f"{rows:,}" + (f" of {len(ids):,} sequences" if ids else "")))


def arrays(info: FileInfo) -> None:
    """NumPy's arrays: the shape and dtype of each."""
    from ...framework.files.array_files import read_array, read_arrays

    held = {"": read_array(info.path)} if info.kind == "array" else read_arrays(info.path)
    info.facts.append(("arrays", f"{len(held):,}"))
    for name in list(held)[:4]:
        form = f"{held[name].dtype} {list(held[name].shape)}"
        info.facts.append(("", f"{plain(name)} {form}".strip()))


def text_lines(info: FileInfo) -> None:
    """A list, or options: how many there are."""
    lines = [line for line in _lines(info.path) if line.strip() and line[:1] != "#"]
    info.facts.append(("lines", f"{len(lines):,}"))
    info.facts += [("", shown(line.strip())) for line in lines[:3]]


def mel(info: FileInfo) -> None:
    """A script of MEL: its calls."""
    from ...cntk.programs.files import formatted

    try:
        text = formatted(info.path)
    except OpscopeError as error:
        raise FormatError(str(error)) from None
    calls = Counter(
        line.partition("(")[0].rpartition("=")[2].strip()
        for line in text.splitlines()
        if "(" in line and not line.lstrip().startswith("#")
    )
    info.types = {name: count for name, count in calls.items() if name.isidentifier()}


def _lines(path: str) -> list[str]:
    return read_file(path).decode("utf-8", "replace").splitlines()
