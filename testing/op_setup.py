"""One use of an operator, for the harness: what is given, what is expected, and its gradients."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..framework.base.backend import CPUPlace, Place
from ..framework.base.dtypes import is_float, wide
from ..framework.base.errors import UnknownOperatorError, format_shape
from ..framework.ir.desc import INPUT, PARAMETER, make_op, make_var
from ..framework.ir.infer import infer_specs
from ..framework.ir.names import rows_name
from ..framework.ir.op_list import OpList, OpNode
from ..framework.ir.operation import Operator, check_attrs, expand_op
from ..framework.ir.registry import OperatorDef, lookup
from ..framework.passes.backward import build_backward
from .op_runner import Ran, execute

TAIL = "neg"
"""A fusible operator that nets of the harness end in, so that the one under test has company."""


@dataclass(frozen=True)
class Case:
    """One use of an operator.

    Attributes:
        inputs: slot -> array, or list of arrays where the slot is duplicable. Floating arrays are
            cast to the dtype under test.
        attrs: attributes that differ from the defaults.
        train: the phase.
        share: output slot -> input slot whose variable it writes to (state that is updated).
        offsets: input slot -> levels of sequence offsets (a list of levels for each variable where
            the slot is duplicable). The reference gets them as the attribute `offsets`.
        outputs: optional output slots to ask for although the reference does not give them.
    """

    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    train: bool = True
    share: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> Case:
        """The case with every input array changed."""
        inputs = {
            slot: [change(np.asarray(item)) for item in value]
            if isinstance(value, list)
            else change(np.asarray(value))
            for slot, value in self.inputs.items()
        }
        return replace(self, inputs=inputs)

    def with_values(self, values: Sequence[float]) -> Case:
        """The case with `values` written over the first elements of each float input."""

        def change(array: np.ndarray) -> np.ndarray:
            if not is_float(array.dtype):
                return array
            changed = array.copy()
            flat = changed.reshape(-1)
            count = min(len(values), flat.size)
            flat[:count] = values[:count]
            return changed

        return self.mapped(change)


def difference(found: np.ndarray, wanted: np.ndarray, least: float = 1e-30) -> float:
    """Largest difference relative to the largest finite element; infinite where NaNs differ.

    Args:
        least: what the largest element counts for at least.
    """
    if found.shape != wanted.shape:
        return np.inf
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    special = ~(np.isfinite(found) & np.isfinite(wanted))
    if not np.array_equal(found[special], wanted[special], equal_nan=True):
        return np.inf
    if special.all():
        return 0.0
    gap = np.abs(found[~special] - wanted[~special]).max()
    return float(gap / max(np.abs(wanted[~special]).max(), least))


class Setup:
    """A case in one dtype: OpDescs, arrays and shapes by variable name, and the expected values."""

    def __init__(
        self,
        entry: OperatorDef,
        case: Case,
        dtype: Any,
        reference: Any,
        outputs: dict[str, list[str]] | None = None,
    ) -> None:
        self.entry = entry
        self.case = case
        self.dtype = dtype
        self.inputs: dict[str, list[str]] = {}
        self.arrays: dict[str, np.ndarray] = {}
        for slot, value in case.inputs.items():
            listed = value if isinstance(value, list) else [value]
            self.inputs[slot] = _variables(slot, len(listed), isinstance(value, list))
            for name, item in zip(self.inputs[slot], listed, strict=True):
                self.arrays[name] = _cast(np.asarray(item), dtype)
        self.given_offsets = self._offsets_of_inputs()
        self.offsets = dict(self.given_offsets)  # the outputs' are added
        self.wanted: dict[str, Any] = {}
        if reference:
            self.expect(reference)
        self.outputs = self._output_variables() if outputs is None else outputs
        self.written = {name for names in self.outputs.values() for name in names}
        self.descs = expand_op(make_op(entry.type, self.inputs, self.outputs, case.attrs))
        self.given = {name: (a.shape, a.dtype) for name, a in self.arrays.items()}
        self.specs = infer_specs(
            [Operator(desc) for desc in self.descs], self.given, {}, self.offsets
        )

    def _offsets_of_inputs(self) -> dict[str, tuple[np.ndarray, ...]]:
        found = {}
        for slot, levels in self.case.offsets.items():
            each = levels if isinstance(self.case.inputs[slot], list) else [levels]
            for name, own in zip(self.inputs[slot], each, strict=True):
                found[name] = tuple(np.asarray(level, np.int64) for level in own)
        return found

    def of_case(self, case: Case) -> Setup:
        """Another case of the operator with outputs like these, and nothing expected yet.

        Raises:
            OpscopeError: the shape rule or an attribute check refuses it.
        """
        return Setup(self.entry, case, self.dtype, None, self.outputs)

    def of_dtype(self, dtype: Any) -> Setup:
        """The same use in another dtype; what is expected stays."""
        made = Setup(self.entry, self.case, dtype, None, self.outputs)
        made.wanted = self.wanted
        return made

    def expect(self, reference: Any) -> None:
        """Expect what the reference makes of the inputs."""
        values = {
            slot: [_up(self.arrays[name]) for name in names]
            if isinstance(self.case.inputs[slot], list)
            else _up(self.arrays[names[0]])
            for slot, names in self.inputs.items()
        }
        given = make_op(self.entry.type, {}, {}, self.case.attrs).attrs
        attrs = check_attrs(self.entry, given, f"op {self.entry.type}")
        if self.case.offsets:
            attrs["offsets"] = self.case.offsets
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
            self.wanted = reference(values, attrs)

    def _output_variables(self) -> dict[str, list[str]]:
        made = {}
        for slot in self.entry.outputs:
            wanted = self.wanted.get(slot.name)
            if slot.name in self.case.share:
                made[slot.name] = self.inputs[self.case.share[slot.name]]
            elif wanted is not None or slot.name in self.case.outputs or not slot.optional:
                many = isinstance(wanted, (list, tuple))
                made[slot.name] = _variables(slot.name, len(wanted) if many else 1, many)
        # Where all are optional and none is asked for: an operator must write something.
        return made or {slot.name: _variables(slot.name, 1, False) for slot in self.entry.outputs}

    def execute(
        self,
        descs: Sequence[OpNode],
        arrays: Mapping[str, np.ndarray],
        specs: Mapping[str, Any],
        place: Place | None,
        **how: Any,
    ) -> Ran:
        """Run operators of this use, on the CPU if no place is said; `how` as in `execute`."""
        how |= {"title": self, "train": self.case.train, "offsets": self.offsets}
        return execute(descs, arrays, specs, place or CPUPlace(), **how)

    def expected(self) -> dict[str, np.ndarray]:
        """Variable -> reference value, for the outputs that the reference gives."""
        found = {}
        for slot, value in self.wanted.items():
            listed = value if isinstance(value, (list, tuple)) else [value]
            for name, item in zip(self.outputs[slot], listed, strict=True):
                found[name] = np.asarray(item)
        return found

    def check(
        self, arrays: Mapping[str, np.ndarray], test: Any, what: str = "", least: float = 1e-30
    ) -> None:
        """Assert that the outputs are the reference's; `least` as in `difference`."""
        for name, wanted in self.expected().items():
            found = arrays[name]
            assert found.shape == wanted.shape, (
                f"{self}: {what} {name!r} is {found.shape}, the reference is {wanted.shape}"
            )
            exact = not (is_float(wanted.dtype) or is_float(found.dtype))
            error = difference(found, wanted, least)
            bound = 0.0 if exact else test._tolerance(self.dtype)
            assert error <= bound, f"{self}: {what} {name!r} is off by {error}, bound {bound}"

    def check_specs(self, test: Any) -> None:
        """Assert that inferred shapes and dtypes equal the reference's."""
        for names in self.outputs.values():
            for name in names:
                assert all(d >= 0 for d in self.specs[name][0]), f"{self}: {name!r} is not known"
        floats = any(is_float(dtype) for _, dtype in self.given.values())
        for name, wanted in self.expected().items():
            shape, dtype = self.specs[name]
            assert shape == wanted.shape, (
                f"{self}: {name!r} is inferred as {shape}, the reference is {wanted.shape}"
            )
            slot = next(slot for slot, names in self.outputs.items() if name in names)
            right = wanted.dtype
            if right == np.float64 and floats and slot not in test.exact_dtype:
                right = np.dtype(self.dtype)
            same_kind = right == np.float64 and not floats and slot not in test.exact_dtype
            fits = dtype in (right, wide(right)) or (same_kind and is_float(dtype))
            assert fits, f"{self}: {name!r} is inferred as {dtype}, want {right}"

    # -- gradients -------------------------------------------------------------------------------

    def wrt(self, slots: Sequence[str]) -> list[str]:
        """Variables of the given input slots."""
        return [name for slot in slots for name in self.inputs.get(slot, ())]

    def losses(self) -> list[str]:
        """Outputs that the loss is made of: its weights are `seed(name)`."""
        return [
            name
            for slot in self.entry.outputs
            if not slot.intermediate and slot.name not in self.case.share
            for name in self.outputs.get(slot.name, ())
            if is_float(self.specs[name][1])
        ]

    def seed(self, name: str) -> np.ndarray:
        """The gradient of the loss with respect to an output."""
        shape, dtype = self.specs[name]
        return _seed(name, tuple(shape), np.dtype(dtype)).copy()

    def net(
        self, tails: bool = True, trained: Collection[str] = ()
    ) -> tuple[OpList, dict[str, str]]:
        """A net of the operator, and variables to differentiate -> the output each stems from.

        Args:
            tails: whether each output goes through one more operator.
            trained: inputs that are parameters.
        """
        desc = OpList(name=self.entry.type)
        for name, (shape, dtype) in self.given.items():
            kind = PARAMETER if name in trained else INPUT
            desc.vars.append(make_var(name, shape, dtype, kind))
        for name, (shape, dtype) in self.specs.items():
            if name not in self.given:
                desc.vars.append(make_var(name, shape, dtype))
        desc.ops.extend(self.descs)
        targets = {name: name for name in self.losses()}
        if tails and _registered(TAIL):
            targets = {f"{name}_tail": name for name in targets}
            for tail, name in targets.items():
                desc.ops.append(make_op(TAIL, {"x": name}, {"out": tail}))
                desc.vars.append(make_var(tail, *self.specs[name]))
        return desc, targets

    def gradients(
        self,
        arrays: Mapping[str, np.ndarray],
        slots: Sequence[str],
        place: Place | None = None,
        *,
        only: Sequence[str] = (),
        inplace: bool = False,
        without_flagged: bool = False,
        libraries: tuple[str, ...] = ("xp",),
        proved: set[tuple[str, str]] | None = None,
    ) -> dict[str, np.ndarray]:
        """Gradient of each variable of `slots` (or `only` of these) from a finished forward run."""
        names = list(only) or self.wrt(slots)
        assert names, f"{self}: the case gives none of the slots {slots}"
        result = build_backward(
            self.net(tails=False)[0], targets={n: f"{n}_seed" for n in self.losses()}, wrt=names
        )
        held = dict(arrays) | {f"{name}_seed": self.seed(name) for name in self.losses()}
        specs = {name: (array.shape, array.dtype) for name, array in held.items()}
        if without_flagged:
            flagged = {
                name
                for slots_, names_ in (
                    (self.entry.inputs, self.inputs),
                    (self.entry.outputs, self.outputs),
                )
                for slot in slots_
                if slot.not_in_gradient
                for name in names_.get(slot.name, ())
            }
            for name in flagged:
                del held[name]
        ran = self.execute(
            result.ops, held, specs, place, inplace=inplace, withhold=True, libraries=libraries
        )
        if proved is not None:
            proved |= ran.proved
        found = {}
        for name in names:
            assert name in result.gradients, f"{self}: no gradient of {name!r} is built"
            own = result.gradients[name]
            found[name] = self.dense(name, ran.arrays[own], ran.arrays.get(rows_name(own)))
        return found

    def dense(self, name: str, gradient: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        """The whole gradient of a variable, which may hold some rows of it only."""
        if rows is not None:
            whole = np.zeros(self.given[name][0], gradient.dtype)
            np.add.at(whole, rows, gradient)
            gradient = whole
        assert gradient.shape == self.given[name][0], (
            f"{self}: the gradient of {name!r} is {gradient.shape}"
        )
        return gradient

    def slope(self, steps: Mapping[str, np.ndarray], size: float, place: Place) -> float:
        """Derivative of the loss along `steps`, by differences of fourth order."""

        def loss(times: float) -> float:
            moved = dict(self.arrays)
            for name, step in steps.items():
                moved[name] = self.arrays[name] + times * size * step
            out = run(self, place, arrays=moved, twice=False).arrays
            return sum(float((out[name] * self.seed(name)).sum()) for name in self.losses())

        return (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * size)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {dtype}{format_shape(shape)}" for name, (shape, dtype) in self.given.items()
        )
        attrs = f" {dict(self.case.attrs)}" if self.case.attrs else ""
        return f"{self.entry.type}({shapes}){attrs}"


def run(setup: Setup, place: Place | None = None, *, arrays: Any = None, **how: Any) -> Ran:
    """Run a case's forward operators; `how` as in `execute`."""
    given = setup.arrays if arrays is None else arrays
    return setup.execute(setup.descs, given, setup.given, place, **how)


@functools.cache
def _seed(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """See `Setup.seed`: to make a generator takes longer than most operators."""
    rng = np.random.default_rng(sum(map(ord, name)))
    return rng.uniform(0.5, 1.5, shape).astype(dtype) * rng.choice([-1, 1], shape).astype(dtype)


def _cast(array: np.ndarray, dtype: Any) -> np.ndarray:
    return array.astype(dtype, copy=True) if is_float(array.dtype) and dtype else array.copy()


def _up(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if is_float(array.dtype) else array


def _variables(slot: str, count: int, many: bool) -> list[str]:
    return [f"{slot}_{i}" for i in range(count)] if many else [slot]


def _registered(op_type: str) -> bool:
    try:
        lookup(op_type)
    except UnknownOperatorError:
        return False
    return True
