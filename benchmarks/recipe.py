"""A recognizer of 1,000 words from 3 hours of speech, beside Kaldi's end-to-end recipe.

    python benchmarks/recipe.py FOLDER [--kaldi KALDI] [--hours 3] [--epochs 3] [--width 256]

Wants espeak-ng. FOLDER gets a data folder of Kaldi's: sentences drawn from the pairs of words in
this project's pages, spoken by 12 voices to train on and 2 others, with noise. Both sides get these
recordings, one lexicon, one language model, and one network, which they train by LF-MMI from a flat
start over three copies of each utterance, as often, in minibatches of the same size, at the same
learning rates, and both search with the same beams. KALDI is a folder of Kaldi's sources with the
programs built that `steps/nnet3/chain/e2e` calls; sox and OpenFst's programs are in PATH.

Prints the word errors and the processor's time of each stage, in one thread. What is done is not
done again, and counts with the time that it took.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from opscope.framework.base.files.atomic import write_atomically
from opscope.kaldi.files.kaldi_io import Writer
from opscope.speech.audio.resample import resample
from opscope.speech.audio.wav import Audio, read_wav, write_wav
from opscope.speech.scoring.edits import ErrorCounts, alignment

TRAINED = {  # voice of espeak-ng, pitch, words a minute
    "ann": ("en-us+f1", 50, 150),
    "bob": ("en-us+m1", 45, 160),
    "cat": ("en-gb+f2", 55, 145),
    "dan": ("en-us+m2", 40, 170),
    "eve": ("en-us+f3", 60, 155),
    "fay": ("en-gb+f4", 52, 165),
    "gus": ("en-gb+m3", 42, 140),
    "hal": ("en-us+m6", 35, 150),
    "ian": ("en-us+m7", 48, 175),
    "joe": ("en-gb+m8", 38, 160),
    "kim": ("en-us+Alicia", 58, 150),
    "leo": ("en-us+klatt2", 45, 155),
}
HELD_OUT = {"may": ("en-gb+f5", 56, 150), "ned": ("en-us+m4", 44, 160)}
HELD_OUT_EACH = 150
RATE = 16000
WORDS = 1000
SEED = 7
BEAMS = "--beam=13.0 --lattice-beam=6.0 --max-active=7000 --min-active=200"
COURSE = "16,8,4,2,1", 0.002, 0.0002  # sizes of minibatches; first and last learning rate
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPSCOPE_THREADS")
PROGRAMS = "bin chainbin featbin fstbin gmmbin latbin lmbin nnet3bin online2bin".split()
_DOCS = Path(__file__).resolve().parent.parent / "docs"
_STRESS = str.maketrans("", "", "',%=|;")


# The data


def pages() -> Iterator[list[str]]:
    """Runs of words between marks in the project's pages."""
    for path in sorted(_DOCS.glob("*.md")):
        for run in re.split(r"[^a-z' \n]+", path.read_text().lower()):
            yield [word for word in run.split() if re.fullmatch("[a-z]{2,}|a|i", word)]


def sentences(rng: np.random.Generator) -> Iterator[list[str]]:
    """Walks of 4 to 10 words over the pairs of the most frequent words."""
    runs = list(pages())
    counts = Counter(word for run in runs for word in run)
    known = {word for word, _ in counts.most_common(WORDS)}
    following: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for first, second in zip(run, run[1:], strict=False):
            if {first, second} <= known:
                following[first].append(second)
    starts = sorted(known)
    while True:
        walk = [starts[int(rng.integers(len(starts)))]]
        length = int(rng.integers(4, 11))
        while len(walk) < length and following[walk[-1]]:
            after = following[walk[-1]]
            walk.append(after[int(rng.integers(len(after)))])
        if len(walk) == length:
            yield walk


def speak(text: str, voice: tuple[str, int, int], path: Path, rng: np.random.Generator) -> float:
    """Write a sentence, with noise 5 to 25 dB below it; its seconds."""
    name, pitch, speed = voice
    command = ["espeak-ng", "-v", name, "-p", str(pitch), "-s", str(speed + rng.integers(-20, 21))]
    subprocess.run([*command, "-w", str(path), text], check=True)
    audio = read_wav(path)
    samples = resample(audio.samples[0], int(audio.rate), RATE)
    spectrum = np.fft.rfft(rng.standard_normal(len(samples)))
    spectrum *= np.arange(1, len(spectrum) + 1) ** -rng.uniform(0, 1)
    noise = np.fft.irfft(spectrum, len(samples))
    share = 10 ** (-rng.uniform(5, 25) / 20)
    mixed = samples + noise * share * np.sqrt(np.mean(samples**2) / np.mean(noise**2))
    mixed *= min(1.0, 32000 / np.abs(mixed).max())
    writer = Writer(True, header=False)
    write_wav(writer, Audio(mixed[None].astype(np.float32), float(RATE)))
    path.write_bytes(writer.getvalue())
    return len(mixed) / RATE


