"""compute-wer, align-text and `opscope wer`."""

from pathlib import Path

import pytest

from kaldi_models import done, refused

LINES = (
    b"%WER 50.00 [ 3 / 6, 1 ins, 1 del, 1 sub ]\n"
    b"%SER 66.67 [ 2 / 3 ]\n"
    b"Scored 3 sentences, 0 not present in hyp.\n"
)


@pytest.fixture
def texts(call):
    Path("ref").write_text("a a b c\nb a b\nc x\n")
    Path("hyp").write_text("c x y\na b d\nb a b\n")
    Path("some").write_text("c x y\nb a b\n")


def test_compute_wer(call, texts):
    assert done(call("compute-wer", "--text", "--mode=present", "ark:ref", "ark:hyp")) == LINES
    some = "ark:ref", "ark:some"
    assert done(call("compute-wer", "--mode=present", *some)).splitlines() == [
        b"%WER 33.33 [ 1 / 3, 1 ins, 0 del, 0 sub ] [PARTIAL]",
        b"%SER 50.00 [ 1 / 2 ]",
        b"Scored 2 sentences, 1 not present in hyp.",
    ]
    assert done(call("compute-wer", "--mode=all", *some)).splitlines() == [
        b"%WER 66.67 [ 4 / 6, 1 ins, 3 del, 0 sub ] [PARTIAL]",
        b"%SER 66.67 [ 2 / 3 ]",
        b"Scored 3 sentences, 1 not present in hyp.",
    ]
    refused(call("compute-wer", *some), "No hypothesis for key a and strict mode specifier.")
    refused(call("compute-wer", "--mode=few", *some), "--mode option invalid", "got few")


def test_confidence_intervals(call, texts):
    # what Kaldi's functions print for these errors, with the random numbers of GNU's library
    printed = done(call("compute-wer-bootci", "ark:ref", "ark:hyp")).decode()
    assert printed == "Set1: %WER 50.45 95% Conf Interval [ 6.87, 94.04 ]\n"
    both = call("compute-wer-bootci", "--replications=1000", "ark:ref", "ark:hyp", "ark:ref")
    assert done(both).decode().splitlines() == [
        "Set1: %WER 50.94 95% Conf Interval [ 6.90, 94.99 ]",
        "Set2: %WER 0.00 95% Conf Interval [ 0.00, 0.00 ]",
        "Probability of Set2 improving Set1: 96.40",
    ]
    few = "--mode=present", "ark:ref", "ark:some"
    assert b" 95% Conf Interval [ " in done(call("compute-wer-bootci", *few))
    refused(call("compute-wer-bootci", "ark:ref", "ark:some"), "No hypothesis for key a")
    refused(call("compute-wer-bootci", "--replications=0", *few), "must be positive")
    Path("none").write_text("z a\n")
    refused(call("compute-wer-bootci", *few[:2], "ark:none"), "no sentence can be scored")


def test_align_text(call, texts):
    out = done(
        call("align-text", "ark:ref", "ark:hyp", "ark,t:-"), "Done 3 sentences, failed for 0"
    )
    assert out == b"a a <eps> ; b b ; c d \nb a a ; b b \nc x x ; <eps> y \n"
    given = call(
        "align-text", "--special-symbol=***", "--separator=|", "ark:ref", "ark:some", "ark:-"
    )
    out = done(given, "Key a is in ark:ref, but not in ark:some", "Done 2 sentences, failed for 1")
    assert out == b"b a a | b b \nc x x | *** y \n"
    refused(
        call("align-text", "--special-symbol=d", "ark:ref", "ark:hyp", "ark:-"),
        "In text2, the utterance a contains the special symbol 'd'. This is not allowed.",
    )
    Path("bad").write_text("a \x01b\n")
    refused(call("align-text", "ark:bad", "ark:hyp", "ark:-"), "In text1, the utterance a contains")


def test_wer(call, texts):
    assert done(call("wer", "ref", "ark:hyp", "--page", "errors.html")) == LINES
    page = Path("errors.html").read_text()
    assert "%WER 50.00" in page and "<h3>c <small>1 of 1 words, 100.00 %</small></h3>" in page
    code, out, err = call("wer", "ref", "some", "--page", "other.html")
    assert (code, out) == (1, b"") and "No hypothesis for key a" in err
    assert not Path("other.html").exists()
    code, out, err = call("wer", "none", "hyp")
    assert (code, out) == (1, b"") and err.startswith("error: none: No such file")


def test_lattice_oracle(call):
    Path("l.txt").write_text(
        "u1 \n0\t1\t7\t1,8,2_1\n0\t1\t8\t2,6,4_3\n1\t2\t0\t0.5,3,1\n1\t2\t5\t0.5,4,1\n"
        "2\t3\t9\t0,0,1\n3\n\nu2 \n0\t1\t7\t0,0,1\n1\n\nu3 \n0\t1\t7\t0,0,1\n1\n\n"
    )
    Path("ref").write_text("u1 8 6 9 4\nu2 4\n")
    Path("words.txt").write_text("<eps> 0\nd 4\ne 5\nf 6\ng 7\nh 8\ni 9\n")
    given = "ark:l.txt", "ark:ref", "ark,t:words", "ark,t:-"
    out = done(
        call("lattice-oracle", "--word-symbol-table=words.txt", *given),
        "%WER 50 [ 2 / 4, 0 insertions, 2 deletions, 0 sub ]",
        "For utterance u1, best cost 2",
        "u1 (oracle) h i \nu1 (reference) h f i d \n",
        "No reference present for utterance u3",
        "Overall %WER 60 [ 3 / 5, 0 insertions, 2 deletions, 1 substitutions ]",
        "Scored 2 lattices, 1 not present in ref.",
    )
    assert out == b"u1 2 \nu2 1 \n" and Path("words").read_text() == "u1 8 9 \nu2 7 \n"
    wild = "--wildcard-symbols=5:6", "--write-lattices=ark,t:best"
    assert done(call("lattice-oracle", *wild, *given)) == b"u1 1 \nu2 1 \n"
    # of the ways between 8 and 9, both without a word that counts, the cheaper one
    assert [line.split("\t")[2:] for line in Path("best").read_text().splitlines()[1:4]] == [
        ["8", "2,6,4_3"],
        ["0", "0.5,3,1"],
        ["9", "0,0,1"],
    ]
    Path("wild").write_text("e\nf\n")
    listed = "--wildcard-symbols-list=wild", "--word-symbol-table=words.txt"
    assert done(call("lattice-oracle", *listed, *given)) == b"u1 1 \nu2 1 \n"
    Path("wild").write_text("z\n")
    refused(call("lattice-oracle", *listed, *given), "Can't find symbol in symbol table: z")
    refused(call("lattice-oracle", listed[0], *given), "wants --word-symbol-table")
    refused(call("lattice-oracle", "--wildcard-symbols=a", *given), "--wildcard-symbols")
