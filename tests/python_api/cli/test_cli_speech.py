"""Kaldi's programs for features and iVectors of audio."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from ivector_models import write_model
from kaldi_models import done
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.speech import (
    Audio,
    Fbank,
    IvectorModel,
    IvectorOptions,
    Mfcc,
    OnlineIvector,
    Plp,
    SlidingCmvnOptions,
    Spectrogram,
    read_audio,
    resample,
    sliding_cmvn,
    splice,
    transform,
)
from opscope.speech.audio.wav import WAVE
from speech_data import sounds

QUIET = "--dither=0"


@pytest.fixture
def waves(call):
    """The command line, in a folder with recordings: one, its double, and one at 8 kHz."""
    samples = sounds(8000).astype(np.float32)
    with TableWriter("ark,scp:wav.ark,wav.scp", WAVE) as writer:
        writer.write("a", Audio(samples[None], 16000.0))
        writer.write("b", Audio(np.stack((samples, samples[::-1])), 16000.0))
    with TableWriter("ark:low.ark", WAVE) as writer:
        writer.write("low", Audio(samples[None], 8000.0))
        writer.write("short", Audio(samples[None, :100], 8000.0))
    return call


def refused(result, *parts: str) -> None:
    """Exit code 1 and an error in one line."""
    code, out, err = result
    last = err.splitlines()[-1]
    assert code == 1 and out == b"" and last.startswith("ERROR ("), err
    assert all(part in last for part in parts), err


def table(name: str, kind: str = "matrix") -> dict:
    return dict(read_table(name, kind))


def test_mfcc(waves):
    samples = sounds(8000)
    log = " Done 2 out of 2 utterances."
    done(
        waves("compute-mfcc-feats", QUIET, "--num-ceps=10", "scp:wav.scp", "ark:o.ark"),
        log,
        "Channel not specified but you have data with 2 channels; defaulting to zero",
    )
    wanted = Mfcc(dither=0.0, num_ceps=10).compute(samples, 16000)
    found = table("ark:o.ark")
    assert np.array_equal(found["a"], wanted) and np.array_equal(found["b"], wanted)
    Path("mfcc.conf").write_text(f"{QUIET}\n--num-ceps=10\n--channel=1\n")
    warning = "File with id a has 1 channels but you specified channel 1, producing no output."
    options = "--config=mfcc.conf", "--write-utt2dur=ark,t:-"
    out = done(waves("compute-mfcc-feats", *options, "ark:wav.ark", "ark:o.ark"), warning)
    assert out == b"b 0.5 \n"
    wanted = Mfcc(dither=0.0, num_ceps=10).compute(samples[::-1], 16000)
    assert np.array_equal(table("ark:o.ark")["b"], wanted)


def test_fbank(waves):
    options = QUIET, "--use-energy", "--subtract-mean=true", "--debug-mel"
    done(
        waves("compute-fbank-feats", *options, "ark:wav.ark", "ark:o.ark"),
        "bin 22, offset =",
        "Done 2 out of 2",
    )
    wanted = Fbank(dither=0.0, use_energy=True).compute(sounds(8000), 16000)
    np.testing.assert_allclose(table("ark:o.ark")["a"], wanted - wanted.mean(axis=0), atol=1e-4)


def test_spectrogram(waves):
    done(
        waves("compute-spectrogram-feats", QUIET, "--frame-shift=20", "ark:wav.ark", "ark:o.ark"),
        " Done 2 out of 2",
    )
    wanted = Spectrogram(dither=0.0, frame_shift=20.0).compute(sounds(8000), 16000)
    assert np.array_equal(table("ark:o.ark")["a"], wanted)
    options = QUIET, "--frame-shift=20", "--output-format=htk"
    done(waves("compute-spectrogram-feats", *options, "ark:wav.ark", "ark:o.ark"))
    head = struct.pack(">iihH", 24, 200000, 4 * 257, 0o20007)
    assert Path("o.ark").read_bytes().startswith(b"a " + head)


def test_plp(waves):
    done(waves("compute-plp-feats", QUIET, "ark:wav.ark", "ark:o.ark"), "Done 2 out of 2")
    assert np.array_equal(table("ark:o.ark")["a"], Plp(dither=0.0).compute(sounds(8000), 16000))
    options = QUIET, "--num-ceps=10", "--output-format=htk"
    done(waves("compute-plp-feats", *options, "ark:wav.ark", "ark:o.ark"))
    head = struct.pack(">iihH", 48, 100000, 4 * 10, 0o20013)
    assert Path("o.ark").read_bytes().startswith(b"a " + head)


def test_pitch(waves):
    """In one step as in two."""
    log = "Done 2 utterances, 0 with errors."
    warning = "Channel not specified but you have data with 2 channels"
    done(waves("compute-kaldi-pitch-feats", "ark:wav.ark", "ark:pitch.ark"), log, warning)
    assert table("ark:pitch.ark")["a"].shape == (48, 2)
    options = "--delay=2", "--srand=7", "--add-raw-log-pitch=true"
    done(
        waves("process-kaldi-pitch-feats", *options, "ark:pitch.ark", "ark:two.ark"),
        "Post-processed pitch for 2 utterances.",
    )
    options = *options, "ark:wav.ark", "ark:one.ark"
    done(waves("compute-and-process-kaldi-pitch-feats", *options), log)
    one, two = table("ark:one.ark"), table("ark:two.ark")
    assert one["a"].shape == (50, 4) and not np.array_equal(one["a"], one["b"])
    assert all(np.array_equal(one[key], two[key]) for key in "ab")
    wrong = waves("compute-kaldi-pitch-feats", "ark:low.ark", "ark:o.ark")
    refused(wrong, "you specified 16000 but data has 8000 (use --sample-frequency option)", "low")
    done(
        waves("compute-mfcc-feats", "ark:wav.ark", "ark:o.ark"),
    )
    wrong = waves("process-kaldi-pitch-feats", "ark:o.ark", "ark:p.ark")
    refused(wrong, "a: no features of pitch, which have columns NCCF and Hz")


def test_sampling_rates(waves):
    failed = "Failed to compute features for utterance low: samples at 8000 Hz, but"
    code, _, err = waves("compute-mfcc-feats", QUIET, "ark:low.ark", "ark:o.ark")
    assert code == 1 and failed in err and "Done 0 out of 2" in err
    options = QUIET, "--allow-upsample=true", "--min-duration=0.1"
    done(
        waves("compute-mfcc-feats", *options, "ark:low.ark", "ark:o.ark"),
        "File: short is too short (0.0125 sec): producing no output.",
        "Done 1 out of 2",
    )
    audio = resample(sounds(8000), 8000, 16000)
    assert np.array_equal(table("ark:o.ark")["low"], Mfcc(dither=0.0).compute(audio))
    options = QUIET, "--allow-upsample=true"
    done(
        waves("compute-mfcc-feats", *options, "ark:low.ark", "ark:o.ark"),
        "100 samples are too short for a frame",
    )
    assert table("ark:o.ark")["short"].size == 0


def test_dither_is_that_of_the_seed(waves):
    made = []
    for seed in (1, 1, 2):
        done(waves("compute-mfcc-feats", f"--srand={seed}", "ark:wav.ark", "ark:o.ark"))
        made.append(table("ark:o.ark"))
    assert np.array_equal(made[0]["a"], made[1]["a"])
    assert not np.array_equal(made[0]["a"], made[2]["a"])
    assert not np.array_equal(made[0]["a"], made[0]["b"])  # the same samples


def test_htk(waves):
    done(waves("compute-mfcc-feats", QUIET, "--output-format=htk", "ark:wav.ark", "ark:o.ark"))
    data, wanted = Path("o.ark").read_bytes(), Mfcc(dither=0.0).compute(sounds(8000))
    assert data.startswith(b"a " + struct.pack(">iihH", 48, 100000, 52, 0o106))
    assert np.array_equal(np.frombuffer(data, ">f4", 48 * 13, 14).reshape(48, 13), wanted)
    options = QUIET, "--output-format=htk"
    refused(waves("compute-mfcc-feats", *options, "ark:wav.ark", "ark,t:o"), "are binary")


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("--vtln-warp=0.9", "frequencies are not warped here"),
        ("--vtln-map=ark:x", "frequencies are not warped here"),
        ("--utt2spk=ark:x", "only needed with --vtln-map"),
        ("--output-format=csv", "none of kaldi, htk"),
        ("--num-ceps=0", "num_ceps=0 must lie"),
        ("--window-type=square", "is no window"),
        ("--num-cepts=3", "invalid option"),
    ],
)
def test_mfcc_refused(waves, option, part):
    refused(waves("compute-mfcc-feats", option, "ark:wav.ark", "ark:o.ark"), part)


def test_damaged_recordings(waves):
    Path("wav.ark").write_bytes(Path("wav.ark").read_bytes()[:5000])
    warning = "16000 bytes of samples are announced, but there are"
    done(waves("compute-mfcc-feats", QUIET, "ark:wav.ark", "ark:o.ark"), warning)
    Path("wav.ark").write_bytes(b"a RIFFxxxx")
    refused(waves("compute-mfcc-feats", QUIET, "ark:wav.ark", "ark:o.ark"), "wav.ark")


def test_segments(waves):
    Path("segments").write_text("one a 0 0.25\ntwo b 0.25 -1 1\nnone c 0 1\n")
    done(
        waves("extract-segments", "scp:wav.scp", "segments", "ark,scp:o.ark,o.scp"),
        "Could not find recording c, skipping segment none",
        "Successfully processed 2 lines out of 3 in the segments file.",
    )
    found = dict(read_table("scp:o.scp", WAVE))
    assert np.array_equal(found["one"].samples[0], sounds(8000)[:4000])
    assert np.array_equal(found["two"].samples[0], sounds(8000)[::-1][4000:])
    Path("one.wav").write_bytes(Path("o.ark").read_bytes()[4:])
    assert np.array_equal(read_audio("one.wav").samples[0], sounds(8000)[:4000])


@pytest.fixture
def feats(call):
    """The command line, in a folder with features of three columns."""
    rng = np.random.default_rng(0)
    with TableWriter("ark:in.ark", "matrix") as writer:
        for key, count in (("a", 30), ("b", 12), ("c", 7)):
            values = rng.normal(size=(count, 3)) * 3 + [60, 2, -3]
            writer.write(key, values.astype(np.float32))
    return call


def test_sliding(feats):
    options = "--cmn-window=9", "--min-cmn-window=4", "--norm-vars=true", "--center"
    log = "Applied sliding-window cepstral mean and variance normalization to 3 utterances, 0 had"
    done(feats("apply-cmvn-sliding", *options, "ark:in.ark", "ark:o.ark"), log)
    settings = SlidingCmvnOptions(9, 4, normalize_variance=True, center=True)
    for key, matrix in table("ark:in.ark").items():
        assert np.array_equal(table("ark:o.ark")[key], sliding_cmvn(matrix, settings))
    refused(feats("apply-cmvn-sliding", "--cmn-window=0", "ark:in.ark", "ark:o"), "cmn-window=0")


def test_splice_and_transform(feats):
    done(feats("splice-feats", "--left-context=1", "--right-context=2", "ark:in.ark", "ark:s.ark"))
    whole = table("ark:in.ark")
    assert np.array_equal(table("ark:s.ark")["a"], splice(whole["a"], 1, 2))
    matrix = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    with TableWriter("ark:m.ark", "matrix") as writer:
        writer.write("x", matrix)
        writer.write("y", matrix[:, :2])
    Path("one.mat").write_bytes(Path("m.ark").read_bytes()[2:])
    logdet = 0.5 * np.linalg.slogdet(matrix[:, :3].astype(float) @ matrix[:, :3].T)[1]
    done(
        feats("transform-feats", "one.mat", "ark:in.ark", "ark:o.ark"),
        f"Overall average [pseudo-]logdet is {logdet:g} over 49 frames.",
        "Applied transform to 3 utterances; 0 had errors.",
    )
    assert np.array_equal(table("ark:o.ark")["b"], transform(whole["b"], matrix))
    Path("utt2spk").write_text("a x\nb y\nc z\n")
    done(
        feats("transform-feats", "--utt2spk=ark:utt2spk", "ark:m.ark", "ark:in.ark", "ark:o.ark"),
        "Transform matrix for utterance b has bad dimension 2x2 versus feat dim 3",
        "No fMLLR transform available for utterance c",
        "Applied transform to 1 utterances; 2 had errors.",
    )
    assert list(table("ark:o.ark")) == ["a"]
    refused(
        feats("transform-feats", "--utt2spk=ark:utt2spk", "one.mat", "ark:in.ark", "ark:o.ark"),
        "wants a table of transforms",
    )


def test_ivectors(feats):
    write_model(Path())
    Path("spk2utt").write_text("s a b none\nt c\n")
    config = "--config=ivector_extractor.conf"
    done(
        feats("ivector-extract-online2", config, "ark:spk2utt", "ark:in.ark", "ark:o.ark"),
        "Did not find audio for utterance none",
        "Estimated iVectors for 3 files, 1 with errors.",
        "Average objective-function improvement was",
        "over 49 frames (weighted);  expected length is 2",
    )
    found, features = table("ark:o.ark"), table("ark:in.ark")
    model = IvectorModel.from_config("ivector_extractor.conf")
    settings = IvectorOptions(max_count=3, num_gselect=3, use_most_recent_ivector=False)
    model = IvectorModel(
        model.transform,
        model.global_stats,
        model.gaussians,
        model.extractor,
        model.cmvn,
        model.splice,
        settings,
    )
    state = None
    for key, count in (("a", 3), ("b", 2), ("c", 1)):
        ivectors = OnlineIvector(model, None if key == "c" else state)
        ivectors.accept(features[key])
        ivectors.finish()
        wanted = np.stack([ivectors.ivector(10 * period) for period in range(count)])
        np.testing.assert_allclose(found[key], wanted, atol=1e-5)
        state = ivectors.adaptation_state()
    options = config, "--repeat=true"
    done(feats("ivector-extract-online2", *options, "ark:spk2utt", "ark:in.ark", "ark:r.ark"))
    repeated = table("ark:r.ark")
    assert len(repeated["a"]) == 30
    np.testing.assert_allclose(repeated["a"][::10], found["a"], atol=1e-5)


def test_weights_of_ivectors(feats):
    write_model(Path())
    Path("spk2utt").write_text("s a b c\n")
    with TableWriter("ark:w.ark", "vector") as writer:
        writer.write("a", np.ones(30, np.float32))
        writer.write("b", np.ones(10, np.float32))
    options = "--config=ivector_extractor.conf", "--frame-weights-rspecifier=ark:w.ark"
    done(
        feats("ivector-extract-online2", *options, "ark:spk2utt", "ark:in.ark", "ark:o.ark"),
        "10 weights for 12 frames of utterance b",
        "Did not find weights for utterance c",
        "Estimated iVectors for 1 files, 2 with errors.",
    )
    weighted = table("ark:o.ark")["a"]
    config = "--config=ivector_extractor.conf"
    done(feats("ivector-extract-online2", config, "ark:spk2utt", "ark:in.ark", "ark:p.ark"))
    np.testing.assert_allclose(weighted, table("ark:p.ark")["a"], atol=1e-5)
    options += ("--length-tolerance=2",)
    done(
        feats("ivector-extract-online2", *options, "ark:spk2utt", "ark:in.ark", "ark:o.ark"),
        "Estimated iVectors for 2 files, 1 with errors.",
    )


def test_ivectors_refused(feats):
    write_model(Path())
    Path("spk2utt").write_text("s a\n")
    names = "ark:spk2utt", "ark:in.ark", "ark:o.ark"
    refused(feats("ivector-extract-online2", *names), "--lda-matrix must be given")
    config = "--config=ivector_extractor.conf"
    refused(feats("ivector-extract-online2", config, "--min-post=0.7", *names), "min-post=0.7")
    Path("final.ie").write_bytes(Path("final.ie").read_bytes()[:400])
    refused(feats("ivector-extract-online2", config, *names), "final.ie")
    write_model(Path())
    with TableWriter("ark:in.ark", "matrix") as writer:
        writer.write("a", np.ones((5, 4), np.float32))
    refused(
        feats("ivector-extract-online2", config, *names),
        "ark:in.ark: a: features [5, 4] for statistics of 3 columns",
    )
    with TableWriter("ark:in.ark", "matrix") as writer:
        writer.write("a", np.ones((5, 6), np.float32))
    done(feats("ivector-extract-online2", config, *names), "assuming there are pitch features")