def make_data(folder: Path, hours: float) -> None:
    """Write `data`, `dict` and the sentences of the training, `train.txt`."""
    rng = np.random.default_rng(SEED)
    drawn = sentences(rng)
    data = folder / "data"
    rows: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    for speaker, voice in (TRAINED | HELD_OUT).items():
        (data / "wav" / speaker).mkdir(parents=True, exist_ok=True)
        seconds, count = 0.0, 0
        while (
            seconds < hours * 3600 / len(TRAINED) if speaker in TRAINED else count < HELD_OUT_EACH
        ):
            text = next(" ".join(walk) for walk in drawn if " ".join(walk) not in seen)
            seen.add(text)
            key = f"{speaker}-{count:04}"
            seconds += speak(text, voice, data / "wav" / speaker / f"{key}.wav", rng)
            rows.append((key, speaker, text))
            count += 1
    trained = "".join(f"{text}\n" for _, speaker, text in rows if speaker in TRAINED)
    (folder / "train.txt").write_text(trained)
    words = sorted({word for _, _, text in rows for word in text.split()})
    write_dict(folder / "dict", words)
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in words))
    write_folder(data, folder, rows)


def write_folder(data: Path, folder: Path, rows: list[tuple[str, str, str]]) -> None:
    """Write a data folder with keys, speakers and texts."""
    data.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[str]] = defaultdict(list)
    by_speaker: dict[str, list[str]] = defaultdict(list)
    for key, speaker, text in sorted(rows):
        path = (folder / "data" / "wav" / speaker / f"{key}.wav").resolve()
        files["wav.scp"].append(f"{key} {path}")
        files["text"].append(f"{key} {text}")
        files["utt2spk"].append(f"{key} {speaker}")
        by_speaker[speaker].append(key)
    files["spk2utt"] = [f"{name} {' '.join(keys)}" for name, keys in by_speaker.items()]
    for name, lines in files.items():
        (data / name).write_text("".join(f"{line}\n" for line in lines))


def read_rows(data: Path) -> list[tuple[str, str, str]]:
    """Keys, speakers and texts of a data folder."""
    texts = [line.split(maxsplit=1) for line in (data / "text").read_text().splitlines()]
    return [(key, key.partition("-")[0], text) for key, text in texts]


def write_dict(folder: Path, words: list[str]) -> None:
    """Write a lexicon of espeak-ng's phones, without stress."""
    folder.mkdir(exist_ok=True)
    lines, phones = ["<unk> SPN"], set()
    for word in words:
        command = ["espeak-ng", "-q", "-v", "en-us", "-x", "--sep=_", word]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        spelled = told.translate(_STRESS).replace("_", " ").split()
        phones.update(spelled)
        lines.append(f"{word} {' '.join(spelled)}")
    for name, rows in (
        ("lexicon.txt", lines),
        ("silence_phones.txt", ["SIL", "SPN"]),
        ("optional_silence.txt", ["SIL"]),
        ("nonsilence_phones.txt", sorted(phones)),
        ("extra_questions.txt", []),
    ):
        (folder / name).write_text("".join(f"{row}\n" for row in rows))


def network(width: int, outputs: int) -> str:
    """The layers of both sides: an xconfig without its input."""
    inputs = ["Append(-1,0,1)"] * 2 + ["Append(-3,0,3)"] * 4
    lines = [
        f"relu-batchnorm-layer name=tdnn{number} dim={width} input={each} l2-regularize=0.01"
        for number, each in enumerate(inputs, 1)
    ]
    tail = "include-log-softmax=false l2-regularize=0.005"
    return "\n".join([*lines, f"output-layer name=output dim={outputs} {tail}", ""])


# The two sides


