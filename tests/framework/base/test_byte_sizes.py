"""Sizes in bytes: forms that are read, and those that are refused."""

from __future__ import annotations

import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.sizes.byte_sizes import byte_size, read_bytes, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8 * 10**9),
        ("512 mb", 512 * 10**6),
        ("1.5GiB", 3 << 29),
        ("16G", 16 << 30),
        ("2k", 2048),
        ("4096", 4096),
        ("7B", 7),
        ("999999999999999999", 999999999999999999),
    ],
)
def test_forms(text: str, size: int) -> None:
    assert read_bytes(text) == byte_size(text, "memory") == size


@pytest.mark.parametrize(
    "given",
    ["", "GB", "8 G B", "8XB", "-1", "1e9", "8GBB", "101%", "%", "٣GB", 0, -5, 1.5, True, None],
)
def test_malformed(given: object) -> None:
    with pytest.raises(
        OpscopeError, match="memory=.*: want a number of bytes, or a text such as 8GB"
    ):
        byte_size(given, "memory", 1000)


def test_shares() -> None:
    assert byte_size("80%", "memory", 1000) == 800
    assert byte_size("12.5 %", "memory", 1000) == 125
    with pytest.raises(OpscopeError, match="memory='80%': the memory of the device is not known"):
        byte_size("80%", "memory")
    with pytest.raises(OpscopeError, match="want a number"):
        byte_size("0%", "memory", 1000)


def test_text() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
