"""Places in source text and the errors that show them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.cntk.base.text import LONGEST_CHAIN, Source, located
from opscope.framework.base.errors import FormatError


@settings(max_examples=60)
@given(st.text(alphabet="ab\n\t\r", max_size=40))
def test_every_offset_has_its_place(text):
    source = Source("f", text)
    lines = text.split("\n")
    for offset in range(len(text) + 1):
        place = source.locate(offset)
        assert sum(len(line) + 1 for line in lines[: place.line - 1]) + place.column - 1 == offset
        assert source.line(place.line) == lines[place.line - 1].rstrip("\r")


def test_the_caret_stands_under_the_character():
    source = Source("net.ndl", "a=1\n\tz = Tims(W)\n")
    shown = source.locate(source.text.index("Tims")).caret("")
    assert shown == "\tz = Tims(W)\n\t    ^"


@pytest.mark.parametrize("column", [0, 100, 5000, 9999])
def test_long_lines_are_cut_around_the_caret(column):
    text = "x" * column + "!" + "x" * (10000 - column)
    line, caret = Source("f", text).locate(column).caret("").split("\n")
    assert len(line) < 140
    assert line[caret.index("^")] == "!"


def test_message_place_and_chain():
    source = Source("net.ndl", "m(x) = Foo(x)\ny = m(z)")
    error = located(FormatError, "bad", source.locate(7), [("called at", source.locate(18))])
    assert str(error).split("\n") == [
        "net.ndl:1:8: bad",
        "    m(x) = Foo(x)",
        "           ^",
        "  called at net.ndl:2:5",
        "      y = m(z)",
        "          ^",
    ]
    assert error.location.line == 1


def test_long_chains_are_cut_in_the_middle():
    source = Source("f", "x")
    error = located(FormatError, "deep", None, [("from", source.locate(0))] * 1000)
    assert str(error).count("from f:1:1") == LONGEST_CHAIN
    assert f"{1000 - LONGEST_CHAIN} more" in str(error)


def test_long_messages_are_cut_in_the_middle():
    source = Source("f.ndl", "W = " + "Times" * 900)
    message = f"there is no function '{'Times' * 900}' (did you mean Times?)"
    shown = str(located(FormatError, message, source.locate(4)))
    assert max(map(len, shown.splitlines())) <= 500
    assert shown.startswith("f.ndl:1:5: there is no function 'Times")
    assert "' (did you mean Times?)\n" in shown
