"""Programs that change, compose, determinize and print FSTs: options, messages, what they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from kaldi_models import done

FST = "0 1 1 1 0.5\n0 1 3 2\n1 0.25\n"


def refused(result, part):
    """Exit code 1, nothing printed, and the last line is an error."""
    code, out, err = result
    assert (code, out) == (1, b"")
    line = err.splitlines()[-1]
    assert line.startswith("ERROR (") and part in line, err


@pytest.fixture
def fsts(call):
    """An FST as text, and lists of symbols."""
    Path("x.txt").write_text(FST)
    Path("in.list").write_text("3\n4\n")
    Path("out.list").write_text("5\n6\n")
    return call


def printed(call, *words, binary=True):
    """The lines of the FST that a program writes, read back as text."""
    from opscope.nnet3.programs.base.graphs import open_fst, save_fst

    done(call(*words, "y.fst"))
    save_fst(open_fst("y.fst"), "y.txt", binary=False)
    return Path("y.txt").read_text().split("\n")[1:-2]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("fstrmsymbols", "in.list"), ["0\t1\t1\t1\t0.5", "0\t1\t0\t2", "1\t0.25"]),
        (
            ("fstrmsymbols", "--remove-from-output", "in.list"),
            ["0\t1\t1\t1\t0.5", "0\t1\t3\t2", "1\t0.25"],
        ),
        (("fstrmsymbols", "--remove-arcs", "in.list"), ["0\t1\t1\t1\t0.5", "1\t0.25"]),
        (
            ("fstrmsymbols", "--penalty=2", "in.list"),
            ["0\t1\t1\t1\t0.5", "0\t1\t3\t2\t2", "1\t0.25"],
        ),
        (("fstarcsort", "--sort_type=olabel"), ["0\t1\t1\t1\t0.5", "0\t1\t3\t2", "1\t0.25"]),
        (("fstproject",), ["0\t1\t1\t1\t0.5", "0\t1\t3\t3", "1\t0.25"]),
        (
            ("fstproject", "--project_type=output"),
            ["0\t1\t1\t1\t0.5", "0\t1\t2\t2", "1\t0.25"],
        ),
        (
            ("fstproject", "--project_output=true"),
            ["0\t1\t1\t1\t0.5", "0\t1\t2\t2", "1\t0.25"],
        ),
        (("fstdeterminizestar",), ["0\t1\t1\t1\t0.5", "0\t1\t3\t2", "1\t0.25"]),
        (("fstminimizeencoded",), ["0\t1\t1\t1\t0.5", "0\t1\t3\t2", "1\t0.25"]),
        (("fstminimizeencoded", "--delta=1"), ["0\t1\t1\t1\t1", "0\t1\t3\t2", "1"]),
    ],
)
def test_what_is_written(fsts, words, lines):
    assert printed(fsts, *words, "x.txt") == lines


def test_self_loops(fsts):
    Path("in.list").write_text("8\n9\n")
    lines = printed(fsts, "fstaddselfloops", "in.list", "out.list", "x.txt")
    loops = [f"{state}\t{state}\t{i}\t{o}" for state in (0, 1) for i, o in ((8, 5), (9, 6))]
    assert [line for line in lines if line in loops] == loops and len(lines) == 7


def test_pushed_weights(fsts):
    lines = printed(fsts, "fstpushspecial", "x.txt")
    weights = [float(line.split("\t")[-1]) for line in lines]
    assert weights[0] - weights[1] == pytest.approx(0.5, abs=1e-5)
    assert weights[1] + weights[2] == pytest.approx(0.25, abs=1e-5)


def test_standard_streams(fsts):
    out = done(fsts("fstrmsymbols", "in.list", input=FST.encode()))
    done(fsts("fstrmsymbols", "in.list", "x.txt", "y.fst"))
    assert out == Path("y.fst").read_bytes()
    refused(fsts("fstarcsort"), "standard input")  # which is empty


def test_determinization(fsts):
    Path("two.txt").write_text("0 1 0 0\n0 0\n1 0\n")
    assert printed(fsts, "fstdeterminizestar", "two.txt") == ["0"]
    assert printed(fsts, "fstdeterminizestar", "--use-log", "two.txt") == ["0\t-0.6931472"]
    Path("alike.txt").write_text("0 1 1 5\n0 1 1 6\n1\n")
    error = "alike.txt: the transducer is not functional: after the input labels 1 both"
    refused(fsts("fstdeterminizestar", "alike.txt"), error)
    refused(fsts("fstdeterminizestar", "--max-states=1", "x.txt"), "x.txt: the determinized FST")
    Path("g.ark").write_text(f"a \n{FST}\nb \n0 1 1 5\n0 1 1 6\n1\n\n")
    done(fsts("fstdeterminizestar", "ark:g.ark", "ark,t:out"), "left out: b: the transducer is not")
    assert Path("out").read_text().split()[0] == "a" and "b" not in Path("out").read_text()


def test_text(fsts):
    Path("words.txt").write_text("<eps> 0\na 1\nb 3\n")
    Path("labels.txt").write_text("<eps> 0\nx 1\ny 2\n")
    symbols = "--isymbols=words.txt", "--osymbols=labels.txt"
    text = "0\t1\ta\tx\t0.5\n0\t1\tb\ty\n1\t0.25\n"
    keep = "--keep_isymbols", "--keep_osymbols=true"
    for more, shown in ((keep, text), ((), FST.replace(" ", "\t"))):
        out = done(fsts("fstcompile", *symbols, *more, input=text.encode()))
        assert done(fsts("fstprint", input=out)).decode() == shown
        assert done(fsts("fstprint", "--numeric", input=out)).decode() == FST.replace(" ", "\t")
        assert done(fsts("fstprint", *symbols, input=out)).decode() == text
    done(
        fsts(
            "fstcompile",
            "--acceptor",
            "--fst_type=compact_acceptor",
            "-",
            "c.fst",
            input="0 1 2\n1\n",
        )
    )
    assert done(fsts("fstprint", "--acceptor", "c.fst")) == b"0\t1\t2\n1\n"
    refused(fsts("fstcompile", "--isymbols=words.txt", "x.txt"), "x.txt: line 1: '1' is none of")
    refused(fsts("fstcompile", "--keep_isymbols", "x.txt"), "wants --isymbols")
    refused(fsts("fstcompile", "--fst_type=string", "x.txt"), "one of vector, compact_acceptor")
    refused(
        fsts("fstcompile", "--fst_type=compact_acceptor", "x.txt"), "x.txt: an FST whose labels"
    )
    refused(
        fsts("fstprint", "--osymbols=words.txt", "x.txt"), "words.txt: no symbol has the label 2"
    )


def test_local_epsilons(fsts):
    Path("two.txt").write_text("0 1 0 0\n0 0\n1 0\n")
    assert printed(fsts, "fstrmepslocal", "two.txt") == ["0"]
    assert printed(fsts, "fstrmepslocal", "--use-log=true", "two.txt") == ["0\t-0.6931472"]
    words = "--use-log", "--stochastic-in-log=false"
    refused(fsts("fstrmepslocal", *words, "x.txt"), "exclude each other")


@pytest.mark.parametrize(
    "words",
    [(), ("--match-side=right",), ("--compose-filter=alt_sequence",), ("--compose-filter=auto",)],
)
def test_composition(fsts, words):
    Path("words.txt").write_text("0 1 1 7 1\n0 1 2 8\n1\n")
    lines = ["0\t1\t1\t7\t1.5", "0\t1\t3\t8", "1\t0.25"]
    assert printed(fsts, "fsttablecompose", *words, "x.txt", "words.txt") == lines
    Path("g.ark").write_text("a \n0 1 1 7 1\n1\n\nb \n0 0.5\n\n")
    done(fsts("fsttablecompose", "x.txt", "ark:g.ark", "ark,t:out"), "Composed 2 FSTs.")
    assert Path("out").read_text().split() == "a 0 1 1 7 1.5 1 0.25 b".split()
    Path("x.ark").write_text(f"b \n{FST}\na \n{FST}\nc \n{FST}\n")
    told = "Empty output for key b", "No such key c", "composed 1 FSTs, errors or empty output on 2"
    done(fsts("fsttablecompose", "ark:x.ark", "ark:g.ark", "ark,t:out"), *told)
    assert Path("out").read_text().split() == "a 0 1 1 7 1.5 1 0.25".split()


def test_what_cannot_be_composed(fsts):
    refused(fsts("fsttablecompose", "--match-side=up", "x.txt", "x.txt"), "one of left, right")
    refused(fsts("fsttablecompose", "x.txt", "x.txt", "ark:y"), "ark:y: a table is written where")
    refused(fsts("fsttablecompose", "x.txt", "ark:y"), "a table is written where")
    refused(fsts("fsttablecompose", "ark:x", "y.txt", "ark:z"), "ark:x: the first")
    refused(fsts("fsttablecompose", "x.txt", "none.txt"), "none.txt: No such file")


def test_mistakes(fsts):
    refused(fsts("fstrmsymbols", "--penalty=1", "--remove-arcs", "in.list", "x.txt"), "only one of")
    refused(fsts("fstrmsymbols", "--penalty=nan", "in.list", "x.txt"), "a number is wanted")
    refused(fsts("fstaddselfloops", "in.list", "out.list", "x.txt"), "x.txt, in.list, out.list: ")
    refused(fsts("fstpushspecial", "--delta=0", "x.txt"), "--delta=0: a number above 0")
    refused(fsts("fstarcsort", "--sort_type=olabels", "x.txt"), "one of ilabel, olabel")
    Path("far.txt").write_text("0 0 1 1 -900\n0 1 2 2 5\n0 0.5\n1\n")
    refused(fsts("fstpushspecial", "far.txt"), "far.txt: the weights")
    Path("in.list").write_text("3\nx\n")
    refused(fsts("fstrmsymbols", "in.list", "x.txt"), "in.list: line 2: ")


def test_look_ahead_fsts(fsts):
    """Labels of the first FST are renumbered, and those of the second one after them."""
    words = "fstconvert", "--fst_type=olabel_lookahead"
    done(fsts(*words, "--save_relabel_opairs=pairs", "x.txt", "ahead.fst"))
    assert b"olabel_lookahead" in Path("ahead.fst").read_bytes()
    assert Path("pairs").read_text() == "1\t1\n2\t2\n3\t4\n"  # 3 is the end
    lines = printed(fsts, "fstrelabel", "--relabel_ipairs=pairs", "x.txt")
    assert lines == ["0\t1\t1\t1\t0.5", "0\t1\t4\t2", "1\t0.25"]
    refused(fsts("fstconvert", "--save_relabel_opairs=p", "x.txt"), "wants --fst-type=olabel_look")
    refused(fsts("fstconvert", "--fst_type=compact_acceptor", "x.txt"), "labels differ")
    Path("pairs").write_text("1 2\n3\n")
    refused(
        fsts("fstrelabel", "--relabel_opairs=pairs", "x.txt"), "pairs: line 2: an old and a new"
    )
