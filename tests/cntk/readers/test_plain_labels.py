"""Label files of HTK's form that C reads, beside Python."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.cntk.readers.htk import mlf
from opscope.cntk.readers.htk.mlf import read_mlf
from opscope.framework.fusion.compiled import native

_PLAIN = [
    '"*/u0.lab"\n0 200000 zero\n200000 300000 two extra 3\n.\n"u1.rec"\n0 4 one -1.5 sil\n.\n',
    '\n"a.b.lab"\r\n0\t2   two\r\n2 3 one\r\n .\r\n\r\n"c"\n.\n',
    '"u"\n0 1 zero\n.',
    "",
]


@pytest.mark.skipif(native.load("label_lines") is None, reason="there is no native library")
class TestPlainLabels:
    """Files that C reads: the same as by Python."""

    @pytest.mark.parametrize("piece", [7, 40, 1 << 22])
    @pytest.mark.parametrize("body", _PLAIN)
    def test_read_by_c(self, tmp_path, monkeypatch, body, piece):
        path = tmp_path / "a.mlf"
        path.write_bytes(b"#!MLF!#\n" + body.encode())
        states = {name: number for number, name in enumerate(("zero", "one", "two"))}
        monkeypatch.setattr(mlf, "_PIECE", piece)
        monkeypatch.setattr(mlf, "_WORDS", 2)
        for wanted in (None, {"u1"}, ()):
            found = mlf._read_plainly(path, states, wanted, mlf.FRAME)
            if found is None:
                assert piece < len(body)  # it does not hold an utterance
                continue
            with monkeypatch.context() as only:
                only.setattr(mlf, "_read_plainly", lambda *_: None)
                same = read_mlf(path, states, wanted)
            assert {k: v.tolist() for k, v in found.items()} == {
                k: v.tolist() for k, v in same.items()
            }
            assert all(one.dtype == np.int32 for one in found.values())

    def test_many(self, tmp_path):
        rng = np.random.default_rng(0)
        path, lines, wanted = tmp_path / "a.mlf", ["#!MLF!#"], {}
        for number in range(40):
            lengths = rng.integers(1, 5, rng.integers(0, 50))
            numbers = rng.integers(0, 700, len(lengths))
            ends = np.cumsum(lengths)
            lines.append(f'"*/u{number}.lab"')
            for begin, end, state in zip(ends - lengths, ends, numbers, strict=True):
                lines.append(f"{begin}00000 {end}00000 s{state} {state + 1}")
            lines.append(".")
            wanted[f"u{number}"] = np.repeat(numbers, lengths).tolist()
        path.write_text("\n".join(lines) + "\n")
        states = {f"s{number}": number for number in range(700)}
        for known, plus in ((states, 0), (None, 1)):
            found = mlf._read_plainly(path, known, None, mlf.FRAME)
            assert found is not None and list(found) == list(wanted)
            for name, numbers in wanted.items():
                assert found[name].tolist() == [one + plus for one in numbers]

    @pytest.mark.parametrize(
        "line",
        ["0 1.0 zero", "0 1 z\u00e9ro", "0 1 zero\x0bone", "-0 1 zero", "0 1 zero\rx", "0 1 nil"],
    )
    def test_left_to_python(self, tmp_path, line):
        path = tmp_path / "a.mlf"
        path.write_bytes(f'#!MLF!#\n"u"\n{line}\n.\n'.encode())
        assert mlf._read_plainly(path, {"zero": 0}, None, mlf.FRAME) is None

    def test_equal_to_python(self, tmp_path, monkeypatch):
        rng = np.random.default_rng(1)
        path, lines = (
            tmp_path / "a.mlf",
            ['"u"', '"v.x"', ".", "0 1 a", "1 3 b 2", "0 2 b 1", "", "x"],
        )
        read = 0
        for _ in range(300):
            path.write_text("\n".join(["#!MLF!#", *rng.choice(lines, rng.integers(0, 9))]))
            for states in ({"a": 0, "b": 1}, None):
                found = mlf._read_plainly(path, states, None, mlf.FRAME)
                if found is None:
                    continue
                read += 1
                with monkeypatch.context() as only:
                    only.setattr(mlf, "_read_plainly", lambda *_: None)
                    same = read_mlf(path, states)
                assert {k: v.tolist() for k, v in found.items()} == {
                    k: v.tolist() for k, v in same.items()
                }
        assert read > 20
