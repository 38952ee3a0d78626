"""Config lines: Kaldi's rules of quoting, of values with spaces, and its refusals."""

import pytest

from opscope.framework.base.errors import FormatError
from opscope.nnet3.language.config import ConfigLine, is_valid_name, read_config_lines, split_lines


def test_values_go_on_until_the_word_before_the_next_equals_sign():
    line = ConfigLine("component-node name=a input=Append(Offset(x, -1), y) component=b")
    assert line.first_token == "component-node"
    assert line.get("input") == "Append(Offset(x, -1), y)"
    assert line.get("component") == "b"
    assert line.keys() == ["name", "input", "component"]


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_keep_equals_signs(quote):
    line = ConfigLine(f"component component1={quote}type=NoOpComponent dim=3{quote} dim=4")
    assert line.get("component1") == "type=NoOpComponent dim=3"
    assert line.value("dim", "int") == 4


def test_a_line_may_lack_the_first_word():
    line = ConfigLine("type=SigmoidComponent dim=40")
    assert line.first_token == ""
    assert line.get("type") == "SigmoidComponent"


def test_of_several_values_the_first_counts():
    line = ConfigLine("a x=1 x=2")
    assert line.get("x") == "1"
    line.check_unused()


@pytest.mark.parametrize(
    ("key", "kind", "value", "wrong"),
    [
        ("i", "int", -3, "no integer"),
        ("f", "float", 1e-3, "no number"),
        ("t", "bool", True, "neither true nor false"),
        ("u", "bool", False, "neither true nor false"),
        ("l", "ints", [1, 2, 3], "no list of integers"),
    ],
)
def test_types(key, kind, value, wrong):
    line = ConfigLine("a i=-3 f=1e-3 t=True u=false l=1:2,3 n=none")
    found = line.value(key, kind)
    assert found == value and type(found) is type(value)
    assert line.value("absent", kind) is None
    with pytest.raises(FormatError, match=f"n=none is {wrong}"):
        line.value("n", kind)


@pytest.mark.parametrize("value", ["2147483648", "-2147483649", "1.5", "1_0", ""])
def test_integers_have_32_bits(value):
    with pytest.raises(FormatError, match="no integer of 32 bits"):
        ConfigLine(f"a i={value}").value("i", "int")


def test_unused_values_are_refused_with_a_hint():
    line = ConfigLine("component name=a inptu-dim=3", "net.config:7")
    line.get("name")
    assert line.unused() == "inptu-dim=3"
    with pytest.raises(FormatError) as caught:
        line.check_unused(known=["input-dim"])
    assert "net.config:7" in str(caught.value)
    assert "inptu-dim=3" in str(caught.value)
    assert "input-dim" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("9a x=1", "cannot begin"),
        ("a b", "key=value"),
        ("a =b", "key=value"),
        ("a x=1 ?=2", "key=value"),
        ("a x='b", "not closed"),
    ],
)
def test_lines_that_are_none(text, what):
    with pytest.raises(FormatError, match=what):
        ConfigLine(text)


def test_require():
    with pytest.raises(FormatError, match="name= is missing .did you mean nane"):
        ConfigLine("component nane=a").require("name")


def test_files_have_comments_and_empty_lines(tmp_path):
    path = tmp_path / "net.config"
    path.write_text("# all\n\n  input-node name=a dim=3  # the input\n")
    (line,) = read_config_lines(path)
    assert line.text == "input-node name=a dim=3"
    assert line.place == f"{path}:3"
    assert split_lines("a x=1")[0].place == "line 1"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FormatError, match="absent"):
        read_config_lines(tmp_path / "absent")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="no text"):
        read_config_lines(path)


def test_names():
    assert all(map(is_valid_name, ("a", "_b", "a.b-c_1")))
    assert not any(map(is_valid_name, ("", "1a", "-a", "a b", "a=b", "ä", "a\n")))
