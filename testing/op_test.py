"""The harness of operator tests: three small methods describe an operator, the rest follows.

    class TestRelu(OpTest):
        type = "relu"

        def cases(self, rng):
            yield Case({"x": rng.normal(size=(3, 4))})

        def reference(self, inputs, attrs):
            return {"out": np.maximum(inputs["x"], 0)}

        grad = ("x",)

Checked for every case, on NumPy, on a stand-in of CuPy (device_double.py) and on a GPU if there is
one: values against the reference in each dtype, with contiguous and strided arrays and each kernel
library; inferred against real shapes and dtypes, also with unknown dimensions; gradients along
random directions in float64, also of some inputs while the others are fixed; axes of length 1
and 0 wherever the shape rule takes them; inputs of a wrong rank or length; flags
(`inplace`, `not_in_gradient`, `shape_only`) by taking away what they say is not needed; runs
through a net with every switch of the plan on and off.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any, ClassVar

import numpy as np
import pytest

from ..framework.base.backend import CPUPlace, GPUPlace, gpu_present, require_dtype
from ..framework.base.context import OpContext
from ..framework.base.dtypes import HALVES as HALF_DTYPES
from ..framework.base.dtypes import is_float, to_dtype
from ..framework.base.errors import DeviceError, OpscopeError, ShapeError
from ..framework.base.options.settings import options
from ..framework.base.scope import Scope
from ..framework.base.sequence import Sequences
from ..framework.base.sizes.shape import fits
from ..framework.ir.infer import infer_specs
from ..framework.ir.names import rows_name
from ..framework.ir.operation import Operator
from ..framework.ir.registry import OperatorDef, lookup
from ..framework.runtime.feeding import Inputs, set_inputs
from ..framework.runtime.plain_net import PlainNet
from .device_double import DOUBLE, instead_of_cupy
from .op_setup import Case, Setup, difference, run
from .op_sizes import lowered, mistaken, other_slots, resized

__all__ = ["Case", "OpTest"]

HALVES = tuple(dtype.name for dtype in HALF_DTYPES)  # bfloat16 needs ml_dtypes
PLACES = [CPUPlace(), DOUBLE] + ([GPUPlace()] if gpu_present() else [])

_LEAST = 1.0
"""What the largest result counts for at least where sizes are 1: some are 0 by cancellation."""
_FIXED_CASES = 3
"""Cases with the same inputs that are trained with some of these fixed."""
_MISTAKEN_CASES = 2
"""Cases whose inputs are made wrong, one by one."""

_PLANNED = ("fuse", "reuse", "inplace")


class OpTest:
    """Base of operator tests; see the module's text.

    Attributes:
        type: the operator.
        grad: input slots whose gradients are checked; () where there are none.
        dtypes: what the floating inputs of a case are cast to.
        halves: whether cases also run in float16 and bfloat16.
        tolerance, tolerance64, tolerance16: allowed error, relative to the largest element of the
            array or, where `elementwise`, to each element (and to 1 for smaller ones). For
            bfloat16 it is 8 times as large as for float16.
        gradient_tolerance: of the float64 gradients; `step`: of the finite differences. Cases keep
            away from kinks by more than twice the step.
        resize: whether axes are made 1 and 0 long; not where attributes, or numbers in the inputs,
            say how long they are, which the shape rule cannot see.
        strided_outputs: matrices that are outputs are also given as column ranges of wider ones.
        exact_dtype: output slots whose dtype is exactly the reference's (elsewhere a float64
            reference stands for the dtype under test).
        distinct: the integers of its inputs must differ: positions that something is put at.
        nan: for operators with a scalar expression: NaN in the float inputs must give NaN where the
            reference does.
    """

    type: ClassVar[str]
    grad: ClassVar[tuple[str, ...]] = ()
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    halves: ClassVar[bool] = True
    tolerance: ClassVar[float] = 1e-5
    tolerance64: ClassVar[float] = 1e-12
    tolerance16: ClassVar[float] = 1e-3
    gradient_tolerance: ClassVar[float] = 1e-6
    step: ClassVar[float] = 1e-4
    resize: ClassVar[bool] = True
    strided_outputs: ClassVar[bool] = True
    exact_dtype: ClassVar[tuple[str, ...]] = ()
    distinct: ClassVar[bool] = False
    nan: ClassVar[bool] = True

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        """The cases; float arrays are cast to the dtype under test, others keep theirs."""
        raise AssertionError(f"{type(self).__name__} gives no cases")

    def reference(self, inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        """Outputs by slot, from float64 inputs; slots left out have their shapes checked only.

        A duplicable output slot is a list: its length says how many variables the slot gets.
        `attrs` holds every attribute, defaults filled in.
        """
        raise AssertionError(f"{type(self).__name__} gives no reference")

    # -- for the tests of operators --------------------------------------------------------------

    @property
    def entry(self) -> OperatorDef:
        return lookup(self.type)

    def refuses(
        self,
        match: str,
        inputs: dict[str, Any],
        attrs: Any = None,
        error: type = ShapeError,
        offsets: Any = None,
    ) -> None:
        """Assert that shape rule or attribute check refuse a case with one clear error."""
        with pytest.raises(error, match=match) as caught:
            self.setup(Case(inputs, attrs or {}, offsets=offsets or {}), None, want=False)
        assert self.type in str(caught.value)

    def setup(self, case: Case, dtype: Any, want: bool = True) -> Setup:
        """A case made ready to run: OpDescs, arrays by variable name, what to expect."""
        return Setup(self.entry, case, dtype, self.reference if want else None)

    def output(self, case: Case, dtype: Any = "float32") -> dict[str, np.ndarray]:
        """Values of every variable after a plain run, by name (slot, or slot_0, slot_1 ...)."""
        return run(self.setup(case, dtype, want=False)).arrays

    # -- values ----------------------------------------------------------------------------------

    @pytest.fixture(params=PLACES, ids=str)
    def place(self, request: pytest.FixtureRequest) -> Iterator[Any]:
        """Each place that tests run on: the CPU, the stand-in of CuPy, a GPU if there is one."""
        with instead_of_cupy() if request.param is DOUBLE else nullcontext():
            yield request.param

    def test_values(self, place: Any) -> None:
        for setup in self._setups():
            setup.check(run(setup, place).arrays, self)
        for library in self._libraries():
            with suppress(DeviceError):  # this machine lacks what the library needs
                for setup in self._setups():
                    setup.check(run(setup, place, libraries=(library, "xp")).arrays, self)

    def test_strided(self, place: Any) -> None:
        for setup in self._setups():
            for layout in ("columns", "transposed"):
                arrays = run(setup, place, layout=layout).arrays
                setup.check(arrays, self, f"inputs {layout}")
            if self.strided_outputs:
                arrays = run(setup, place, strided_outputs=True).arrays
                setup.check(arrays, self, "outputs that are column ranges")

    def test_sizes(self, place: Any) -> None:
        """Axes of length 1 and 0, wherever the shape rule takes them; see op_sizes.py.

        An operator may refuse them when it runs, with an error of its own: for what their data say.
        """
        seen: set[str] = set()
        libraries = self._libraries() if place.kind == "cpu" else []
        for case in self._cases() if self.resize else ():
            for setup in resized(self.setup(case, "float64"), seen):
                self._check_size(setup, libraries, place)

    def test_mistaken_inputs(self) -> None:
        """An input that does not fit ends in an error of our own, or is one that the rule takes."""
        for case in itertools.islice(self._cases(), _MISTAKEN_CASES):
            setup = self.setup(case, "float64")
            for wrong in mistaken(case):
                with suppress(OpscopeError):
                    run(setup.of_case(wrong))

    def test_optional_slots(self) -> None:
        """Each optional slot alone, left out or asked for, gives values or an error of our own."""
        for setup in self._setups():
            for case, outputs in other_slots(setup):
                with suppress(OpscopeError):
                    run(Setup(self.entry, case, setup.dtype, None, outputs))

    def _check_size(self, setup: Setup, libraries: list[str], place: Any) -> None:
        try:
            arrays = run(setup, place).arrays
        except OpscopeError:
            if self.distinct:
                return
            try:
                setup = lowered(setup)
                arrays = run(setup, place).arrays
            except OpscopeError:
                return
        setup.expect(self.reference)
        setup.check(arrays, self, least=_LEAST)
        gradients: dict[str, Any] = {}
        if setup.wrt(self.grad):
            gradients = setup.gradients(arrays, self.grad, place)
            if all(np.isfinite(arrays[name]).all() for name in setup.losses()):
                self._check_directions(setup, [list(gradients)], gradients, place)
        for library in libraries:
            with suppress(DeviceError):  # this machine lacks what the library needs
                self._check_library(setup, gradients, place, library)

    def _check_library(
        self, setup: Setup, gradients: dict[str, Any], place: Any, library: str
    ) -> None:
        """What the kernels of a library compute in float32."""
        single = setup.of_dtype("float32")
        libraries = (library, "xp")
        arrays = run(single, place, libraries=libraries).arrays
        single.check(arrays, self, f"by {library}", least=_LEAST)
        if gradients:
            found = single.gradients(arrays, self.grad, place, libraries=libraries)
            for name, wanted in gradients.items():
                error = difference(found[name], wanted, _LEAST)
                assert error <= 20 * self.tolerance, (
                    f"{single}: the gradient of {name!r} by {library} is off by {error}"
                )

    def test_leaves_inputs_alone(self) -> None:
        for setup in self._setups():
            before = {name: array.copy() for name, array in setup.arrays.items()}
            after = run(setup).arrays
            for name in set(before) - setup.written:
                assert np.array_equal(before[name], after[name], equal_nan=True), (
                    f"{setup}: the kernel changes its input {name!r}"
                )

    # -- shapes ----------------------------------------------------------------------------------

    def test_shapes(self) -> None:
        for setup in self._setups():
            setup.check_specs(self)
            operators = [Operator(desc) for desc in setup.descs]
            # Offsets of None: as while a net is built.
            for hide, offsets in itertools.product(("leading", "all"), (setup.offsets, None)):
                given = {
                    name: (_hidden(spec[0], hide), spec[1]) for name, spec in setup.given.items()
                }
                specs = infer_specs(operators, given, {}, offsets)
                for name, (shape, dtype) in setup.specs.items():
                    assert fits(specs[name][0], shape) and specs[name][1] == dtype, (
                        f"{setup}: with {hide} dimensions unknown, {name!r} is inferred as"
                        f" {specs[name]}, but it is {(shape, dtype)}"
                    )

    # -- half precision --------------------------------------------------------------------------

    @pytest.mark.parametrize("dtype", HALVES)
    def test_halves(self, place: Any, dtype: str) -> None:
        """As exact as results that are rounded once: sums and products are made in float32."""
        if not self.halves or not _holds(place, dtype):
            return
        for case in self._cases():
            setup = self.setup(case, dtype)
            arrays = run(setup, place).arrays
            setup.check(arrays, self)
            if not self.grad or not any(is_float(a.dtype) for a in setup.arrays.values()):
                continue
            rounded = case.mapped(lambda a: a.astype(dtype) if is_float(a.dtype) else a)
            exact = self.setup(rounded, "float64")
            wanted = exact.gradients(run(exact, place).arrays, self.grad, place)
            for name, found in setup.gradients(arrays, self.grad, place).items():
                error = difference(found, wanted[name])
                bound = 20 * self._tolerance(dtype)
                assert error <= bound, f"{setup}: gradient of {name!r} is off by {error}"

    # -- gradients -------------------------------------------------------------------------------

    def test_gradients(self, place: Any) -> None:
        for case in self._cases():
            if not self.grad:
                break
            setup = self.setup(case, "float64")
            gradients = setup.gradients(run(setup, place).arrays, self.grad, place)
            names = list(gradients)
            each = [[name] for name in names] + ([names] if len(names) > 1 else [])
            self._check_directions(setup, each, gradients, place)
            self._check_fixed(setup, gradients, place)
            single = self.setup(case, "float32")
            found = single.gradients(run(single, place).arrays, self.grad, place)
            for name, wanted in gradients.items():
                assert found[name].dtype == np.float32, f"{single}: dtype of {name!r}'s gradient"
                error = difference(found[name], wanted)
                bound = 20 * self.tolerance
                assert error <= bound, f"{single}: gradient of {name!r} in float32 is off: {error}"

    def _check_directions(
        self, setup: Setup, each: list[list[str]], gradients: dict[str, Any], place: Any
    ) -> None:
        rng = np.random.default_rng(1)
        for along in each:
            steps = {name: rng.uniform(-1, 1, setup.arrays[name].shape) for name in along}
            slope = setup.slope(steps, self.step, place)
            analytic = sum(float((gradients[name] * steps[name]).sum()) for name in along)
            size = sum(float(np.abs(gradients[name] * steps[name]).sum()) for name in along)
            error = abs(slope - analytic)
            bound = self.gradient_tolerance * max(size, abs(slope), 1e-3)
            assert error <= bound, (
                f"{setup}: the gradient of {', '.join(along)} gives the slope {analytic!r},"
                f" finite differences give {slope!r}"
            )

    def _check_fixed(self, setup: Setup, gradients: dict[str, Any], place: Any) -> None:
        subsets = _subsets(list(gradients))
        arrays = run(setup, place).arrays if subsets else {}
        for trained in subsets:
            found = setup.gradients(arrays, self.grad, place, only=trained)
            self._compare_fixed(setup, trained, found, gradients)

    def _compare_fixed(
        self, setup: Setup, trained: list[str], found: dict[str, Any], wanted: dict[str, Any]
    ) -> None:
        for name in trained:
            assert difference(found[name], wanted[name]) <= 1e-12, (
                f"{setup}: the gradient of {name!r} differs where only {', '.join(trained)} of"
                f" {', '.join(wanted)} want one"
            )

    def test_fixed_inputs(self) -> None:
        """A net whose parameters are some of the inputs, fed as users feed it, for each subset."""
        runs: Counter[Any] = Counter()
        for case in self._cases():
            setup = self.setup(case, "float64")
            names = setup.wrt(self.grad)
            subsets = _subsets(names)
            kind = tuple((slot, len(listed)) for slot, listed in setup.inputs.items())
            runs[kind] += 1
            if subsets and runs[kind] <= _FIXED_CASES:
                wanted = self._train_step(setup, names)
                for trained in subsets:
                    found = self._train_step(setup, trained)
                    self._compare_fixed(setup, trained, found, wanted)

    def _train_step(self, setup: Setup, trained: list[str]) -> dict[str, Any]:
        """The gradients of the parameters of a net, all other inputs of which are fed."""
        desc, targets = setup.net(trained=trained)
        net = PlainNet(desc)
        scope = Scope()
        seeds = {name: f"{name}_seed" for name in targets}
        gradients = net.add_backward_ops(targets=seeds)
        assert sorted(gradients) == sorted(trained), f"{setup}: no gradient of all of {trained}"
        for name, array in setup.arrays.items():
            if name in trained:
                scope.var(name).set(array.copy(), setup.given_offsets.get(name, ()))
        fed: dict[str, Any] = {
            name: Sequences(array, setup.given_offsets[name])
            if setup.given_offsets.get(name)
            else array
            for name, array in setup.arrays.items()
            if name not in trained
        }
        fed |= {f"{name}_seed": setup.seed(source) for name, source in targets.items()}
        set_inputs(scope, Inputs(net.op_list).read(fed))
        net.run(scope, OpContext(train=setup.case.train, seed=0))
        return {
            name: setup.dense(
                name,
                scope.numpy(own),
                scope.numpy(rows_name(own)) if rows_name(own) in scope else None,
            )
            for name, own in gradients.items()
        }

    # -- flags -----------------------------------------------------------------------------------

    def test_inplace_flags(self, place: Any) -> None:
        flags = {
            (entry.type, slot.name)
            for entry in self._entries()
            for slot in entry.outputs
            if slot.inplace
        }
        proved: set[tuple[str, str]] = set()
        for setup in self._setups():
            shared = run(setup, place, inplace=True)
            setup.check(shared.arrays, self, "outputs in the memory of inputs")
            proved |= shared.proved
            if self.grad and setup.dtype not in HALVES:
                arrays = run(setup, place).arrays
                wanted = setup.gradients(arrays, self.grad, place)
                found = setup.gradients(arrays, self.grad, place, inplace=True, proved=proved)
                for name in wanted:
                    error = difference(found[name], wanted[name])
                    assert error <= self._tolerance(setup.dtype), (
                        f"{setup}: the gradient of {name!r} is wrong where it is written over an"
                        f" input that an `inplace` flag allows"
                    )
        assert flags <= proved, f"no case here proves the inplace flags {sorted(flags - proved)}"

    def test_not_in_gradient_flags(self) -> None:
        for case in self._cases():
            if not self.grad:
                break
            setup = self.setup(case, "float64")
            arrays = run(setup).arrays
            wanted = setup.gradients(arrays, self.grad)
            found = setup.gradients(arrays, self.grad, without_flagged=True)
            for name in wanted:
                assert np.array_equal(found[name], wanted[name], equal_nan=True), (
                    f"{setup}: the gradient of {name!r} changes with values that"
                    " `not_in_gradient` says it does not read"
                )

    def test_grad_names_what_there_is(self) -> None:
        assert self.grad or self.entry.no_gradient or self.entry.gradient is None, (
            f"{self.type} has a gradient, but the test names no slot in `grad`"
        )

    # -- through nets ------------------------------------------------------------------------------

    def test_planned_and_fused(self, place: Any) -> None:
        for setup in self._setups():
            self._check_nets(setup, place)

    def test_special_values(self, place: Any) -> None:
        if not (self.entry.scalar and self.nan):
            return
        for case, dtype in itertools.product(self._cases(), self.dtypes):
            setup = self.setup(case.with_values((np.nan,)), dtype)
            setup.check(run(setup, place).arrays, self, "NaN in the inputs")
            special = case.with_values((np.nan, np.inf, -np.inf, 0.0, -0.0))
            self._check_nets(self.setup(special, dtype), place)

    def _check_nets(self, setup: Setup, place: Any) -> None:
        with options(**dict.fromkeys(_PLANNED, False)):
            wanted = self._run_net(setup, place)
        with options(**dict.fromkeys(_PLANNED, True)):
            found = self._run_net(setup, place)
        for name, array in wanted.items():
            error = difference(found[name], array)
            bound = 20 * self._tolerance(setup.dtype)
            assert error <= bound, (
                f"{setup}: {name!r} differs by {error} between a planned, fused run and a plain one"
            )

    def _run_net(self, setup: Setup, place: Any) -> dict[str, Any]:
        desc, targets = setup.net()
        net = PlainNet(desc)
        scope = Scope(place)
        results = [name for name in setup.specs if name not in setup.given]
        if self.grad and targets and setup.dtype not in HALVES:
            seeds = {name: f"{name}_seed" for name in targets}
            gradients = net.add_backward_ops(targets=seeds, wrt=setup.wrt(self.grad))
            scope.feed({f"{name}_seed": setup.seed(source) for name, source in targets.items()})
            results += gradients.values()
        results += targets
        found: dict[str, Any] = {}
        for _ in range(2):  # the second run takes the bound plan
            scope.feed(setup.arrays)
            for name, offsets in setup.given_offsets.items():
                scope.get(name).set(setup.arrays[name], offsets)
            net.run(scope, OpContext(place, train=setup.case.train, seed=0))
            now = {
                name: scope.numpy(name)
                for name in results
                if name in scope and scope.get(name).array is not None
            }
            for name, array in found.items():
                assert np.array_equal(array, now[name], equal_nan=True), (
                    f"{setup}: a second run of the same plan gives another {name!r}"
                )
            found = now
        return found

    # -- helpers -----------------------------------------------------------------------------------

    def _cases(self) -> Iterator[Case]:
        return self.cases(np.random.default_rng(0))

    def _setups(self) -> Iterator[Setup]:
        for case, dtype in itertools.product(self._cases(), self.dtypes):
            yield self.setup(case, dtype)

    def _entries(self) -> list[OperatorDef]:
        entries = [self.entry]
        if self.grad:
            try:
                entries.append(lookup(f"{self.type}_grad"))
            except OpscopeError:
                pass  # a gradient maker of existing operators, which have tests of their own
        return entries

    def _libraries(self) -> list[str]:
        kernels = [kernel for entry in self._entries() for kernel in entry.kernels]
        return sorted({kernel.library for kernel in kernels} - {"xp"})

    def _tolerance(self, dtype: str) -> float:
        bounds = {
            "float16": self.tolerance16,
            "bfloat16": 8 * self.tolerance16,
            "float32": self.tolerance,
            "float64": self.tolerance64,
        }
        return bounds[dtype]


def _holds(place: Any, dtype: str) -> bool:
    """Whether arrays of a place have a dtype: CuPy 13 has no bfloat16."""
    try:
        require_dtype(place, to_dtype(dtype))
    except DeviceError:
        return False
    return True


def _subsets(names: list[str]) -> list[list[str]]:
    """Subsets of some names; of many names, each alone and all but each."""
    sizes = range(1, len(names)) if len(names) <= 3 else (1, len(names) - 1)
    return [list(some) for size in sizes for some in itertools.combinations(names, size)]


def _hidden(shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    return (-1,) * len(shape) if what == "all" else (-1, *shape[1:])[: len(shape)]
