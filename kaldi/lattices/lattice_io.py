"""Files of lattices: OpenFst's binary form with Kaldi's weights, and the text of Kaldi's archives.

Arc types: `lattice4` and `lattice8` of plain lattices, `compactlattice44` and `compactlattice84` of
compact ones; costs of 8 bytes are rounded to 4. Format: Kaldi's `lat/kaldi-lattice.cc`,
`fstext/lattice-weight.h`; OpenFst's `vector-fst.h`.
"""

from __future__ import annotations

import math
import re
import struct

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.untrusted.values import shown
from ..files.kaldi_io import Reader, Writer
from ..fst.files.byte_file import ByteFile
from ..fst.files.openfst import MAGIC, is_openfst, read_header
from ..fst.fst import EXPANDED, MUTABLE
from .lattice import Arc, CompactLattice, Weight, joined, single, split

_ARC_TYPES = {  # size of a cost, whether it has sequences of ids
    "lattice4": (4, False),
    "lattice8": (8, False),
    "compactlattice44": (4, True),
    "compactlattice84": (8, True),
}
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_VERSION = 2
_HAS_SYMBOLS = 3
_ACCEPTOR = 0x10000
_LABELS = struct.Struct("<ii")
_COUNT = struct.Struct("<q")
_SIZE = struct.Struct("<i")
_COST = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?\Z|\+?Infinity\Z")
_INTEGER = re.compile(r"[0-9]{1,10}\Z")
_MOST = (1 << 31) - 1
_WANTED = "'from to word [graph,acoustic,ids]', 'from to id word [graph,acoustic]' or an end"


def read_compact_lattice(reader: Reader) -> CompactLattice:
    """Read a lattice; a plain one becomes compact.

    Raises:
        FormatError: the bytes are something else or cut off, or it names states that it lacks.
    """
    lattice, compact = _read(reader)
    return lattice if compact else _converted(reader, lattice)


def read_lattice(reader: Reader) -> CompactLattice:
    """Read a lattice as a plain one; a compact one is split.

    Raises:
        FormatError: as `read_compact_lattice`.
    """
    lattice, compact = _read(reader)
    return split(lattice) if compact else lattice


def _converted(reader: Reader, lattice: CompactLattice) -> CompactLattice:
    try:
        return joined(lattice)
    except ShapeError as error:
        raise reader.error(str(error)) from error


def _read(reader: Reader) -> tuple[CompactLattice, bool]:
    if is_openfst(bytes(reader.data[reader.offset : reader.offset + 4])):
        return _read_binary(reader)
    if not bytes(reader.data[reader.offset : reader.offset + 1]).isspace():
        raise reader.error("a lattice, binary or text after a line end, was expected here")
    return _read_text(reader)


# Binary


def _read_binary(reader: Reader) -> tuple[CompactLattice, bool]:
    begin = reader.offset
    file = ByteFile(reader.data, reader.name, reader.before)
    file.offset = begin
    header, start, states = read_header(file)
    reader.offset = file.offset
    if header.kind != "vector" or header.arc not in _ARC_TYPES:
        known = ", ".join(_ARC_TYPES)
        raise reader.error(
            f"an FST of type {shown(header.kind)} with arcs {shown(header.arc)} is no lattice:"
            f" these are of type 'vector' with arcs {known}",
            begin,
        )
    if header.version != _VERSION or header.flags & _HAS_SYMBOLS:
        message = f"version {header.version}, flags {header.flags} of an FST are not read"
        raise reader.error(message, begin)
    size, compact = _ARC_TYPES[header.arc]
    costs = struct.Struct("<ff" if size == 4 else "<dd")
    least = costs.size + _COUNT.size + (_SIZE.size if compact else 0)
    if states < 0 or states * least > reader.remaining():
        raise reader.error(f"a lattice of {states} states cannot stand here", begin)
    if not -1 <= start < states:
        raise reader.error(f"the start state {start} is none of {states}", begin)
    lattice = CompactLattice(start)
    for _ in range(states):
        state = lattice.add_state()
        end = _read_weight(reader, costs, compact)
        lattice.final[state] = None if math.isinf(end.graph) else end
        (count,) = _COUNT.unpack(reader.read_bytes(_COUNT.size))
        reader.check_left(count * (least + 4), f"{count} arcs of a lattice")
        lattice.arcs[state] = [_read_arc(reader, costs, compact, states) for _ in range(count)]
    return lattice, compact


