"""The door for what files say, and the limits of what they may ask for."""

import math

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, RunError
from opscope.framework.base.untrusted.limits import LIMITS, check_limit, limit
from opscope.framework.base.untrusted.opener import file_path, read_file
from opscope.framework.base.untrusted.values import (
    Fills,
    check_fill,
    count_of,
    json_value,
    member,
    shown,
    unicode_text,
    whole_number,
)
from opscope.framework.files.saved import loaded
from opscope.framework.ir import desc
from opscope.framework.ir.attributes.checked import attribute
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.initialize import initialize


def test_limits_are_set_by_the_switch(monkeypatch):
    monkeypatch.delenv("OPSCOPE_LIMITS", raising=False)
    assert limit("nesting") == LIMITS["nesting"].default
    monkeypatch.setenv("OPSCOPE_LIMITS", "nesting=7, fill=2M")
    assert (limit("nesting"), limit("fill"), limit("delay")) == (7, 2 << 20, 10_000)
    check_limit("nesting", 7, "it")
    with pytest.raises(FormatError, match=r"it: 8 levels, beyond the limit of 7.*nesting=NUMBER"):
        check_limit("nesting", 8, "it")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nestin=7", "no limit 'nestin' .did you mean nesting"),
        ("nesting=x", "nesting wants a number"),
        ("nesting", "nesting wants a number"),
        (f"nesting={'9' * 5000}", "nesting wants a number"),
    ],
)
def test_settings_that_are_none(monkeypatch, text, told):
    monkeypatch.setenv("OPSCOPE_LIMITS", text)
    with pytest.raises(OpscopeError, match=told):
        limit("fill")


@pytest.mark.parametrize("text", ["", "1.5", "x", "²", "1_0", " 1", "9" * 5000, "-1", "256", "+-1"])
def test_texts_that_are_no_whole_number(text):
    with pytest.raises(FormatError, match="the size: .* is no whole number from 0 to 255"):
        whole_number(text, "the size", 0, 255)


def test_whole_numbers():
    assert [whole_number(text, "n") for text in ("7", "+7", "-7", "007")] == [7, 7, -7, 7]
    assert whole_number("0" * 300 + "5", "n") == 5


def test_names_and_paths():
    assert unicode_text("ä", "a name") == "ä"
    with pytest.raises(FormatError, match=r"a name: 'a\\ud800' is no text in UTF-8"):
        unicode_text("a\ud800", "a name")
    with pytest.raises(FormatError, match="holds a NUL"):
        file_path("a\0b")
    with pytest.raises(FormatError, match="cannot be encoded"):
        file_path("a\ud800")
    assert len(shown("x" * 1000)) < 60


def test_files_that_never_end(monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "stream=1M")
    with pytest.raises(FormatError, match="/dev/zero: .*limit of 1048576"):
        read_file("/dev/zero", pipes=True)


def test_fills(monkeypatch):
    check_fill((3, 4), 4, "w")
    with pytest.raises(FormatError, match="w: .* bytes, beyond the limit"):
        check_fill((1 << 30, 1 << 30), 4, "w")


