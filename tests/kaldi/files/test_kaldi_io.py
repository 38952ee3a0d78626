"""Basic types of Kaldi's files: round trips, positions in errors, damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opscope.framework.base.errors import FormatError, SaveError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.tokens import format_number

both = pytest.mark.parametrize("binary", [True, False])
words = st.text(min_size=1, max_size=30).filter(lambda s: len(s.split()) == 1 and s == s.strip())


def written(binary, write):
    writer = Writer(binary)
    write(writer)
    return Reader(writer.getvalue())


@both
def test_all_basic_types_come_back(binary):
    def write(w):
        w.write_token("<Net>")
        w.write_bool(True)
        w.write_bool(False)
        w.write_int32(-7)
        w.write_int(200, 1, signed=False)
        w.write_int(-(1 << 62), 8)
        w.write_float(0.25)
        w.write_double(-1e100)
        w.write_token("</Net>")

    r = written(binary, write)
    assert r.binary is binary
    assert r.peek_token() == "<Net>"
    r.expect_token("<Net>")
    assert (r.read_bool(), r.read_bool()) == (True, False)
    assert r.read_int32() == -7
    assert r.read_int(1, signed=False) == 200
    assert r.read_int(8) == -(1 << 62)
    assert (r.read_float(), r.read_double()) == (0.25, -1e100)
    assert r.expect_token("</Other>", "</Net>") == "</Net>"
    assert r.at_end()


def test_bytes_are_those_of_kaldi():
    w = Writer()
    w.write_token("<Dim>")
    w.write_int32(3)
    w.write_float(1.0)
    w.write_bool(True)
    assert w.getvalue() == b"\0B<Dim> \x04\x03\0\0\0\x04\0\0\x80?T"
    w = Writer(binary=False)
    w.write_token("<Dim>")
    w.write_int32(3)
    w.write_float(0.1)
    w.write_bool(True)
    assert w.getvalue() == b"<Dim> 3 0.1 T "


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float32(1 / 3), "0.3333333"),
        (1e-5, "1e-05"),
        (1e10, "1e+10"),
        (-0.0, "-0"),
        (float("inf"), "inf"),
        (-float("inf"), "-inf"),
        (float("nan"), "nan"),
        (-float("nan"), "-nan"),
        (123456789.0, "1.234568e+08"),
    ],
)
def test_numbers_print_as_in_cpp(value, text):
    assert format_number(value) == text


@both
@given(value=st.floats(width=32, allow_nan=False))
def test_floats_come_back(binary, value):
    r = written(binary, lambda w: w.write_float(value))
    found = r.read_float()
    if binary:
        assert found == value
    else:  # what was read is printed as before
        assert format_number(found) == format_number(np.float32(value))


@both
@given(value=st.integers(-(1 << 31), (1 << 31) - 1))
def test_integers_come_back(binary, value):
    assert written(binary, lambda w: w.write_int32(value)).read_int32() == value


@both
@given(tokens=st.lists(words, max_size=5))
def test_tokens_come_back(binary, tokens):
    assume(binary or not tokens or tokens[0][0] != "\0")  # such a file is neither binary nor text

    def write(w):
        for token in tokens:
            w.write_token(token)

    r = written(binary, write)
    separators = " \t\n\r\f\v"
    if any(c in token for token in tokens for c in separators):
        return
    assert [r.read_token() for _ in tokens] == tokens


def test_tokens_keep_bytes_that_are_not_text():
    r = Reader(b"\xff\xfe ", binary=False)
    token = r.read_token()
    w = Writer(binary=False)
    w.write_token(token)
    assert w.getvalue() == b"\xff\xfe "


def test_numbers_of_the_other_size_are_read():
    assert Reader(b"\x08" + np.float64(0.1).tobytes(), binary=True).read_float() == np.float32(0.1)
    assert Reader(b"\x04" + np.float32(0.5).tobytes(), binary=True).read_double() == 0.5


def test_infinity_and_nan_are_read_in_text():
    r = Reader(b"inf -INF nan Infinity", binary=False)
    assert r.read_float() == float("inf")
    assert r.read_float() == -float("inf")
    assert np.isnan(r.read_float())
    assert r.read_float() == float("inf")


def test_lines_in_either_mode():
    r = Reader(b"\0Bone two\n\nlast")
    assert [r.read_line() for _ in range(3)] == ["one two", "", "last"]
    with pytest.raises(FormatError, match="a line was expected"):
        r.read_line()


def test_saving_and_reading_a_file(tmp_path):
    w = Writer()
    w.write_token("<A>")
    w.save(tmp_path / "a")
    assert Reader(tmp_path / "a").read_token() == "<A>"
    with pytest.raises(SaveError, match="missing"):
        w.save(tmp_path / "missing" / "a")
    with pytest.raises(FormatError, match="No such file"):
        Reader(tmp_path / "missing")


@pytest.mark.parametrize(
    ("data", "read", "message"),
    [
        (b"", Reader.read_token, "the file ends (byte 0, line 1)"),
        (b"\n\n<A>", Reader.read_token, "'<A>' is not followed by a space: the file ends"),
        (b"x" * 5000, Reader.read_token, "it is too long"),
        (b"\n <B> ", lambda r: r.expect_token("<A>", "<C>"), "<A> or <C> was expected here, but"),
        (b"<A> \n<B>", lambda r: (r.read_token(), r.expect_token("<A>")), "(byte 4, line 1)"),
        (b"1.5", lambda r: (r.read_int32(), r.read_int32()), "but this is '.5'"),
        (b"x", Reader.read_int32, "an integer was expected here, but this is 'x'"),
        (b"2147483648", Reader.read_int32, "2147483648 does not fit in 4 bytes"),
        (b"x", Reader.read_float, "a number was expected here"),
        (b"Yes", Reader.read_bool, "a flag, T or F, was expected here, but this is 'Yes'"),
        (b"\0B", Reader.read_int32, "an integer was expected here, but the file ends (byte 2)"),
        (b"\0B\x08", Reader.read_int32, "its size byte is 8 (byte 2)"),
        (b"\0B\x04\0", Reader.read_int32, "the file ends within an integer of 4 bytes"),
        (b"\0B\x05", Reader.read_float, "a number of 4 or 8 bytes was expected"),
        (b"\0B12", lambda r: r.read_bytes(3), "3 bytes are wanted, but 2 are left"),
        (b"\0B12", lambda r: r.read_bytes(-1), "a negative size"),
        (b"\0B12", lambda r: r.read_array("<f8", 1 << 60), "are left (byte 2)"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data, read, message):
    with pytest.raises(FormatError) as caught:
        read(Reader(data, name="net.raw"))
    assert str(caught.value).startswith("net.raw: ")
    assert message in str(caught.value)


def test_a_zero_byte_alone_is_no_header():
    with pytest.raises(FormatError, match="neither binary nor text"):
        Reader(b"\0C")


def test_the_line_of_an_error_in_text():
    r = Reader(b"<A>\n<B>\n<C>\n", name="n", binary=False)
    r.read_token()
    r.read_token()
    with pytest.raises(FormatError, match=r"\(byte 8, line 3\)"):
        r.expect_token("<X>")


@pytest.mark.parametrize("token", ["", " ", "a b", "a\n", "\ta"])
def test_what_cannot_be_a_token_is_not_written(token):
    with pytest.raises(FormatError, match="cannot be a token"):
        Writer().write_token(token)


def test_integers_that_do_not_fit_are_not_written():
    with pytest.raises(FormatError, match="does not fit in 4 bytes"):
        Writer().write_int32(1 << 31)
    with pytest.raises(FormatError, match="does not fit in 1 bytes"):
        Writer().write_int(-1, 1, signed=False)


def test_a_failed_read_leaves_the_place():
    r = Reader(b"\0B<A> \x04\0")
    r.read_token()
    for read in (r.read_int32, lambda: r.expect_token("<B>"), r.read_bool):
        with pytest.raises(FormatError):
            read()
        assert r.offset == 6