class Side:
    """Commands of one side, run once each; their time is kept in `times.json`."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._env = os.environ | dict.fromkeys(THREADS, "1") | {"LC_ALL": "C"} | env
        self._file = folder / "times.json"
        self.seconds: dict[str, float] = {}
        self._done: list[str] = []
        if self._file.exists():
            self.seconds, self._done = json.loads(self._file.read_text())

    def do(self, stage: str, *commands: str) -> None:
        """Run a stage that is not done yet; what an interrupted one took counts."""
        if stage in self._done:
            return
        begin = _children()
        try:
            for command in commands:
                with (self.folder / f"{stage}.log").open("a") as log:
                    shell = ["bash", "-e", "-o", "pipefail", "-c", command]
                    subprocess.run(
                        shell, check=True, cwd=self.folder, env=self._env, stdout=log, stderr=log
                    )
            self._done.append(stage)
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0) + _children() - begin
            write_atomically(self._file, json.dumps([self.seconds, self._done]).encode())
        print(f"{self.folder.name} {stage}: {self.seconds[stage]:.0f} s", flush=True)


def _children() -> float:
    """Processor time of the processes that ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


OURS = {  # stages of train-recognizer, by the stage that they are counted with
    "lang": "lang",
    "features": "features",
    "graphs": "graphs",
    "network": "examples",
    "examples": "examples",
    "train": "train",
    "language-model": "graph",
    "graph": "graph",
    "decode": "decode",
}


def ours(folder: Path, epochs: int) -> tuple[Side, Path]:
    """This package's side, and what it recognizes."""
    side = Side(folder / "ours", {})
    sizes, first, last = COURSE
    command = (
        f"{sys.executable} -m opscope train-recognizer ../data --lexicon ../dict --lm ../lm.arpa"
        f" --test-speakers {','.join(HELD_OUT)} --out model --work work --model flat-start"
        f" --network ../net.xconfig --context none --epochs {epochs} --minibatch {sizes}"
        f" --initial-lr {first} --final-lr {last} --volumes 1,1"
    )
    for stage in OURS:
        side.do(stage, f"{command} --stop-after {stage}")
    return side, side.folder / "work" / "decode" / "hyp.txt"


def kaldi(folder: Path, sources: Path, epochs: int) -> tuple[Side, Path]:
    """Kaldi's side, and what it recognizes: the steps of `run_end2end_phone.sh`."""
    place = folder / "kaldi"
    path = ":".join([*(str(sources / "src" / name) for name in PROGRAMS), os.environ["PATH"]])
    side = Side(place, {"PATH": f"{place}/utils:{path}"})
    wsj = sources / "egs" / "wsj" / "s5"
    for name in ("steps", "utils"):
        if not (place / name).is_symlink():
            (place / name).symlink_to(wsj / name)
    (place / "path.sh").write_text(f"export PATH={place}/utils:{path} LC_ALL=C\n")
    margin = "--use-energy=false --num-mel-bins=40 --num-ceps=40 --low-freq=20 --high-freq=-400"
    (place / "mfcc.conf").write_text(margin.replace(" ", "\n") + f"\n--sample-frequency={RATE}\n")
    rows = read_rows(folder / "data")
    for part, speakers in (("train", TRAINED), ("test", HELD_OUT)):
        if not (place / "data" / part).exists():
            chosen = [row for row in rows if row[1] in speakers]
            write_folder(place / "data" / part, folder, chosen)
    (place / "exp" / "net" / "configs").mkdir(parents=True, exist_ok=True)
    (place / "exp" / "net" / "configs" / "network.xconfig").write_text(
        "input dim=40 name=input\n" + (folder / "net.xconfig").read_text()
    )
    sizes, first, last = COURSE
    mfcc = "steps/make_mfcc.sh --nj 1 --cmd run.pl --mfcc-config mfcc.conf"
    train = (
        "steps/nnet3/chain/e2e/train_e2e.py --cmd run.pl --use-gpu false --cleanup.remove-egs false"
        " --feat.cmvn-opts '--norm-means=false --norm-vars=false'"
        " --chain.leaky-hmm-coefficient 0.1 --chain.l2-regularize 0.00005"
        " --chain.apply-deriv-weights false --egs.opts '--nj 1 --max-shuffle-jobs-run 1"
        " --num-utts-subset 60 --num-egs-diagnostic 60 --num-train-egs-combine 100'"
        f" --trainer.num-chunk-per-minibatch {sizes} --trainer.frames-per-iter 1000000"
        f" --trainer.num-epochs {epochs / 3:g} --trainer.optimization.momentum 0"
        " --trainer.optimization.num-jobs-initial 1 --trainer.optimization.num-jobs-final 1"
        f" --trainer.optimization.initial-effective-lrate {first}"
        f" --trainer.optimization.final-effective-lrate {last}"
        " --trainer.max-param-change 2.0"
        " --feat-dir data/train_sp --tree-dir exp/tree --dir exp/net"
    )
    side.do(
        "lang",
        "cp -r ../dict data/dict",
        "utils/prepare_lang.sh data/dict '<unk>' data/local/lang data/lang",
        "cp -r data/lang data/lang_e2e; cp -r data/lang data/lang_test",
        "steps/nnet3/chain/gen_topo.py $(cat data/lang/phones/nonsilence.csl)"
        " $(cat data/lang/phones/silence.csl) > data/lang_e2e/topo",
    )
    side.do(
        "features",
        "utils/data/get_utt2dur.sh --nj 1 data/train",
        "utils/data/perturb_speed_to_allowed_lengths.py 12 data/train data/train_sp",
        "awk '{print $1, substr($1,5)}' data/train_sp/utt2dur > data/train_sp/utt2uniq",
        "utils/fix_data_dir.sh data/train_sp",
        f"{mfcc} data/train_sp; steps/compute_cmvn_stats.sh data/train_sp",
    )
    side.do(
        "graphs",
        "mkdir -p exp/tree; steps/nnet3/chain/e2e/text_to_phones.py --between-silprob 0.1 data/lang"
        " < data/train_sp/text | utils/sym2int.pl -f 2- data/lang/phones.txt"
        " | chain-est-phone-lm --num-extra-lm-states=2000 ark:- exp/tree/phone_lm.fst",
        "steps/nnet3/chain/e2e/prepare_e2e.sh --nj 1 --cmd run.pl --shared-phones true"
        " data/train_sp data/lang_e2e exp/tree",
    )
    side.do(
        "examples",
        "steps/nnet3/xconfig_to_configs.py --xconfig-file exp/net/configs/network.xconfig"
        " --config-dir exp/net/configs",
        f"{train} --stage -10 --exit-stage 0",
    )
    side.do("train", f"{train} --stage 0")
    side.do(
        "graph",
        "arpa2fst --disambig-symbol=#0 --read-symbol-table=data/lang_test/words.txt ../lm.arpa"
        " data/lang_test/G.fst",
        "utils/mkgraph.sh --remove-oov --self-loop-scale 1.0 data/lang_test exp/net exp/graph",
    )
    side.do(
        "decode",
        f"{mfcc} data/test",
        f"nnet3-latgen-faster --frame-subsampling-factor=3 --frames-per-chunk=150 {BEAMS}"
        " --extra-left-context-initial=0 --extra-right-context-final=0 --acoustic-scale=1.0"
        " --allow-partial=true --word-symbol-table=exp/graph/words.txt exp/net/final.mdl"
        " exp/graph/HCLG.fst scp:data/test/feats.scp ark:/dev/null ark,t:words.int",
        "utils/int2sym.pl -f 2- exp/graph/words.txt words.int > hyp.txt",
    )
    return side, place / "hyp.txt"


