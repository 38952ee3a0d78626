"""Spliced rows read where they lie: products with copies side by side become sums of products.

    assign  s[:, :512] = x[a:a+n]                     out = x[a:a+n] w[:, :512]^T
    assign  s[:, 512:] = x[b:b+n]          ->               + x[b:b+n] w[:, 512:]^T
    matmul  out = s w^T

    matmul_grad  d = grad w, w_grad = grad^T s        w_grad = grad^T x[a:a+n], grad^T x[b:b+n]
    assign  x_grad[a:a+n] = d[:, :512]     ->         x_grad[a:a+n] = grad w[:, :512]
    add     x_grad[b:b+n] += d[:, 512:]               x_grad[b:b+n] += grad w[:, 512:]

The spliced matrices, several times as wide as the layers, are then neither written nor kept for the
backward part. Where something else reads a copy, or a source changes before its last use, nothing
is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...framework.base.python.cached import cached_property
from ...framework.ir.desc import FORWARD, TEMPORARY
from ...framework.ir.names import EMPTY
from ...framework.ir.op_list import OpList, OpNode, VarDecl, View

_NARROWEST = 64
_SMALLEST = 1 << 16
"""Columns of a part, and elements of the spliced matrix, from which products of parts pay."""


class _Area(NamedTuple):
    """A rectangle of a matrix: rows and columns from begin to end."""

    base: str
    top: int
    bottom: int
    left: int
    right: int

    def meets(self, other: _Area) -> bool:
        return (
            self.base == other.base
            and self.top < other.bottom
            and other.top < self.bottom
            and self.left < other.right
            and other.left < self.right
        )


class _Splice(NamedTuple):
    """A product with a spliced matrix.

    Attributes:
        copies: numbers of the operators that fill the matrix. parts: the variables to read instead.
        widths: their columns. gradients: numbers of the operators of its gradient.
    """

    product: int
    copies: list[int]
    parts: list[str]
    widths: list[int]
    gradients: list[int]


def read_in_place(net: OpList) -> OpList:
    """The net with products of spliced rows as sums of products."""
    return _Splicer(net).result()


class _Splicer:
    """Finds and replaces the products of one net."""

    def __init__(self, net: OpList) -> None:
        self.net = net
        self.ops = net.ops
        self.base_of = {var.name: var.view[0] for var in net.vars if var.view is not None}
        self.added: list[VarDecl] = []

    @cached_property
    def vars(self) -> dict[str, VarDecl]:
        """The variables by name."""
        return {var.name: var for var in self.net.vars}

    @cached_property
    def touched(self) -> dict[str, list[int]]:
        """For each matrix the operators that mention it."""
        base_of = self.base_of.get
        touched: dict[str, list[int]] = {}
        for number, op in enumerate(self.ops):
            for slots in (op.inputs, op.outputs):
                for names in slots.values():
                    for name in names:
                        base = base_of(name, name)
                        numbers = touched.get(base)
                        if numbers is None:
                            touched[base] = [number]
                        elif numbers[-1] != number:
                            numbers.append(number)
        return touched

    def result(self) -> OpList:
        """The net with all that can be replaced."""
        replaced: dict[int, list[OpNode]] = {}
        base_of = self.base_of
        # Only parts of matrices that something is copied to may be spliced.
        copied = {op.outputs["out"][0] for op in self.ops if op.type == "assign"}
        spliced = {base_of[name] for name in copied if name in base_of}
        for number, op in enumerate(self.ops):
            if op.type != "matmul" or op.role != FORWARD or number in replaced:
                continue
            source = op.inputs["x"][0]
            if base_of.get(source, source) not in spliced:
                continue
            splice = self._splice(number)
            if splice is not None and replaced.keys().isdisjoint(
                (*splice.copies, *splice.gradients)
            ):
                self._replace(splice, replaced)
        if not replaced:
            return self.net
        net = self.net.copy()
        net.vars = [*self.net.vars, *self.added]
        net.ops = [one for number, op in enumerate(self.ops) for one in replaced.get(number, [op])]
        return net

    # -- what is there ---------------------------------------------------------------------------

    def _area(self, name: str) -> _Area | None:
        """The rectangle that a variable is; None for what is no matrix of known size."""
        var = self.vars.get(name)
        if var is None or var.shape is None or len(var.shape) != 2 or min(var.shape) < 0:
            return None
        if var.view is None:
            return _Area(name, 0, var.shape[0], 0, var.shape[1])
        base, top, _, left, _ = var.view
        return _Area(base, top, top + var.shape[0], left, left + var.shape[1])

    def _areas(self, names: list[str]) -> Iterator[_Area]:
        for name in names:
            area = self._area(name)
            yield _Area(name, 0, 1 << 62, 0, 1 << 62) if area is None else area

    def _reads(self, number: int, area: _Area) -> bool:
        return any(area.meets(one) for one in self._areas(self.ops[number].input_names()))

    def _writes(self, number: int, area: _Area) -> bool:
        return any(area.meets(one) for one in self._areas(self.ops[number].output_names()))

    def _changes(self, area: _Area, begin: int, end: int, but: set[int]) -> bool:
        """Whether an operator between two numbers writes to an area."""
        return any(
            begin < number < end and number not in but and self._writes(number, area)
            for number in self.touched.get(area.base, ())
        )

    # -- forward ---------------------------------------------------------------------------------

    def _splice(self, product: int) -> _Splice | None:
        op = self.ops[product]
        attrs = op.attrs
        source = op.inputs["x"][0]
        area = self._area(source)
        weights = self.vars.get(op.inputs["y"][0])
        if attrs.get("transpose_x") or not attrs.get("transpose_y") or attrs.get("alpha", 1) != 1:
            return None
        if area is None or weights is None or self.vars[area.base].kind != TEMPORARY:
            return None
        if (area.bottom - area.top) * (area.right - area.left) < _SMALLEST:
            return None
        copies: dict[int, tuple[int, _Area]] = {}  # first column -> operator, where it copies from
        for number in reversed([n for n in self.touched[area.base] if n < product]):
            target = self._copy(number, area)
            if target is not None and self._is_free(target, copies, area):
                copies[target.left] = number, self._source(number)
            elif self._writes(number, area):
                break
        if not copies:
            return None
        names, widths = [], []
        for left, right in _columns(area, {a: self._width(n) for a, (n, _) in copies.items()}):
            number = copies[left][0] if left in copies else -1
            if number >= 0:
                names.append(self.ops[number].inputs["x"][0])
            else:
                names.append(self._view(area._replace(left=left, right=right)))
            widths.append(right - left)
        gradients = [
            number
            for number in self.touched[area.base]
            if number > product
            and self.ops[number].inputs.get("x") == (source,)
            and self.ops[number].type == "matmul_grad"
            and self.ops[number].inputs["y"] == op.inputs["y"]
        ]
        splice = _Splice(product, [n for n, _ in copies.values()], names, widths, gradients)
        return splice if self._is_right(splice, area, copies) else None

    def _copy(self, number: int, area: _Area) -> _Area | None:
        """The columns that an operator copies rows to; None for others."""
        op = self.ops[number]
        if op.type != "assign" or len(op.output_names()) != 1:
            return None
        to = self._area(op.output_names()[0])
        source = self._area(op.inputs["x"][0])
        if to is None or source is None or to[:3] != area[:3]:
            return None
        inside = area.left <= to.left and to.right <= area.right
        return to if inside and to.right - to.left < area.right - area.left else None

    def _is_free(self, to: _Area, copies: dict[int, tuple[int, _Area]], area: _Area) -> bool:
        taken = [area._replace(left=a, right=a + self._width(n)) for a, (n, _) in copies.items()]
        return not any(to.meets(one) for one in taken)

    def _source(self, number: int) -> _Area:
        area = self._area(self.ops[number].inputs["x"][0])
        assert area is not None, "copies are from matrices"
        return area

    def _width(self, number: int) -> int:
        source = self._source(number)
        return source.right - source.left

    def _view(self, area: _Area) -> str:
        """The variable of a rectangle."""
        base, top, bottom, left, right = area
        name = f"{base}.r{top}-{bottom}.c{left}-{right}"
        if name not in self.vars:
            dtype = self.vars[base].dtype
            view = View(base, top, bottom, left, right)
            var = VarDecl(name, (bottom - top, right - left), dtype, TEMPORARY, view=view)
            self.vars[name] = var
            self.added.append(var)
        return name

    def _is_right(self, splice: _Splice, area: _Area, copies: dict[int, tuple[int, _Area]]) -> bool:
        """Whether the parts can be read instead of the copies."""
        if min(splice.widths) < _NARROWEST:
            return False
        readers = {splice.product, *splice.gradients}
        last = max(readers)
        gone = set(splice.copies)
        for left, (number, source) in copies.items():
            column = area._replace(left=left, right=left + self._width(number))
            if any(column.meets(one) for _, one in copies.values()):
                return False  # a copy of a copy
            others = [n for n in self.touched[area.base] if n not in readers | gone]
            if any(n > number and self._reads(n, column) for n in others):
                return False
            if self._changes(column, number, last, gone):
                return False
            if self._changes(source, number, last, gone):
                return False
        rest = area  # columns that are not copied must stay as they are for the gradient
        return not self._changes(rest, splice.product, last, gone)

    # -- the new operators -----------------------------------------------------------------------

    def _replace(self, splice: _Splice, replaced: dict[int, list[OpNode]]) -> None:
        op = self.ops[splice.product]
        parts = tuple(splice.parts)
        inputs = {"x": parts, "w": op.inputs["y"]}
        gradients: dict[int, list[OpNode]] = {}
        for number in splice.gradients:
            gradients |= self._gradient(number, splice)
        if not replaced.keys().isdisjoint(gradients):
            return
        replaced |= {number: [] for number in splice.copies}
        replaced[splice.product] = [
            OpNode("nnet3.spliced_matmul", inputs, op.outputs, {}, op.role, op.device, op.source)
        ]
        replaced |= gradients

    def _gradient(self, number: int, splice: _Splice) -> dict[int, list[OpNode]]:
        """What takes the places of a gradient and of what adds its parts to others."""
        op = self.ops[number]
        grad = op.inputs["out_grad"]
        rest = (op.role, op.device, op.source)
        ops: list[OpNode] = []
        if "y_grad" in op.outputs:
            inputs = {"x": tuple(splice.parts), "out_grad": grad}
            outputs = {"w_grad": op.outputs["y_grad"]}
            ops.append(OpNode("nnet3.spliced_weight_grad", inputs, outputs, {}, *rest))
        if "x_grad" not in op.outputs:
            return {number: ops}
        inputs = {"out_grad": grad, "w": op.inputs["y"]}
        added = self._added(number, splice)
        if added is None:
            plain = {"x": grad, "y": op.inputs["y"]}
            ops.append(OpNode("matmul", plain, {"out": op.outputs["x_grad"]}, {}, *rest))
            return {number: ops}
        adds = [int(self.ops[n].type == "add") for _, n in added]
        targets = [self.ops[n].output_names()[0] for _, n in added]
        if any(adds):
            pairs = zip(targets, adds, strict=True)
            inputs["y"] = tuple(name if yes else EMPTY for name, yes in pairs)
        lefts = [sum(splice.widths[:place]) for place, _ in added]
        columns = [splice.widths[place] for place, _ in added]
        attrs = {"first": lefts, "columns": columns, "adds": adds}
        last = OpNode("nnet3.spliced_input_grad", inputs, {"x_grad": tuple(targets)}, attrs, *rest)
        numbers = [n for _, n in added]
        return {number: ops} | {n: [] for n in numbers[:-1]} | {numbers[-1]: [last]}

    def _added(self, number: int, splice: _Splice) -> list[tuple[int, int]] | None:
        """What reads the gradient of the spliced matrix: its part, and the operator that copies or
        adds it; None where that is not all."""
        op = self.ops[number]
        area = self._area(op.outputs["x_grad"][0])
        if area is None or area != (area.base, 0, area.bottom, 0, area.right):
            return None
        lefts = [sum(splice.widths[:place]) for place in range(len(splice.widths))]
        readers: list[tuple[int, int]] = []
        for user in self.touched[area.base]:
            if user < number:
                if self._reads(user, area) or self._writes(user, area):
                    return None
                continue
            if user == number:
                continue
            one = self.ops[user]
            slot = {"assign": "x", "add": "y"}.get(one.type, "")
            read = self._area(one.inputs[slot][0]) if slot and slot in one.inputs else None
            whole = read is not None and read[:3] == area[:3] and read.left in lefts
            if read is None or not whole or self._writes(user, area):
                return None
            place = lefts.index(read.left)
            if read.right - read.left != splice.widths[place]:
                return None
            if one.type == "add" and one.inputs["x"] != one.outputs["out"]:
                return None
            readers.append((place, user))
        if sorted(place for place, _ in readers) != list(range(len(lefts))):
            return None
        return readers if self._may_wait(number, [user for _, user in readers], op) else None

    def _may_wait(self, number: int, users: list[int], op: OpNode) -> bool:
        """Whether the product may be done where the last of its parts is added."""
        own = set(users)
        last = users[-1]
        for name in (*op.inputs["out_grad"], *op.inputs["y"]):
            area = next(self._areas([name]))
            if self._changes(area, number, last + 1, set()):
                return False
        for user in users:
            area = next(self._areas(self.ops[user].output_names()))
            between = [n for n in self.touched[area.base] if user < n < last and n not in own]
            if any(self._reads(n, area) or self._writes(n, area) for n in between):
                return False
        return True


def _columns(area: _Area, copied: dict[int, int]) -> list[tuple[int, int]]:
    """The columns of a matrix cut where copies begin and end.

    Args:
        copied: first column of each copy -> its columns.
    """
    columns = []
    at = area.left
    for left in sorted(copied):
        if at < left:
            columns.append((at, left))
        columns.append((left, left + copied[left]))
        at = left + copied[left]
    if at < area.right:
        columns.append((at, area.right))
    return columns
