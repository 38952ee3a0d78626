"""Records in JSON files: values have the types of their fields, or an error names the field."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from opscope.framework.base.errors import FormatError
from opscope.framework.base.untrusted.records import AnyFloat, json_file, record_file, typed
from opscope.framework.base.untrusted.values import json_value


@dataclass(frozen=True)
class Inner:
    name: str
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    count: int
    inner: Inner | None
    rows: list[dict[str, AnyFloat]] = field(default_factory=list)
    pair: tuple[str, int] = ("", 0)
    many: tuple[str, ...] = ()
    flag: bool | Inner = False
    rest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise FormatError(f"'count' is {self.count}")


def read(tmp_path: Path, text: str | bytes) -> Outer:
    path = tmp_path / "r.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return record_file(path, Outer)


def test_a_record_comes_back(tmp_path: Path) -> None:
    rows = [{"a": AnyFloat(1), "b": AnyFloat(float("inf"))}, {"a": AnyFloat(0.5)}]
    for record in (
        Outer(1, None),
        Outer(2, Inner("n"), rows, ("x", 3), ("u", "v"), True, {"z": [1, {}]}),
        Outer(2, None, [], ("\udc80", 3), (), Inner("bytes that are no UTF-8 \udcff", 1.0)),
    ):
        found = read(tmp_path, json.dumps(dataclasses.asdict(record)))
        assert found == record
    assert type(found.rows) is list and found.flag == Inner("bytes that are no UTF-8 \udcff", 1.0)
    kept = read(tmp_path, '{"count": 1, "inner": {"name": "a", "share": 1}, "rows": [{"a": 1}]}')
    assert kept.inner and type(kept.inner.share) is float and type(kept.rows[0]["a"]) is int


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "'[]', where an object is wanted"),
        ("{}", "'count' is missing"),
        ('{"count": 1}', "'inner' is missing"),
        ('{"count": "1", "inner": null}', "'count': '1', where int is wanted"),
        ('{"count": true, "inner": null}', "'count': 'True', where int is wanted"),
        ('{"count": 1.0, "inner": null}', "'count': '1.0', where int is wanted"),
        ('{"count": 9223372036854775808, "inner": null}', "'count': the number has more than 64"),
        ('{"count": -3, "inner": null}', "'count' is -3"),
        ('{"count": 1, "inner": 2}', "'inner': '2', where an object or null is wanted"),
        ('{"count": 1, "inner": {}}', "'inner': 'name' is missing"),
        ('{"count": 1, "inner": {"name": []}}', "'inner': 'name': '[]', where str is wanted"),
        ('{"count": 1, "inner": {"name": "\\ud800"}}', "holds half of a character"),
        ('{"count": 1, "inner": {"name": "", "share": NaN}}', "'share': nan is not finite"),
        ('{"count": 1, "inner": {"name": "", "share": 1e999}}', "'share': inf is not finite"),
        ('{"count": 1, "inner": null, "rows": {}}', "'rows': '{}', where a list is wanted"),
        ('{"count": 1, "inner": null, "rows": [{"a": ""}]}', "'rows': [0]: 'a': '', where float"),
        ('{"count": 1, "inner": null, "pair": ["a"]}', "'pair': 1 values, where 2 are wanted"),
        ('{"count": 1, "inner": null, "pair": ["a", null]}', "'pair': [1]: 'None', where int"),
        ('{"count": 1, "inner": null, "flag": 3}', "where bool or an object is wanted"),
        ('{"count": 1, "inner": null, "color": 3}', "'color' is not known here"),
        ('{"count": 1, "inner"', "no JSON that can be read"),
        (b'{"count": 1, "inner": "\xff"}', "no text in UTF-8 (byte 23)"),
        ("[" * 100_000, "nest"),
        ('{"a":' * 100_000, "nest"),
        ("1" * 5000, "no JSON that can be read"),
        ("", "no JSON that can be read"),
    ],
)
def test_what_is_no_record_is_told(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(FormatError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'r.json'}: ")
    assert told in str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    assert json_file(tmp_path / "none.json", missing={}) == {}
    assert json_file(tmp_path / "none.json", missing=None) is None
    with pytest.raises(FormatError, match="none.json: No such file"):
        json_file(tmp_path / "none.json")
    with pytest.raises(FormatError, match="a folder, not a file"):
        json_file(tmp_path, missing={})
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FormatError, match="a pipe or a device, not a file"):
        json_file(tmp_path / "fifo", missing={})


def test_anything_is_taken_where_anything_is_wanted() -> None:
    assert typed([1, "\ud800"], Any, "w") == [1, "\ud800"]


def test_strings_that_do_not_end_are_read_once() -> None:
    """An open string full of quotes was looked through again from each: 40 KB took 10 s."""
    text = '"' + '\\"' * 200_000
    begin = time.process_time()
    for broken in (text, text + "\\", "[" + text):
        with pytest.raises(FormatError, match="no JSON"):
            json_value(broken, "w")
    assert json_value(text + '"', "w") == '"' * 200_000
    assert time.process_time() - begin < 5
