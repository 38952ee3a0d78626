"""Nets that earlier versions have written: same bytes, same numbers.

`tests/golden/pb/NAME.pb` is what the function NAME of `golden_nets.py` gave, `NAME.npz` what was
fed and what a run left in the scope. To add a net, write its function and run
`python tests/framework/test_golden_nets.py NAME` with `tests` on the path; files that are there
already are what this test protects and are never written anew. What builders
wrote since step nets hold composites whole is `cells/NAME.pb` there, and what they write since nets
hold layers whole, too, and compress matrices of nnet3 right after they are made, `whole/NAME.pb`:
all run to the same bits.
"""

from __future__ import annotations

import pathlib
import sys
import types
import zlib
from typing import Any

import numpy as np
import pytest

from opscope import options
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences, offsets_of
from opscope.framework.files.checkpoint import net_difference
from opscope.framework.ir.desc import INPUT, PARAMETER, STATE
from opscope.framework.ir.messages import as_op_list, parse_net, serialize_net
from opscope.framework.ir.printer import net_text
from opscope.framework.runtime.initialize import initialize
from opscope.framework.runtime.net import Net

TESTS = pathlib.Path(__file__).resolve().parent.parent
FOLDER = TESTS / "golden" / "pb"
LENGTHS = (3, 5, 1)
ROWS = sum(LENGTHS)


def _builders() -> types.ModuleType:
    """`golden_nets.py`, whose lines get into the nets, under a name that is the same anywhere."""
    module = types.ModuleType("golden_nets")
    text = (TESTS / "golden_nets.py").read_text(encoding="utf-8")
    exec(compile(text, "golden_nets.py", "exec"), module.__dict__)
    return module


NETS = _builders()


def built(name: str) -> bytes:
    """The file of a net as the present code writes it."""
    made = (NETS.RUNNING | NETS.DESCRIBED)[name]()
    made = made[0] if isinstance(made, tuple) else made
    return serialize_net(getattr(made, "desc", made))


def feed_for(name: str, data: bytes) -> dict[str, Any]:
    """Values for the inputs and parameters of a net: random, the same for a name at any time."""
    if name == "cntk_program":
        scope = NETS.cntk_program()[1]
        found = {}
        for var in parse_net(data).vars:
            held = scope.find(var.name)
            if var.kind in (INPUT, PARAMETER) and held is not None and held.array is not None:
                offsets = tuple(held.offsets or ())
                found[var.name] = Sequences(held.numpy(), offsets) if offsets else held.numpy()
        return found
    if name in ("steps", "pairs"):
        rng = np.random.default_rng(5)
        offsets = (offsets_of(LENGTHS),)
        values: dict[str, Any] = {"xs": rng.normal(size=(ROWS, 4)), "u": rng.normal(size=(4, 3))}
        values |= {"w": rng.normal(size=(3, 3)), "start": rng.normal(size=(3, 3))}
        if name == "pairs":
            return {
                "xs": Sequences(values["start"].repeat(3, axis=0), offsets),
                "w": values["w"],
                "parent": Sequences(np.array([2, 0, -1, -1, 0, 0, 1, 1, -1]), offsets),
            }
        return values | {"xs": Sequences(values["xs"], offsets)}
    feed: dict[str, Any] = {}
    for var in parse_net(data).vars:
        rng = np.random.default_rng(zlib.crc32(var.name.encode()))
        shape = [ROWS if dim < 0 else dim for dim in var.dims]
        if var.kind == INPUT and var.name == "label":
            feed[var.name] = rng.integers(0, 3, len(LENGTHS) if name == "words" else ROWS)
        elif var.kind == INPUT and var.name == "parent":
            feed[var.name] = np.array([2, 2, -1, -1, 0, 0, 1, 1, -1])
        elif var.kind == INPUT and var.name == "token":
            feed[var.name] = rng.integers(0, 7, ROWS)
        elif var.kind in (INPUT, PARAMETER) and var.shape is not None:
            feed[var.name] = (0.4 * rng.normal(size=shape)).astype(np.float32)
            if name == "block":
                feed[var.name] = feed[var.name].astype(np.float64)
        if var.name in feed and var.sequence_levels:
            feed[var.name] = Sequences(feed[var.name], (offsets_of(LENGTHS),))
    return feed


def run(data: bytes, feed: dict[str, Any]) -> dict[str, np.ndarray]:
    """Everything that a run leaves in its scope unasked."""
    net, scope = Net.create(parse_net(data)), Scope()
    for name, value in feed.items():
        scope.var(name).set(value)
    initialize(net.desc, scope, OpContext(seed=3))
    context = OpContext(seed=4, train=True, live_out=())
    net.run(scope, context)
    held = {name: scope.find(name) for name in sorted(scope.names())}
    return {n: v.numpy() for n, v in held.items() if v is not None and v.array is not None}