# The comparison


def word_errors(data: Path, heard: Path) -> ErrorCounts:
    """The errors on what is held out."""
    found = {}
    for line in heard.read_text().splitlines():
        key, *words = line.split()
        found[key] = words
    counts = ErrorCounts()
    for key, speaker, text in read_rows(data):
        if speaker in HELD_OUT:
            counts.add(alignment(text.split(), found.get(key, [])))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kaldi", type=Path)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=256)
    chosen = parser.parse_args()
    folder: Path = chosen.folder.resolve()
    made = Side(folder, {})
    settings = {name: getattr(chosen, name) for name in ("hours", "epochs", "width")}
    kept = folder / "settings.json"
    if kept.exists() and (before := json.loads(kept.read_text())) != settings:
        parser.error(f"{folder} was begun with {before}: take another folder for {settings}")
    write_atomically(kept, json.dumps(settings).encode())
    if not (folder / "data" / "text").exists():
        make_data(folder, chosen.hours)
    made.do(
        "language-model",
        f"{sys.executable} -m opscope make-lm train.txt --words words.txt --method witten-bell"
        " --out lm.arpa",
    )
    phones = (folder / "dict" / "nonsilence_phones.txt").read_text().split()
    (folder / "net.xconfig").write_text(network(chosen.width, 2 * (len(phones) + 2)))
    sides = [ours(folder, chosen.epochs)]
    if chosen.kaldi:
        sides.append(kaldi(folder, chosen.kaldi.resolve(), chosen.epochs))
    for side, heard in sides:
        counts = word_errors(folder / "data", heard)
        stages: Counter[str] = Counter()
        for stage, seconds in side.seconds.items():
            stages[OURS.get(stage, stage)] += round(seconds)
        told = ", ".join(f"{stage} {seconds}" for stage, seconds in stages.items())
        print(f"{side.folder.name}: {counts.lines()[0]}; {stages.total()} s: {told}")


if __name__ == "__main__":
    main()
