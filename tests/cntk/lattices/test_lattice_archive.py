"""Archives of lattices: bytes, tables, symbols; HTK's text format."""

import io
import os
import struct
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import lattice_cases
from damage import check_damaged
from opscope.cntk.lattices import Lattice, LatticeArchive, read_htk_lattice, write_archive
from opscope.cntk.lattices.archive import find_tables
from opscope.cntk.lattices.archive_format import pack_lattice, read_lattice
from opscope.cntk.lattices.lattice import LatticeHeader
from opscope.cntk.programs.commands import cntk
from opscope.framework.base.errors import FormatError, SaveError

PAUSE = 1
IDENTITY = np.arange(5)


@pytest.fixture(scope="module")
def hmms(tmp_path_factory):
    return lattice_cases.hmms(tmp_path_factory.mktemp("hmms"))


def unpacked(data, numbers=IDENTITY, pause=PAUSE):
    return read_lattice(io.BytesIO(data), "a.lats", 0, numbers, pause)


def edges_of(lattice):
    """What the edges hold, in an order of their own."""
    acoustic = np.zeros(len(lattice.edges)) if lattice.acoustic is None else lattice.acoustic
    return sorted(
        (
            *lattice.edges[j].tolist(),
            float(np.float32(lattice.scores[j])),
            float(np.float32(acoustic[j])),
            tuple(map(tuple, lattice.units[lattice.first[j] : lattice.first[j + 1]].tolist())),
        )
        for j in range(len(lattice.edges))
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), null=st.booleans(), acoustic=st.booleans())
def test_round_trip(seed, null, acoustic):
    rng = np.random.default_rng(seed)
    held = lattice_cases.lattice(rng, final_null=null, acoustic=acoustic, frames=12)
    held = replace(held, header=LatticeHeader(14.0, -0.5, 0.01))
    found = unpacked(pack_lattice(held, PAUSE))
    assert found.times.tolist() == held.times.tolist()
    assert edges_of(found) == edges_of(held)
    assert found.header == held.header and found.reference is None
    assert (found.edges[1:, 1] >= found.edges[:-1, 1]).all()
    assert edges_of(unpacked(pack_lattice(held), pause=None)) == edges_of(held)


def bits(begin, end, pause, first):
    return begin | end << 20 | pause << 39 | first << 40


