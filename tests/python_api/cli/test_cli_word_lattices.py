"""Programs for lattices of words: alignment, minimum Bayes risk, CTM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kaldi_models import EXCHANGED_PDFS as MODEL
from kaldi_models import done, refused
from opscope.kaldi.tables.tables import TableWriter, read_table
from speech_data import reference, vosk_model
from vosk_lattices import FRAME, LM_SCALE, vosk_lattice, vosk_words

THREE = 1.0986123  # log(3): a word of this cost is a third as likely as one of cost 0
WORDS = (
    f"u1 \n0\t1\t7\t0,0,2_1\n0\t1\t8\t{THREE},0,2_1\n1\t2\t9\t0.5,2,4\n2\t0,0,\n\n"
    f"u2 \n0\t1\t7\t0,0,2\n0\t2\t8\t0,{THREE},2_1\n1\t2\t0\t0,0,1\n2\n\n"
)


@pytest.fixture
def words(call):
    Path("w.txt").write_text(WORDS)


def test_ctm_with_confidences(call, words):
    out = done(
        call("lattice-to-ctm-conf", "ark:w.txt", "-"),
        "For utterance u1, Bayes Risk 0.25, avg. confidence per-word 0.875",
        "Done 2 lattices.",
        "Overall average Bayes Risk per sentence is 0.25 and per word, 0.166667",
    )
    assert out == b"u1 1 0.00 0.02 7 0.75\nu1 1 0.02 0.01 9 1.00\nu2 1 0.00 0.01 7 0.75\n"
    options = "--lm-scale=0.5", "--acoustic-scale=2", "--confidence-digits=4", "--frame-shift=0.03"
    out = done(call("lattice-to-ctm-conf", *options, "ark:w.txt", "c.ctm"))
    assert Path("c.ctm").read_text() == (
        "u1 1 0.0000 0.0600 7 0.6340\nu1 1 0.0600 0.0300 9 1.0000\nu2 1 0.0000 0.0300 7 0.9000\n"
    )
    refused(call("lattice-to-ctm-conf", "ark:w.txt", "ark:-"), "should not be a wspecifier")
    scales = "--acoustic-scale=2", "--inv-acoustic-scale=2"
    refused(call("lattice-to-ctm-conf", *scales, "ark:w.txt", "-"), "--inv-acoustic-scale")


def test_ctm_of_given_words(call, words):
    Path("best").write_text("u1 8 5\n")
    given = "--decode-mbr=false", "ark:w.txt", "ark:best"
    out = done(call("lattice-to-ctm-conf", *given, "-"), "No 1-best present for utterance u2")
    lines = [line.split() for line in out.decode().splitlines()]
    assert [(line[4], line[5]) for line in lines] == [("8", "0.25"), ("5", "0.00")]
    again = done(call("lattice-to-ctm-conf", "ark:w.txt", "ark:best", "-"))
    assert again.splitlines()[0] == b"u1 1 0.00 0.02 7 0.75"
    Path("times").write_text("u1 0 1.5 ; 1.5 3 \n")
    assert done(call("lattice-to-ctm-conf", *given, "ark:times", "-")) == out
    Path("times").write_text("u3 0 1 \n")
    code, out, err = call("lattice-to-ctm-conf", *given, "ark:times", "-")
    assert (code, out) == (1, b"") and "No 'times' present for utterance u1" in err


def test_mbr_decode(call, words):
    tables = "ark,t:words", "ark,t:risks", "ark,t:bins", "ark,t:times"
    done(
        call("lattice-mbr-decode", "ark:w.txt", *tables),
        "Average Bayes Risk per sentence is 0.25 and per word, 0.166667",
    )
    assert Path("words").read_text() == "u1 7 9 \nu2 7 \n"
    assert [risk for _, risk in read_table("ark:risks", "float")] == pytest.approx([0.25, 0.25])
    assert Path("bins").read_text().splitlines()[1] == "u2 [ 0 1 ] [ 7 0.75 8 0.25 ] [ 0 1 ] "
    times = dict(read_table("ark:times", "float_pair_vector"))
    # 7 ends after one frame, and an arc without a word follows; 8 ends after two frames
    assert times["u2"].tolist() == [[0, 0], [0, 1.25], [1.25, 2]]
    done(call("lattice-mbr-decode", "--one-best-times", "ark:w.txt", "", "", "", "ark,t:times"))
    assert Path("times").read_text() == "u1 0 2 ; 2 3 \nu2 0 1 \n"


def test_ctm_of_single_paths(call):
    Path("p.txt").write_text("u1 \n0\t1\t7\t0,0,2_1\n1\t2\t0\t0,0,4\n2\t3\t9\t0,0,2\n3\n\n" + WORDS)
    said = "Converted 1 linear lattices to ctm format; 2 had errors."
    out = done(call("nbest-to-ctm", "ark:p.txt", "-"), said, "Format conversion failed for key u2")
    assert out == b"u1 1 0.00 0.02 7\nu1 1 0.03 0.01 9\n"
    options = "--print-silence", "--frame-shift=0.0005"
    out = done(call("nbest-to-ctm", *options, "ark:p.txt", "-"))
    assert out == b"u1 1 0.0000 0.0010 7\nu1 1 0.0010 0.0005 0\nu1 1 0.0015 0.0005 9\n"


def test_word_alignment(call):
    Path("final.mdl").write_text(MODEL)
    Path("boundary").write_text("1 singleton\n2 nonword\n")
    # transition-ids 1 and 3 are loops, 2 and 4 leave phones 1 and 2
    Path("l.txt").write_text(
        "u1 \n0\t1\t7\t1,8,2_1_4\n1\t2\t0\t0.5,3,3\n2\t0.25,0,\n\nu2 \n0\t1\t7\t0,0,1_1\n1\n\n"
        "u3 \n0\t1\t0\t0,0,4\n1\n\n"
    )
    given = "boundary", "final.mdl", "ark:l.txt", "ark,t:-"
    out = done(
        call("lattice-align-words", "--silence-label=5", *given),
        "Outputting partial lattice for u2",
        "Successfully aligned 2 lattices; 1 had errors.",
    ).decode()
    first, second, third = (each.splitlines() for each in out.strip().split("\n\n"))
    assert [line.split("\t")[2:] for line in first if "\t" in line][:2] == [
        ["7", "1,8,2_1"],
        ["5", "0.75,3,4_3"],
    ]
    assert second[1].split("\t")[2:] == ["7", "0,0,1_1"] and third[1].split("\t")[2] == "5"
    out = done(call("lattice-align-words", "--output-error-lats=false", *given), "did not align")
    assert b"u2" not in out
    Path("boundary").write_text("1 singleton\n")
    refused(call("lattice-align-words", *given), "ark:l.txt: u1: phone 2 is not in the list")


def test_penalties(call, words):
    out = done(
        call("lattice-add-penalty", "--word-ins-penalty=0.5", "ark:w.txt", "ark,t:-"),
        "Done adding word insertion penalty to 2 lattices.",
    )
    lines = out.decode().splitlines()
    assert "0\t1\t7\t0.5,0,2_1" in lines and "1\t2\t0\t0,0,1" in lines
    assert "1\t2\t9\t1,2,4" in lines


def test_a_lattice_of_vosk_gives_its_words(call):
    with TableWriter("ark:u3.lat", "compact_lattice") as writer:
        writer.write("u3", vosk_lattice("u3"))
    model = vosk_model("graph", "phones", "word_boundary.int"), vosk_model("am", "final.mdl")
    done(call("lattice-align-words", *map(str, model), "ark:u3.lat", "ark:aligned"))
    options = f"--lm-scale={LM_SCALE}", f"--frame-shift={FRAME}", "--confidence-digits=4"
    lines = done(call("lattice-to-ctm-conf", *options, "ark:aligned", "-")).decode().splitlines()
    (wanted,) = json.loads(reference("u3.whole.json").read_text())
    rows = [line.split()[2:] for line in lines]
    assert [[begin, vosk_words()[int(word)], sure] for begin, _, word, sure in rows] == [
        [f"{word['start']:.4f}", word["word"], f"{word['conf']:.4f}"] for word in wanted["result"]
    ]