def _read_arc(reader: Reader, costs: struct.Struct, compact: bool, states: int) -> Arc:
    begin = reader.offset
    ilabel, olabel = _LABELS.unpack(reader.read_bytes(_LABELS.size))
    weight = _read_weight(reader, costs, compact)
    (target,) = _SIZE.unpack(reader.read_bytes(_SIZE.size))
    if not 0 <= target < states:
        raise reader.error(f"an arc leads to state {target}, which is none of {states}", begin)
    if ilabel < 0 or olabel < 0 or (compact and ilabel != olabel):
        raise reader.error(f"an arc of a lattice has labels {ilabel} and {olabel}", begin)
    if math.isinf(weight.graph):
        raise reader.error("an arc of a lattice has an infinite cost", begin)
    if not compact:
        weight = weight._replace(ids=(ilabel,) if ilabel else ())
    return Arc(olabel, weight, target)


def _read_weight(reader: Reader, costs: struct.Struct, compact: bool) -> Weight:
    begin = reader.offset
    graph, acoustic = map(single, costs.unpack(reader.read_bytes(costs.size)))
    ids: tuple[int, ...] = ()
    if compact:
        (count,) = _SIZE.unpack(reader.read_bytes(_SIZE.size))
        ids = struct.unpack(f"<{_checked_count(reader, count)}i", reader.read_bytes(4 * count))
    return _checked(reader, Weight(graph, acoustic, ids), begin)


def _checked_count(reader: Reader, count: int) -> int:
    reader.check_left(4 * count, f"{count} transition-ids")
    return count


def _checked(reader: Reader, weight: Weight, begin: int) -> Weight:
    """A weight that is one: numbers, both infinite or none, and ids that are none below 0."""
    costs = weight.graph, weight.acoustic
    infinite = [cost == math.inf for cost in costs]
    wrong = any(math.isnan(cost) or cost == -math.inf for cost in costs)
    if wrong or infinite[0] != infinite[1]:
        raise reader.error(f"costs {costs[0]:g} and {costs[1]:g} of a lattice", begin)
    if weight.ids and min(weight.ids) < 0:
        raise reader.error(f"a transition-id {min(weight.ids)} of a lattice", begin)
    return weight


def write_compact_lattice(writer: Writer, lattice: CompactLattice) -> None:
    """Write it as a compact lattice."""
    _write(writer, lattice, True)


def write_lattice(writer: Writer, lattice: CompactLattice, digits: int = 6) -> None:
    """Write it as a plain lattice, which it must be.

    Args:
        digits: of costs in text.

    Raises:
        FormatError: an arc has several ids, or an end has one.
    """
    ends = [end for end in lattice.final if end is not None]
    arcs = [arc.weight for group in lattice.arcs for arc in group]
    if any(end.ids for end in ends) or any(len(weight.ids) > 1 for weight in arcs):
        raise FormatError("a compact lattice cannot be written as a plain one before it is split")
    _write(writer, lattice, False, digits)


def _write(writer: Writer, lattice: CompactLattice, compact: bool, digits: int = 6) -> None:
    if not writer.binary:
        writer.write_raw(_text(lattice, compact, digits))
        return
    parts = [struct.pack("<i", MAGIC)]
    for name in ("vector", "compactlattice44" if compact else "lattice4"):
        parts += [_SIZE.pack(len(name)), name.encode("latin-1")]
    properties = EXPANDED | MUTABLE | (_ACCEPTOR if compact else 0)
    parts.append(_HEADER.pack(_VERSION, 0, properties, lattice.start, lattice.states, 0))
    for group, end in zip(lattice.arcs, lattice.final, strict=True):
        parts.append(_weight_bytes(end or Weight(math.inf, math.inf), compact))
        parts.append(_COUNT.pack(len(group)))
        for label, weight, target in group:
            ilabel = label if compact else sum(weight.ids)
            parts += [_LABELS.pack(ilabel, label), _weight_bytes(weight, compact)]
            parts.append(_SIZE.pack(target))
    writer.write_raw(b"".join(parts))


def _weight_bytes(weight: Weight, compact: bool) -> bytes:
    costs = struct.pack("<ff", weight.graph, weight.acoustic)
    if not compact:
        return costs
    return costs + struct.pack(f"<i{len(weight.ids)}i", len(weight.ids), *weight.ids)


# Text


