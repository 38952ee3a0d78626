"""Kaldi's programs that decode, beside what Kaldi's own programs write for a small model.

The lattices in `golden/latgen` were written by Kaldi's nnet3-latgen-faster and
online2-wav-nnet3-latgen-faster for the files of `speech_decoding`.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from ivector_models import DIM
from kaldi_models import done
from opscope.kaldi.lattices.lattice import CompactLattice
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.speech.audio.wav import WAVE, Audio
from speech_decoding import (
    LENGTHS,
    PHONES,
    decoding_graph,
    recordings,
    write_decoding,
    write_network,
)
from speech_graphs import arc_fst, const_bytes, vector_bytes
from speech_lattices import paths

GOLDEN = Path(__file__).parents[2] / "golden" / "latgen"
OFFLINE, ONLINE = "nnet3-latgen-faster", "online2-wav-nnet3-latgen-faster"
FILES = "final.mdl", "HCLG.fst", "ark:feats.ark", "ark:o.lat"
IVECTORS = "--ivectors=ark:ivectors.ark"
GIVEN = "--acoustic-scale=1.0", "--lattice-beam=1.5", "--frames-per-chunk=20", IVECTORS
WAVES = "final.mdl", "HCLG.fst", "ark:spk2utt", "scp:wav.scp", "ark:o.lat"
CONFIGS = "--mfcc-config=mfcc.conf", "--ivector-extraction-config=ivector_extractor.conf"
HEARD = *CONFIGS, "--acoustic-scale=1.0", "--lattice-beam=1.5", "--frames-per-chunk=6"


@pytest.fixture
def decode(call):
    """The command line, in a folder with a model, a graph and utterances."""
    write_decoding()
    return call


def refused(result, *parts: str) -> None:
    """Exit code 1 and an error in the last line."""
    code, out, err = result
    last = err.splitlines()[-1]
    assert code == 1 and out == b"" and last.startswith("ERROR ("), err
    assert all(part in last for part in parts), err


def table(name: str, kind: str = "compact_lattice") -> dict:
    return dict(read_table(name, kind))


def assert_same_paths(ours: CompactLattice, theirs: CompactLattice) -> None:
    mine, wanted = paths(ours), paths(theirs)
    assert mine.keys() == wanted.keys()
    for key, costs in wanted.items():
        np.testing.assert_allclose(mine[key], costs, atol=2e-3)


def assert_golden(name: str, kind: str = "compact_lattice") -> None:
    ours, theirs = table("ark:o.lat", kind), table(f"ark:{GOLDEN / name}", kind)
    assert ours.keys() == theirs.keys() == LENGTHS.keys()
    for key, lattice in theirs.items():
        assert_same_paths(ours[key], lattice)


def test_lattices_words_and_alignments(decode):
    out = "ark,t:-", "ark,t:o.ali"
    code, told, err = decode(
        OFFLINE, *GIVEN, "--word-symbol-table=words.txt", "--verbose=2", *FILES, *out
    )
    assert code == 0, err
    assert told == b"a 3 3 3 3 1 \nb 5 3 \nc 5 5 2 5 1 1 2 5 2 1 \n"
    assert "\nb w5 w3 \n" in err
    for line in (
        "Log-like per frame for utterance a is 0.237405 over 40 frames.",
        "Cost for utterance b is 13 + -19.1966",
        "Time taken",
        "Done 3 utterances, failed for 0",
        "Overall log-likelihood per frame is 0.314327 over 126 frames.",
    ):
        assert line in err
    assert_golden("ivectors.txt")
    for key, alignment in table("ark:o.ali", "int_vector").items():
        ids = min(paths(table("ark:o.lat")[key]).items(), key=lambda each: sum(each[1]))[0][1]
        assert alignment.tolist() == list(ids)


def test_online_ivectors_scales_and_minimized_lattices(decode):
    options = (
        *("--acoustic-scale=0.7", "--lattice-beam=1", "--frame-subsampling-factor=2"),
        *("--online-ivectors=ark:online.ark", "--online-ivector-period=10", "--minimize=true"),
        "--extra-left-context=2",
    )
    done(decode(OFFLINE, *options, *FILES))
    assert_golden("online_ivectors.txt")


def test_raw_lattices(decode):
    options = "--acoustic-scale=1.0", "--lattice-beam=0.3", "--determinize-lattice=false"
    done(decode(OFFLINE, *options, IVECTORS, *FILES))
    assert_golden("raw.txt", "lattice")
    header = Path("o.lat").read_bytes()[:60]
    assert b"vector" in header and b"lattice4" in header and b"compact" not in header


def test_determinized_lattices_have_the_best_of_the_raw_ones(decode):
    options = "--acoustic-scale=1.0", "--lattice-beam=0.6", IVECTORS
    done(decode(OFFLINE, *options, "--determinize-lattice=false", *FILES))
    raw = table("ark:o.lat", "lattice")
    done(decode(OFFLINE, *options, *FILES))
    for key, lattice in table("ark:o.lat").items():
        every: dict[tuple, float] = {}
        for (words, _), costs in paths(raw[key]).items():
            every[words] = min(every.get(words, np.inf), sum(costs))
        found = {words: sum(costs) for (words, _), costs in paths(lattice).items()}
        assert len(found) == len(paths(lattice))
        for words, cost in every.items():
            if cost <= min(every.values()) + 0.59:
                assert found[words] == pytest.approx(cost, abs=1e-3)


@pytest.mark.parametrize("first", ["--word-determinize=false", "--phone-determinize=false"])
def test_single_passes(decode, first):
    done(decode(OFFLINE, *GIVEN, *FILES))
    whole = table("ark:o.lat")
    done(decode(OFFLINE, *GIVEN, first, "--minimize=true", *FILES))
    for key, lattice in table("ark:o.lat").items():
        best = [min(map(sum, paths(each).values())) for each in (lattice, whole[key])]
        assert best[0] == pytest.approx(best[1], abs=1e-3)


def test_no_pass_copies_the_lattice(decode):
    options = "--acoustic-scale=1.0", "--lattice-beam=0.3", IVECTORS
    done(decode(OFFLINE, *options, "--determinize-lattice=false", *FILES))
    raw = table("ark:o.lat", "lattice")
    neither = "--phone-determinize=false", "--word-determinize=false"
    done(decode(OFFLINE, *options, *neither, *FILES), "Both --phone-determinize and")
    for key, lattice in table("ark:o.lat").items():
        assert_same_paths(lattice, raw[key])


def test_graphs_of_other_kinds_and_a_table_of_them(decode):
    done(decode(OFFLINE, *GIVEN, *FILES))
    wanted = Path("o.lat").read_bytes()
    Path("HCLG.fst").write_bytes(const_bytes(decoding_graph(), aligned=True))
    done(decode(OFFLINE, *GIVEN, *FILES))
    assert Path("o.lat").read_bytes() == wanted
    graph = vector_bytes(decoding_graph())
    Path("graphs.ark").write_bytes(b"".join(k + b" " + graph for k in (b"c", b"x", b"a")))
    given = "final.mdl", "ark:graphs.ark", "ark:feats.ark", "ark:t.lat"
    done(
        decode(OFFLINE, *GIVEN, *given),
        "Not decoding utterance x because no features available.",
        "Done 2 utterances, failed for 1",
    )
    whole, found = table("ark:o.lat"), table("ark:t.lat")
    assert list(found) == ["c", "a"]
    for key, lattice in found.items():
        assert_same_paths(lattice, whole[key])


def test_utterances_that_fail(decode):
    with TableWriter("ark:feats.ark", "matrix") as writer:
        for key, frames in (("none", 0), ("long", 4), ("short", 2), ("unknown", 2)):
            writer.write(key, np.ones((frames, 3), np.float32))
    with TableWriter("ark:ivectors.ark", "vector") as writer:
        for key in ("none", "long", "short"):
            writer.write(key, np.ones(4, np.float32))
    # two frames of the word 1, and nothing after them; it may not end at once
    rows = [[(4, 1, 0.5, 1)], [(6, 0, 0.5, 2)], []]
    Path("HCLG.fst").write_bytes(vector_bytes(arc_fst(rows, {2: 0.25})))
    done(
        decode(OFFLINE, IVECTORS, *FILES),
        "Zero-length utterance: none",
        "Failed to decode utterance with id long",
        "long: frame 2: no path is left",
        "No iVector available for utterance unknown",
        "Done 1 utterances, failed for 3",
    )
    assert list(table("ark:o.lat")) == ["short"]
    Path("HCLG.fst").write_bytes(vector_bytes(arc_fst([*rows[:2], [(6, 0, 0.5, 2)], []], {3: 0})))
    code, _, err = decode(OFFLINE, IVECTORS, *FILES)
    told = "Not producing output for utterance short since no final-state reached and"
    assert code == 1 and f"{told} --allow-partial=false." in err
    assert "Done 0 utterances, failed for 4" in err and "is nan over 0 frames" in err
    done(
        decode(OFFLINE, IVECTORS, "--allow-partial=true", *FILES),
        "Outputting partial output for utterance short since no final-state reached",
        "Done 2 utterances, failed for 2",
    )
    assert list(table("ark:o.lat")) == ["long", "short"]


def test_wrong_input(decode):
    refused(decode(OFFLINE, *GIVEN, "HCLG.fst", "HCLG.fst", *FILES[2:]), "HCLG.fst")
    refused(decode(OFFLINE, "--beam=-1", *FILES), "beam=-1")
    refused(decode(OFFLINE, *FILES), "a: the network wants an iVector of 4 columns")
    refused(decode(OFFLINE, *GIVEN, *FILES[:3]), "wants <nnet-in> <fst-in|fsts-rspecifier>")
    Path("words.txt").write_text("<eps> 0\nw1 1\n")
    words = "--word-symbol-table=words.txt"
    refused(decode(OFFLINE, *GIVEN, words, *FILES), "Word-id 3 not in symbol table.")
    largest = 2 * PHONES + 1
    Path("HCLG.fst").write_bytes(vector_bytes(arc_fst([[(largest, 1, 0.0, 0)]], {0: 0.0})))
    refused(decode(OFFLINE, *GIVEN, *FILES), f"input label {largest}, final.mdl has 8")
    Path("HCLG.fst").write_bytes(b"no graph")
    refused(decode(OFFLINE, *GIVEN, *FILES), "HCLG.fst: a binary FST of OpenFst was expected")
    Path("graphs.ark").write_bytes(b"a " + vector_bytes(arc_fst([], {}, -1)))
    given = "final.mdl", "ark:graphs.ark", *FILES[2:]
    refused(decode(OFFLINE, *GIVEN, *given), "ark:graphs.ark: a: the graph is empty")


def test_online_with_weights_of_silence(decode):
    weights = "silence-phones=1", "silence-weight=0.1"
    options = *(f"--ivector-silence-weighting.{each}" for each in weights), "--chunk-length=0.1"
    done(
        decode(ONLINE, *HEARD, *options, "--verbose=2", *WAVES),
        "Computing derived variables",
        "Likelihood per frame for utterance a is",
        "Latency",
        "Decoded utterance c",
        "By the end of the utterance",
        "Timing stats: real-time factor was",
        "Decoded 3 utterances, 0 with errors.",
        "over 126 frames.",
    )
    assert_golden("online.txt")


def test_online_of_whole_recordings(decode):
    told = decode(ONLINE, *HEARD, "--online=false", "--word-symbol-table=words.txt", *WAVES)
    done(
        told,
        "Timing stats: real-time factor for offline decoding was",
        "\nb w2 w2 \n",
    )
    found = re.search(r"Overall likelihood per frame was (\S+) per frame over 126", told[2])
    # Kaldi printed 0.629386; its last digit here depends on the processor's loops.
    assert found is not None and float(found[1]) == pytest.approx(0.629386, abs=2e-6)
    assert_golden("whole.txt")
    wanted = Path("o.lat").read_bytes()
    config = Path("ivector_extractor.conf")
    config.write_text(config.read_text() + "--greedy-ivector-extractor=true\n")
    done(decode(ONLINE, *HEARD, "--chunk-length=-1", *WAVES))
    assert Path("o.lat").read_bytes() == wanted


@pytest.mark.parametrize("kind", ["mfcc", "plp", "pitch"])
def test_online_and_offline_are_equal_for_the_same_features(decode, kind):
    """Features and iVectors by programs of their own, then the network for whole utterances."""
    Path("spk2utt").write_text("a a\nb b\nc c\n")
    Path("pitch.conf").write_text("--delta-pitch-noise-stddev=0\n--normalization-left-context=9\n")
    Path("plp.conf").write_text(f"--num-ceps={DIM}\n--lpc-order=5\n--dither=0\n")
    options = {
        "mfcc": (),
        "plp": ("--feature-type=plp", "--plp-config=plp.conf"),
        "pitch": ("--add-pitch=true", "--online-pitch-config=pitch.conf"),
    }
    base = "plp" if kind == "plp" else "mfcc"
    program, tables = f"compute-{base}-feats", ("scp:wav.scp", "ark:mfcc.ark")
    done(decode(program, f"--config={base}.conf", *tables))
    if kind == "pitch":
        write_network(DIM + 3)
        pitch = "compute-and-process-kaldi-pitch-feats", "--config=pitch.conf"
        done(decode(*pitch, "scp:wav.scp", "ark:pitch.ark"))
    done(decode(ONLINE, *HEARD, *options[kind], "--online=false", *WAVES))
    heard = table("ark:o.lat")
    config = Path("ivector_extractor.conf")
    config.write_text(config.read_text() + "--ivector-period=1\n")
    greedy = "--greedy-ivector-extractor=true"
    given = f"--config={config}", greedy, "ark:spk2utt", "ark:mfcc.ark", "ark:i.ark"
    done(decode("ivector-extract-online2", *given))
    with TableWriter("ark:last.ark", "vector") as writer:
        for key, rows in table("ark:i.ark", "matrix").items():
            writer.write(key, rows[-1])
    scales = "--acoustic-scale=1.0", "--lattice-beam=1.5", "--ivectors=ark:last.ark"
    if kind == "pitch":
        beside = table("ark:pitch.ark", "matrix")
        known = table("ark:mfcc.ark", "matrix")
        with TableWriter("ark:mfcc.ark", "matrix") as writer:
            for key, rows in known.items():
                writer.write(key, np.hstack((rows, beside[key])))
    done(decode(OFFLINE, *scales, "final.mdl", "HCLG.fst", "ark:mfcc.ark", "ark:o.lat"))
    for key, lattice in table("ark:o.lat").items():
        mine, wanted = paths(lattice), paths(heard[key])
        best = [min(each.items(), key=lambda one: sum(one[1])) for each in (mine, wanted)]
        assert best[0][0] == best[1][0]
        np.testing.assert_allclose(best[0][1], best[1][1], atol=0.05)


def test_online_endpoints(decode):
    rule = "--endpoint.rule5.min-utterance-length=0.3", "--endpoint.silence-phones=1"
    done(
        decode(ONLINE, *HEARD, "--do-endpointing=true", "--verbose=2", *rule, *WAVES),
        "Endpointing rule rule5 activated: true,",
        "Decoded 3 utterances, 0 with errors.",
    )
    for lattice in table("ark:o.lat").values():
        ids = next(iter(paths(lattice)))[1]
        assert 20 <= len(ids) <= 60


def test_online_utterances_that_fail(decode):
    known = recordings()
    with TableWriter("ark,scp:wav.ark,wav.scp", WAVE) as writer:
        writer.write("a", known["a"])
        writer.write("b", Audio(known["b"].samples[:, :50], 16000.0))
    done(
        decode(ONLINE, *HEARD, *WAVES),
        "Did not find audio for utterance c",
        "Failed to decode utterance with id b",
        "You cannot get a lattice if you decoded no frames.",
        "Decoded 1 utterances, 2 with errors.",
    )
    Path("spk2utt").write_text("t c\n")
    code, _, err = decode(ONLINE, *HEARD, *WAVES)
    assert code == 1 and "Decoded 0 utterances, 1 with errors." in err


def test_online_cmvn_goes_along_with_the_speaker(decode):
    Path("cmvn.conf").write_text("--cmn-window=100\n")
    cmvn = "--cmvn-config=cmvn.conf", "--global-cmvn-stats=global_cmvn.stats"
    done(decode(ONLINE, *HEARD, *cmvn, *WAVES))
    together = table("ark:o.lat")
    Path("spk2utt").write_text("a a\nb b\nc c\n")
    done(decode(ONLINE, *HEARD, *cmvn, *WAVES))
    apart = table("ark:o.lat")
    costs = [min(map(sum, paths(each["b"]).values())) for each in (together, apart)]
    assert costs[0] != pytest.approx(costs[1], abs=1e-3)
    for key in ("a", "c"):
        assert_same_paths(together[key], apart[key])


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("--feature-type=plp", "Input feature dimension mismatch: got 13 but network expects 3"),
        ("--feature-type=lpc", "Invalid feature type: lpc"),
        ("--feature-type=fbank", "Input feature dimension mismatch: got 23 but network expects 3"),
        ("--add-pitch=true", "Input feature dimension mismatch: got 6 but network expects 3"),
        ("--cmvn-config=cmvn.conf", "--global-cmvn-stats option is required"),
        ("--ivector-extraction-config=", "Ivector feature dimension mismatch: got -1 but"),
        ("--determinize-lattice=false", "is not supported at the moment"),
        ("--do-endpointing=true", "requires nonempty --endpoint.silence-phones"),
        ("--endpoint.silence-phones=1,2", "'1,2' is no whole number"),
        ("--ivector-silence-weighting.silence-phones=1::2", "phones as 1:2:3 are wanted"),
        ("--acoustic-scale=0", "lattices cannot be written without the scale"),
        ("--mfcc-config=none.conf", "none.conf"),
        ("--chunk-length=nan", "--chunk-length=nan: a finite number is wanted"),
        ("--ivector-silence-weighting.max-state-duration=inf", "a finite number is wanted"),
        ("--lattice-beam=0", "lattice_beam=0"),
    ],
)
def test_online_refused(decode, option, part):
    refused(decode(ONLINE, *HEARD, option, *WAVES), part)
    assert not Path("o.lat").exists()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            "--fbank-config=x",
            "--fbank-config option has no effect since feature type is set",
        ),
        ("--online-pitch-config=x", "--online-pitch-config option has no effect since you"),
        ("--global-cmvn-stats=x", "--global-cmvn-stats has no effect without --cmvn-config"),
    ],
)
def test_online_options_without_effect(decode, option, told):
    done(decode(ONLINE, *HEARD, option, *WAVES), told)


def test_sampling_rates(decode):
    with TableWriter("ark,scp:wav.ark,wav.scp", WAVE) as writer:
        for key, audio in itertools.islice(recordings().items(), 1):
            writer.write(key, Audio(audio.samples, 8000.0))
    refused(decode(ONLINE, *HEARD, *WAVES), "scp:wav.scp: a: samples at 8000 Hz")