def score(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def version2(symbol, tokens, edges, times=(0, 3, 5)):
    head = struct.pack("<IIffdII", len(times), len(edges), 14, -1, 0.01, times[-1], symbol)
    parts = [b"LAT ", struct.pack("<i", 2), head]
    for tag, code, table in ((b"NODS", "H", times), (b"EDGS", "Q", edges), (b"ALNS", "I", tokens)):
        parts += [tag, struct.pack(f"<i{len(table)}{code}", len(table), *table)]
    return b"".join([*parts, b"END "])


LAST = 1 << 31
TOKENS = [score(-1.5), 2 | 2 << 19 | LAST, score(-0.25), 3 | 1 << 19, 2 | 1 << 19 | LAST]
EDGES = [bits(0, 1, 1, 1), bits(1, 2, 0, 3), bits(1, 2, 0, 3)]
HELD = [
    (0, 1, -1.5, 0.0, ((2, 2), (1, 1))),
    (1, 2, -0.25, 0.0, ((3, 1), (2, 1))),
    (1, 2, -0.25, 0.0, ((3, 1), (2, 1))),
]


def test_bytes_of_version_2():
    found = unpacked(version2(PAUSE, TOKENS, EDGES))
    assert edges_of(found) == HELD and found.header == LatticeHeader(14.0, -1.0, 0.01)
    assert pack_lattice(found, PAUSE) == version2(PAUSE, TOKENS, EDGES)
    # the number behind the last symbol is the pause, too
    assert edges_of(unpacked(version2(5, TOKENS, EDGES))) == HELD
    assert edges_of(unpacked(version2(PAUSE, TOKENS, EDGES), np.array([0, 1, 3, 2, 4])))[0][4] == (
        (3, 2),
        (1, 1),
    )


def test_bytes_that_cntk_wrote():
    old, new = (unpacked(lattice_cases.WRITTEN_BY_CNTK[version]) for version in (1, 2))
    assert edges_of(old) == edges_of(new)
    assert new.units[:3].tolist() == [[0, 5], [1, 0], [0, 1]] and new.first[-1] == 11
    assert edges_of(unpacked(pack_lattice(new, PAUSE))) == edges_of(new)


def test_acoustic_scores_stand_in_front():
    tokens = [score(-9), *TOKENS[:2], score(-8), *TOKENS[2:]]
    edges = [bits(0, 1, 1, 2), bits(1, 2, 0, 5), bits(1, 2, 0, 5)]
    found = unpacked(version2(PAUSE | LAST, tokens, edges))
    assert found.acoustic.tolist() == [-9, -8, -8] and found.scores.tolist() == [-1.5, -0.25, -0.25]
    assert pack_lattice(found, PAUSE) == version2(PAUSE | LAST, tokens, edges)


def test_edges_without_phones_of_a_wrong_pause():
    """Early archives took another phone for the pause; edges of it alone kept nothing."""
    tokens = [score(-1.5), score(-0.25), 3 | 1 << 19, 2 | 1 << 19 | LAST]
    edges = [bits(0, 1, 1, 1), bits(1, 2, 0, 2)]
    found = unpacked(version2(4, tokens, edges))
    assert [edge[4] for edge in edges_of(found)] == [((4, 3),), ((3, 1), (2, 1))]
    with pytest.raises(FormatError, match="below 0"):
        unpacked(version2(PAUSE, tokens, edges))


def test_bytes_of_version_1():
    times, long = (0, 3000, 3002), 3000
    head = struct.pack("<IIffdII", 3, 2, 1, 0, 0.01, times[-1], 0)
    edges = b"".join(
        struct.pack("<Qff", bits(n, n + 1, 0, first), a, b)
        for n, (first, a, b) in enumerate([(0, -7.5, -1.0), (1, -2.5, -2.0)])
    )
    units = struct.pack("<3I", 2 | long << 19, 3 | 1 << 19, 0 | 1 << 19)
    data = b"".join([
        b"LAT ", struct.pack("<i", 1), head,
        b"NODE", struct.pack("<i3H", 3, *times),
        b"EDGE", struct.pack("<i", 2), edges,
        b"ALIG", struct.pack("<i", 3), units, b"END ",
    ])  # fmt: skip
    found = unpacked(data)
    assert found.units.tolist() == [[2, 3000], [3, 1], [0, 1]]
    assert found.acoustic.tolist() == [-7.5, -2.5] and found.scores.tolist() == [-1.0, -2.0]
    check_damaged(data, unpacked)


def test_damaged():
    rng = np.random.default_rng(1)
    check_damaged(pack_lattice(lattice_cases.lattice(rng, final_null=True), PAUSE), unpacked)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tokens": TOKENS[:-1]}, "have no end"),
        (
            {"edges": [bits(0, 1, 0, 1), *EDGES[1:]]},
            "edge 0 of a lattice have 2 frames, the edge 3",
        ),
        ({"edges": [bits(0, 1, 1, 0), *EDGES[1:]]}, "outside of its 5 phones"),
        ({"edges": [bits(0, 4, 1, 1), *EDGES[1:]]}, "leaves its 3 nodes"),
        ({"edges": [bits(0, 1, 0, 5), *EDGES[1:]]}, "not the last one has no phones"),
        ({"symbol": 7}, "a pause, which has no symbol"),
        ({"times": (0, 4, 3)}, "never fall"),
        (
            {"edges": [bits(0, 1, 0, 1)] * 5000, "tokens": [0] * 4999 + [LAST]},
            "24995000 phones, too many",
        ),
        ({"tokens": [TOKENS[0], 9 | 2 << 19 | LAST, *TOKENS[2:]]}, "the symbol 9 of 5"),
    ],
)
def test_wrong_lattices(change, why):
    given = {"symbol": PAUSE, "tokens": TOKENS, "edges": EDGES, **change}
    with pytest.raises(FormatError, match=f"a.lats: byte 0: .*{why}"):
        unpacked(version2(**given))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"times": [0, 1 << 16], "units": [[0, 1 << 16]]}, "frames 65536; an archive has 11 bits"),
        ({"units": [[1 << 19, 2]], "times": [0, 2]}, "symbol 524288; an archive has 19 bits"),
        ({"times": [0, 2, 4]}, "one first and one last node"),
        ({"edges": [[0, 1]] * 2, "scores": [0, 0], "first": [0, 0, 1]}, "edge 0 .* no phones"),
    ],
)
def test_what_an_archive_cannot_hold(change, why):
    held = {"times": [0, 2], "edges": [[0, 1]], "scores": [0], "units": [[2, 2]], "first": [0, 1]}
    if "edges" in change:
        change = {**change, "times": [0, 0], "units": [[2, 0]]}
    with pytest.raises(SaveError, match=why):
        pack_lattice(Lattice(**{**held, **change}))