def _read_text(reader: Reader) -> tuple[CompactLattice, bool]:
    """Lines as `_WANTED` says; an empty line or the end of the file ends them."""
    while reader.data[reader.offset : reader.offset + 1] in (b" ", b"\t", b"\r"):
        reader.offset += 1
    if reader.data[reader.offset : reader.offset + 1] == b"\n":
        reader.offset += 1
    begin = reader.offset
    lattice = CompactLattice()
    rows: list[tuple[int, Arc | Weight]] = []
    forms: set[bool] = set()  # compact or plain
    while reader.offset < reader.size:
        place = reader.offset
        words = reader.read_line().split()
        if not words:
            break
        try:
            state, what, compact = _parse(words)
        except ValueError:
            message = f"a line of a lattice, {_WANTED}, was expected here"
            raise reader.error(message, place) from None
        if isinstance(what, Arc):
            _checked(reader, what.weight, place)
        elif what.graph != math.inf or what.acoustic != math.inf:
            _checked(reader, what, place)
        if compact is not None:
            forms.add(compact)
        if len(forms) > 1:
            raise reader.error("a lattice has lines of a compact and of a plain one", place)
        rows.append((state, what))
    top = max((max(s, w.target) if isinstance(w, Arc) else s for s, w in rows), default=-1)
    if top > 2 * len(rows):
        raise reader.error(f"the lattice has a state {top}, but far fewer lines", begin)
    for _ in range(top + 1):
        lattice.add_state()
    for state, what in rows:
        if isinstance(what, Arc):
            lattice.arcs[state].append(what)
        else:
            lattice.final[state] = None if what.graph == math.inf else what
    lattice.start = rows[0][0] if rows else -1
    return lattice, forms != {False}


def _parse(words: list[str]) -> tuple[int, Arc | Weight, bool | None]:
    """State, arc or final weight, and whether the line is of a compact lattice, if it shows that.

    Raises:
        ValueError: it is no line of a lattice.
    """
    state = _integer(words[0])
    if len(words) == 1:
        return state, Weight(), None
    if len(words) == 2:
        weight, compact = _parse_weight(words[1])
        return state, weight, compact
    target, label = _integer(words[1]), _integer(words[2])
    if len(words) == 3:
        return state, Arc(label, Weight(), target), True
    if len(words) == 4 and "," in words[3]:
        weight, compact = _parse_weight(words[3])
        if not compact or weight.graph == math.inf:
            raise ValueError
        return state, Arc(label, weight, target), True
    if len(words) > 5:
        raise ValueError
    weight, compact = _parse_weight(words[4]) if words[4:] else (Weight(), False)
    if compact or weight.graph == math.inf:
        raise ValueError
    ids = (label,) if label else ()
    return state, Arc(_integer(words[3]), weight._replace(ids=ids), target), False


def _integer(word: str) -> int:
    if not _INTEGER.match(word) or int(word) > _MOST:
        raise ValueError
    return int(word)


def _parse_weight(word: str) -> tuple[Weight, bool]:
    """`graph,acoustic`, or with ids `graph,acoustic,1_2_3`, where there may be none."""
    costs = word.split(",")
    if len(costs) not in (2, 3) or not all(map(_COST.match, costs[:2])):
        raise ValueError
    graph, acoustic = (single(float(cost)) for cost in costs[:2])
    if len(costs) == 2:
        return Weight(graph, acoustic), False
    ids = tuple(_integer(part) for part in costs[2].split("_")) if costs[2] else ()
    return Weight(graph, acoustic, ids), True


def _text(lattice: CompactLattice, compact: bool, digits: int) -> str:
    """The start state comes first; weights of nothing are left out."""
    lines = [""]
    rest = (state for state in range(lattice.states) if state != lattice.start)
    for state in [lattice.start, *rest] if lattice.start >= 0 else ():
        for label, weight, target in lattice.arcs[state]:
            line = f"{state}\t{target}\t"
            line += f"{label}" if compact else f"{sum(weight.ids)}\t{label}"
            lines.append(line + _weight_text(weight, compact, digits))
        end = lattice.final[state]
        if end is not None:
            lines.append(f"{state}{_weight_text(end, compact, digits)}")
    return "\n".join(lines) + "\n\n"


def _weight_text(weight: Weight, compact: bool, digits: int) -> str:
    if not compact:
        weight = weight._replace(ids=())
    if weight == Weight():
        return ""
    costs = ",".join(_cost_text(cost, digits) for cost in (weight.graph, weight.acoustic))
    return f"\t{costs}," + "_".join(map(str, weight.ids)) if compact else f"\t{costs}"


def _cost_text(cost: float, digits: int) -> str:
    return "Infinity" if cost == math.inf else f"{cost:.{digits}g}"