def arithmetic() -> np.ndarray:
    """Tells machines apart whose libraries round products and functions differently."""
    x = np.random.default_rng(1).normal(size=(13, 13))
    parts = []
    for dtype in (np.float32, np.float64):
        y = x.astype(dtype)
        parts += [y @ y, y @ y.T, np.exp(y), np.tanh(y), np.linalg.eigh(y @ y.T)[1], y.sum(0)]
    return np.array([zlib.crc32(part.tobytes()) for part in parts])


def stored(name: str) -> tuple[bytes, dict[str, Any], dict[str, np.ndarray], bool]:
    """The file of a net, what is fed, what came out, and whether on a machine like this one."""
    data = (FOLDER / f"{name}.pb").read_bytes()
    name = name.rpartition("/")[2]
    feed: dict[str, Any] = {}
    outputs: dict[str, np.ndarray] = {}
    with np.load(FOLDER / f"{name}.npz") as held:
        for key in held.files:
            kind, _, variable = key.partition("/")
            if kind == "feed":
                offsets = f"offsets/{variable}"
                array = held[key]
                feed[variable] = Sequences(array, (held[offsets],)) if offsets in held else array
            elif kind == "out":
                outputs[variable] = held[key]
        same = np.array_equal(held["arithmetic"], arithmetic())
    return data, feed, outputs, same


_PLAIN = {"libraries": "xp", "fuse": False, "recurrent": "steps"}
"""The kernels that wrote the files: NumPy's alone. What MKL and compiled loops give depends, in the
last bits, on the processor."""

ALL = sorted(NETS.RUNNING | NETS.DESCRIBED)
WHOLE = [
    f"{folder}/{path.stem}"
    for folder in ("cells", "whole")
    for path in sorted((FOLDER / folder).glob("*.pb"))
]


@pytest.mark.parametrize("name", ALL)
def test_builders_write_the_same_bytes(name: str) -> None:
    newest = f"whole/{name}" if f"whole/{name}" in WHOLE else name
    wanted = (FOLDER / f"{newest}.pb").read_bytes()
    found = built(name)
    assert net_text(parse_net(found), locations=True) == net_text(parse_net(wanted), locations=True)
    assert found == wanted


@pytest.mark.parametrize("name", ALL + WHOLE)
def test_read_and_written_again(name: str) -> None:
    data = (FOLDER / f"{name}.pb").read_bytes()
    assert serialize_net(parse_net(data)) == data


@pytest.mark.parametrize("name", sorted(NETS.RUNNING) + WHOLE)
def test_runs_give_the_same_bits(name: str) -> None:
    data, feed, outputs, same = stored(name)
    found = run(data, feed)
    assert outputs
    assert found.keys() >= outputs.keys()  # later versions leave more results readable
    # Other libraries round otherwise, and an optimizer may make a step of that: Adam divides a
    # gradient near zero by its own size.
    updated = {var.name for var in parse_net(data).vars if var.kind in (PARAMETER, STATE)}
    for variable, wanted in outputs.items():
        if variable in updated:
            continue
        assert found[variable].dtype == wanted.dtype
        np.testing.assert_allclose(found[variable], wanted, rtol=1e-3, atol=1e-5, err_msg=variable)
    if not same:
        return
    with options(**_PLAIN):
        found = run(data, feed)
    for variable, wanted in outputs.items():
        np.testing.assert_array_equal(found[variable], wanted, err_msg=variable)


def test_layers_that_are_whole_go_on_from_checkpoints_of_loops() -> None:
    before, now = (
        as_op_list(parse_net((FOLDER / folder / "words.pb").read_bytes()))
        for folder in ("cells", "whole")
    )
    assert net_difference(before, now) == ""
    now.ops = now.ops[:-1]
    assert net_difference(before, now) == f"{len(before.ops)} ops there and {len(now.ops)} here"


def _write(name: str) -> None:
    """Writes the files of a new net."""
    path = FOLDER / f"{name}.pb"
    if path.exists():
        raise SystemExit(f"{path} is there already")
    data = built(name)
    if name in NETS.RUNNING:
        feed = feed_for(name, data)
        arrays = {"arithmetic": arithmetic()}
        for variable, value in feed.items():
            packed = isinstance(value, Sequences)
            arrays[f"feed/{variable}"] = value.data if packed else value
            if packed:
                arrays[f"offsets/{variable}"] = value.levels[0]
        with options(**_PLAIN):
            arrays |= {f"out/{variable}": value for variable, value in run(data, feed).items()}
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    path.write_bytes(data)


if __name__ == "__main__":
    for wanted_name in sys.argv[1:] or ALL:
        _write(wanted_name)