def test_fills_of_one_file_count_together(monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=100")
    for _ in range(3):
        check_fill((20,), 4, "w")  # nobody counts
    with Fills() as fills:
        check_fill((10,), 4, "a")
        with Fills():  # what the file includes
            check_fill((5,), 4, "b")
            with pytest.raises(FormatError, match="c, with 60 bytes before it: 104 bytes, .*fill="):
                check_fill((11,), 4, "c")
        check_fill((10,), 4, "d")
        assert fills.nbytes == 100
        assert count_of((0, 5), 4, "none") == 0  # holds nothing
        with pytest.raises(FormatError, match="e, with 100 bytes before it"):
            check_fill((), 1, "e")
    check_fill((20,), 4, "w")


def test_a_size_of_zero_hides_no_other():
    assert count_of((3, 4), 4, "w") == 12 and count_of((), 4, "w") == 1
    assert count_of((0, 1 << 20), 4, "w") == 0 and count_of((1 << 60,) * 3, 4, "w") == 1 << 180
    for dims in ((0, 1 << 32), [1 << 62, 1 << 62, 0]):
        with pytest.raises(FormatError, match=r"w: the shape \[.*beyond the limit"):
            count_of(dims, 4, "w")
        with pytest.raises(FormatError, match="w: .*beyond the limit"):
            check_fill(dims, 4, "w")
    with pytest.raises(FormatError, match=r"w has the shape \[2, -1\]"):
        count_of((2, -1), 4, "w")
    with pytest.raises(FormatError, match="w has 65 dimensions"):
        count_of((1,) * 65, 4, "w")


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, "1" * 5000, "{", "", "\ud800", '["\\uD800"]']
)
def test_json_that_is_none(text):
    with pytest.raises(FormatError, match="the state"):
        json_value(text, "the state")


def test_json_brackets_in_strings_are_no_nesting():
    assert json_value('{"a": "' + "[" * 500 + '\\""}', "it") == {"a": "[" * 500 + '"'}


@pytest.mark.parametrize("value", [None, "1", 1.5, True, -1, 1 << 40, [1]])
def test_members_that_are_no_epoch(value):
    with pytest.raises(FormatError, match="x: 'epoch'"):
        member({"epoch": value}, "epoch", int, "x")


def test_members():
    assert member({"a": 3}, "a", float, "x") == 3.0
    for value in (math.inf, math.nan, 1 << 80):
        with pytest.raises(FormatError, match="x: 'a'"):
            member({"a": value}, "a", float, "x")
    with pytest.raises(FormatError, match="'b' is missing"):
        member({}, "b", int, "x")


def test_attributes_of_other_kinds():
    op = make_op("t", {}, {}, {"n": 5, "s": "a", "l": [1, 2], "x": 0.5, "w": np.zeros(2)})
    assert attribute(op, "n", "int", 0, 9) == 5 and attribute(op, "l", "ints") == (1, 2)
    for name, kind, told in (
        ("n", "string", "should be a string, not a int"),
        ("s", "int", "should be a int, not a string"),
        ("x", "int", "should be a int, not a float"),
        ("w", "ints", "should be a ints, not a tensor"),
        ("q", "int", "'q' is missing"),
    ):
        with pytest.raises(FormatError, match=told):
            attribute(op, name, kind)
    with pytest.raises(FormatError, match="5 is not from 6 to 9"):
        attribute(op, "n", "int", 6, 9)


@pytest.mark.parametrize("as_initializer", [False, True])
@pytest.mark.parametrize("size", [100_000, 10**9])
def test_a_fill_that_no_memory_holds(as_initializer, size, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "run=1G")
    attrs = {"shape": [size, size], "value": 1.0, "dtype": np.dtype("float32")}
    fill = make_op("fill_constant", {}, {"out": "w"}, attrs)
    net = OpList("big", format_version=1)
    if as_initializer:
        kind = desc.PARAMETER
        net.vars.append(make_var("w", (size, size), "float32", kind, initializer=fill))
    else:
        net.vars.append(make_var("w", (size, size), "float32", desc.OUTPUT))
        net.ops.append(fill)
    read = loaded(net, {}, None, True)
    with pytest.raises(RunError, match=r"the run wants \d+ bytes.*'w', float32.*run=NUMBER"):
        if as_initializer:
            initialize(net, read.scope)
        else:
            read.net.run(read.scope)


def test_no_line_of_a_message_is_long():
    text = str(OpscopeError("a" * 3000 + "\n" + "b" * 100 + "\n" + "c" * 800))
    assert [len(line) for line in text.splitlines()] == [499, 100, 499]
    assert text.startswith("aaa") and text.endswith("ccc")