class TestArchive:
    @pytest.fixture
    def written(self, hmms, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        held = {f"u{n}": lattice_cases.lattice(np.random.default_rng(n)) for n in range(3)}
        assert write_archive("a.lats", hmms, held.items()) == 3
        return held

    def test_names_and_contents(self, written, hmms, tmp_path):
        table = (tmp_path / "a.lats.toc").read_text().splitlines()
        assert table[0] == "u0=a.lats[0]" and table[1].startswith("u1=[")
        symbols = (tmp_path / "a.lats.symlist").read_text().splitlines()
        assert symbols == ["sil", "sp", "x-a+b", "b", "b-c", "a x-a+b"]
        archive = LatticeArchive(["a.lats.toc"], hmms)
        assert archive.names == ["u0", "u1", "u2"] and "u3" not in archive and len(archive) == 3
        for name in ("u2", "u0", "u1"):
            assert edges_of(archive.read(name)) == edges_of(written[name])
        archive.close()
        with pytest.raises(FormatError, match="there is no lattice 'u9'"):
            archive.read("u9")

    def test_several_archives_with_symbols_of_their_own(self, written, hmms, tmp_path):
        (tmp_path / "b.lats").write_bytes((tmp_path / "a.lats").read_bytes())
        (tmp_path / "b.lats.symlist").write_text("sil\nsp\nb\na\nb-c\n")
        (tmp_path / "b.lats.toc").write_text("v0=b.lats[0]\n")
        archive = LatticeArchive(find_tables("*.toc"), hmms)
        swapped = {2: 3, 3: 2}
        wanted = [swapped.get(phone, phone) for phone in archive.read("u0").units[:, 0].tolist()]
        assert archive.read("v0").units[:, 0].tolist() == wanted

    def test_a_prefix(self, written, hmms, tmp_path):
        os.mkdir("lats")
        for name in ("a.lats", "a.lats.symlist"):
            os.rename(name, f"lats/{name}")
        assert LatticeArchive(["a.lats.toc"], hmms, "lats").read("u1").frames == 7
        with pytest.raises(FormatError, match=r"a\.lats\.symlist: No such file"):
            LatticeArchive(["a.lats.toc"], hmms).read("u1")

    @pytest.mark.parametrize(
        ("table", "symbols", "why"),
        [
            ("u0=[0]\n", None, "t.toc:1: the first line of a table names an archive"),
            ("u0=a.lats[0]\nu0=[9]\n", None, "t.toc:2: the lattice 'u0' is there already"),
            ("u0=a.lats[0]x\n", None, r"t.toc:1: 'name=archive\[byte\]' was expected"),
            ("u0\n", None, "t.toc:1: 'name"),
            ("u0=a.lats[99999]\n", None, "a.lats: a lattice at byte 99999, but there are"),
            ("u0=a.lats[4]\n", None, "a.lats: byte 4: 'LAT ' was expected"),
            ("u0=a.lats[0]\n", "sil\nsp\nother\n", "a.lats.symlist:3: there is no phone 'other'"),
            ("u0=a.lats[0]\n", "sil\nsp sil\n", "symlist:2: 'sp' and 'sil' are not the same"),
            ("u0=a.lats[0]\n", "sil\na x-a+b\nsp\n", "symlist:3: a phone after the lines"),
            ("u0=a.lats[0]\n", "sil\nsp\n", "the symbol [234] of 2"),
        ],
    )
    def test_wrong_files(self, written, hmms, tmp_path, table, symbols, why):
        (tmp_path / "t.toc").write_text(table)
        if symbols is not None:
            (tmp_path / "a.lats.symlist").write_text(symbols)
        with pytest.raises(FormatError, match=why):
            LatticeArchive(["t.toc"], hmms).read("u0")

    def test_no_table(self):
        with pytest.raises(FormatError, match="no such table"):
            find_tables("nothing*.toc")

    def test_nothing_is_written_where_something_is_wrong(self, written, hmms, tmp_path):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        for names in (["x", "x"], ["x=y"]):
            with pytest.raises(SaveError, match=r"a.lats: the name 'x"):
                write_archive("a.lats", hmms, [(name, written["u0"]) for name in names])
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


class TestCommand:
    @pytest.fixture
    def call(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        lattice_cases.hmms(tmp_path)
        (tmp_path / "u0.lat").write_text(TEXT)
        (tmp_path / "bad.lat").write_text("N=1 L=1\n")

        def run(*arguments):
            files = ("--phones", "tying", "--transitions", "transprob", "--states", "states")
            return CliRunner().invoke(cntk, ["lattices", *arguments, *files])

        return run

    def test_texts_and_archives(self, call, hmms, tmp_path):
        first = call("one/a.lats", "u0.lat")
        assert first.exit_code == 1 and "cannot write" in first.output
        first = call("a.lats", "u0.lat", "bad.lat", "v=u0.lat")
        assert first.exit_code == 0, first.output
        assert "a.lats: 2 lattices, 1 could not be read" in first.output
        assert "left out: bad.lat: 0 nodes" in first.output
        (tmp_path / "list").write_text("a.lats.toc\n\nw=u0.lat\n")
        assert call("b.lats", "--list", "list").output == (
            "b.lats: 3 lattices, 0 could not be read\n"
        )
        archive = LatticeArchive(["b.lats.toc"], hmms)
        assert archive.names == ["u0", "v", "w"]
        assert edges_of(archive.read("u0")) == edges_of(archive.read("w"))

    def test_nothing_to_read(self, call):
        assert call("c.lats", "bad.lat").exit_code == 1
        result = call("c.lats", "--list", "none")
        assert result.exit_code == 1 and "none: " in result.output


TEXT = """VERSION=1.0
UTTERANCE=u0
lmscale=14.00 wdpenalty=-0.50\x20
N=4    L=4
I=0    t=0.00  W=!NULL
I=1    t=0.02  W=one
I=2    t=0.05
I=3    t=0.05
J=0  S=0  E=1  a=-326.81   l=-5.090  d=:sil,0.02:
J=1  S=0  E=2  a=-1.00   l=-1.5  v=1  d=:a,0.03:b,0.02:sp,0.00:
J=2  S=1  E=2  a=-2.00   l=0  d=:x-a+b,0.03:
J=3  S=2  E=3  a=0   l=-0.25
"""


class TestText:
    def read(self, hmms, tmp_path, text):
        (tmp_path / "u0.lat").write_text(text)
        return read_htk_lattice(tmp_path / "u0.lat", hmms)

    def test_fields(self, hmms, tmp_path):
        found = self.read(hmms, tmp_path, TEXT)
        assert found.times.tolist() == [0, 2, 5, 5]
        assert found.units.tolist() == [[0, 2], [2, 3], [3, 2], [1, 0], [2, 3]]
        assert found.first.tolist() == [0, 1, 4, 5, 5]
        assert found.scores.tolist() == [-5.09, -1.5, 0, -0.25]
        assert found.acoustic.tolist() == [-326.81, -1, -2, 0]
        assert found.header == LatticeHeader(14.0, -0.5, 0.01)
        assert edges_of(unpacked(pack_lattice(found, PAUSE))) == edges_of(found)

    @pytest.mark.parametrize(
        ("old", "new", "why"),
        [
            ("J=1  S=0", "J=2  S=0", ":10: J=1 was expected, not 2"),
            ("a,0.03:b", "a,0.04:b", ":10: the phones have 6 frames, the edge 5"),
            ("a,0.03:b", "a:b", ":10: 'phone,seconds' was expected, but this is 'a'"),
            ("a,0.03:b", "q,0.03:b", ":10: there is no phone 'q'"),
            (":sil,0.02:", "sil,0.02", ":9: ':phone,seconds:...:' was expected"),
            ("a=-326.81", "a=many", ":9: a= and a number was expected, not 'many'"),
            ("E=2  a=-1", "E=9  a=-1", ":10: an edge from 0 to 9 does not go to a later one"),
            ("I=1    t=0.02", "I=1    t=-1", ":6: a time of -1.0 seconds"),
            ("I=1    t=0.02", "I=x    t=0", ":6: I= and a number was expected, not 'x'"),
            ("I=3    t=0.05", "K=3", ":8: a node .I=. or an edge .J=. was expected"),
            ("L=4", "L=5", "4 nodes and 4 edges; expected: 4 and 5"),
            ("N=4    L=4", "", "expected: no line N= L="),
            ("t=0.05\nI=3    t=0.05", "t=0.06\nI=3    t=0.05", "never fall|have 5 frames"),
        ],
    )
    def test_wrong_texts(self, hmms, tmp_path, old, new, why):
        assert TEXT.count(old) == 1
        with pytest.raises(FormatError, match=f"u0.lat.*{why}"):
            self.read(hmms, tmp_path, TEXT.replace(old, new))

    @settings(max_examples=60, deadline=None)
    @given(at=st.integers(0, len(TEXT)), put=st.text("JIlad=:,.0 \n-e", max_size=4))
    def test_any_text(self, hmms, tmp_path_factory, at, put):
        folder = tmp_path_factory.mktemp("text")
        try:
            self.read(hmms, folder, TEXT[:at] + put + TEXT[at + 2 :])
        except FormatError as error:
            assert "u0.lat" in str(error)
