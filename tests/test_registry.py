"""Every operator is complete: documented, with shape rule, reference kernel, gradient and test."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from opscope.framework.ir.registry import (
    REQUIRED,
    OperatorDef,
    load_operators,
    lookup,
    operator_types,
)
from opscope.proto import net_pb2 as pb

TESTS = Path(__file__).parent
HELPERS = {"toy_ops.py", "random_nets.py", Path(__file__).name}
QUOTED = re.compile(r"""(?<=["'])[a-z][a-z0-9_.]*(?=["'])""")
NAME = re.compile(r"[a-z][a-z0-9_]*")
C_NAMES = set(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh asin acos atan atan2"
    " asinh acosh atanh erf erfc fabs fmax fmin sqrt cbrt pow floor ceil rint round trunc fmod"
    " copysign isnan isinf isfinite hypot nearbyint".split()
)


def entries() -> list[OperatorDef]:
    """The package's own operators that run; those of installed plug-ins are their authors' to test.

    What `bridges` registers describes alone.
    """
    load_operators()
    homes = {entry.type: home(entry) for entry in map(lookup, operator_types())}
    own = [k for k, at in homes.items() if at.startswith("opscope.") and ".bridges." not in at]
    return [lookup(kind) for kind in own]


def home(entry: OperatorDef) -> str:
    """The module that registered an operator."""
    parts = [kernel.bind for kernel in entry.kernels] + [entry.expand, entry.shape]
    return next((part.__module__ for part in parts if part is not None), "opscope.")


def of_each(
    chosen: Callable[[], Sequence[OperatorDef]],
) -> Callable[[Callable[[OperatorDef], None]], Callable[[], None]]:
    """Makes one test of a check of one operator; it names every operator that does not pass."""

    def make(check: Callable[[OperatorDef], None]) -> Callable[[], None]:
        def test() -> None:
            failed = {}
            for entry in chosen():
                try:
                    check(entry)
                except Exception as error:
                    failed[entry.type] = f"{type(error).__name__}: {error}"
            assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())

        test.__doc__ = check.__doc__
        return test

    return make


def gradient_of(entry: OperatorDef) -> OperatorDef | None:
    """The operator whose gradient this one is."""
    forward = entry.type.removesuffix("_grad")
    return lookup(forward) if forward != entry.type and forward in operator_types() else None


@cache
def words_in_tests() -> frozenset[str]:
    """Types of test classes, all other words in quotes, and test files named after operators."""
    words = {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")}
    for path in TESTS.rglob("test_*.py"):
        if path.name not in HELPERS and "framework" not in path.parts:
            words.update(QUOTED.findall(path.read_text(encoding="utf-8")))
    return frozenset(words)


def gradients() -> list[OperatorDef]:
    """The operators that are gradients of others."""
    return [entry for entry in entries() if gradient_of(entry) is not None]


def test_the_registry_is_not_empty():
    assert len(entries()) > 50 and len(gradients()) > 20


def test_common_operators_have_all_their_kernels():
    """Those of rooms of a room, too: plans are made with what is registered first."""
    code = (
        "from opscope.framework.ir import registry\n"
        "registry.lookup('matmul')\n"
        "kernels = {kind: list(one.kernels) for kind, one in registry.REGISTERED.items()}\n"
        "registry.load_operators()\n"
        "late = [kind for kind, own in kernels.items() if registry.lookup(kind).kernels != own]\n"
        "print(len(kernels), *late)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    count, *late = done.stdout.split()
    assert int(count) > 100 and not late


def test_each_operator_that_fails_is_named():
    def check(entry: OperatorDef) -> None:
        if entry.type in ("reciprocal", "relu"):
            raise ValueError("a reason")

    with pytest.raises(AssertionError) as caught:
        of_each(entries)(check)()
    told = str(caught.value)
    assert re.findall(r"^ *(\w+): ValueError: a reason$", told, re.M) == ["reciprocal", "relu"]


@of_each(entries)
def test_doc(entry):
    assert len(entry.doc.strip()) > 10, "say the formula and the shapes"
    assert entry.doc.strip().endswith((".", ")", "`")), "a sentence ends"
    for part in (*entry.inputs, *entry.outputs, *entry.attrs):
        assert part.doc.strip(), f"{part.name} has no doc text"


@of_each(entries)
def test_names(entry):
    names = [part.name for part in (*entry.inputs, *entry.outputs, *entry.attrs)]
    assert NAME.fullmatch(entry.type.rpartition(".")[2]), "a dialect may stand before a dot"
    assert all(NAME.fullmatch(name) for name in names), names
    assert len(set(names)) == len(names), "a name stands for one thing"


@of_each(entries)
def test_shape_rule(entry):
    assert entry.shape is not None or entry.expand is not None


@of_each(entries)
def test_reference_kernel(entry):
    if entry.expand is None:
        plain = [
            kernel
            for kernel in entry.kernels
            if kernel.library == "xp" and kernel.device == "" and kernel.dtypes is None
        ]
        assert len(plain) == 1, "one kernel for NumPy and CuPy and every dtype"
    else:
        assert not entry.kernels, "a composite is never run itself"


@of_each(entries)
def test_gradient(entry):
    given = [entry.gradient is not None, bool(entry.no_gradient), entry.expand is not None]
    assert any(given), "write one, or say why there is none (no_gradient)"
    assert not (given[0] and given[1]), "a gradient and a reason for having none"


@of_each(entries)
def test_slots(entry):
    for slot in entry.outputs:
        if slot.inplace:
            assert slot.inplace in entry.input_slots, f"{slot.name} shares an input that is not"
            shared = entry.input_slots[slot.inplace]
            assert not shared.shape_only, f"{slot.name} is written over a value that is not there"
        assert not slot.shape_only, f"{slot.name}: outputs are not read"
    for slot in entry.inputs:
        assert not slot.intermediate and not slot.inplace, f"{slot.name}: flags of outputs"
    assert entry.outputs or not entry.inputs, "what reads something writes something"


@of_each(entries)
def test_attributes(entry):
    for spec in entry.attrs:
        if spec.default is not REQUIRED and spec.default is not None:
            spec.check(spec.default, entry.type)
        for choice in spec.choices:
            spec.check(choice, entry.type)


@of_each(entries)
def test_scalar_expressions_name_slots_and_attributes_only(entry):
    known = {*entry.input_slots, *entry.attr_specs} | C_NAMES
    if any(slot.duplicable for slot in entry.inputs):
        known.add("sum")  # over the variables of a slot
    for slot, expression in entry.expressions.items():
        assert slot in entry.output_slots
        used = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", expression))
        assert used <= known, f"{slot}: {sorted(used - known)}"


@of_each(entries)
def test_message(entry):
    proto = entry.to_proto()
    assert pb.OpProto.FromString(proto.SerializeToString()) == proto
    assert proto.gradient and [slot.name for slot in proto.inputs] == list(entry.input_slots)


@of_each(gradients)
def test_schema_of_a_gradient(grad):
    forward = gradient_of(grad)
    for slot in grad.outputs:
        source = slot.name.removesuffix("_grad")
        assert source in forward.input_slots
        assert slot.optional or len(grad.outputs) == 1, "one gradient may be wanted without others"
        assert slot.duplicable == forward.input_slots[source].duplicable


@of_each(entries)
def test_is_tested(entry):
    if gradient_of(entry) is None:
        assert entry.type in words_in_tests(), (
            f"no test of {entry.type}: derive a class from OpTest, or name a test file after it"
        )
