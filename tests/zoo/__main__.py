"""Runs architectures and compares with the table: `python build.py zoo`."""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import sys
import time

import torch

from . import samples, table
from .architectures import ARCHITECTURES
from .measuring import CRASH, ROUTES, SETTINGS, Architecture, measure

_PARTS = 10
"""Days in which all rows have had their turn."""
_SECONDS = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python build.py zoo", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="these rows alone")
    parser.add_argument("--family", action="append", metavar="NAME", help="these libraries alone")
    parser.add_argument("--route", action="append", choices=list(ROUTES), help="these routes alone")
    parser.add_argument(
        "--tenth", action="store_true", help="a tenth of the recorded rows, by the date"
    )
    parser.add_argument("--missing", action="store_true", help="rows that the table lacks alone")
    parser.add_argument("--record", action="store_true", help="write what came of it to the table")
    parser.add_argument("--table", action="store_true", help="print the table, and stop")
    parser.add_argument(
        "--samples", action="store_true", help="PyTorch's samples of its operators instead"
    )
    arguments = parser.parse_args()
    if arguments.samples:
        torch.set_num_threads(1)
        return min(samples.main(arguments.only or ()), 1)
    kept = table.read()
    if arguments.table:
        print(table.shown(kept))
        return 0
    chosen = [one for one in ARCHITECTURES if not arguments.only or one.name in arguments.only]
    if missing := set(arguments.only or ()) - {one.name for one in chosen}:
        parser.error(f"no architecture {', '.join(sorted(missing))}")
    if arguments.family:
        chosen = [one for one in chosen if one.family in arguments.family]
    if arguments.missing:
        chosen = [one for one in chosen if one.name not in kept]
    if arguments.tenth:
        today = datetime.datetime.now(datetime.UTC).date().toordinal()
        chosen = [one for one in chosen if one.name in kept][today % _PARTS :: _PARTS]
    routes = arguments.route or list(ROUTES)
    torch.set_num_threads(1)
    worse: list[str] = []
    for one in chosen:
        start = time.monotonic()
        found = apart(one, routes)
        lines = table.worse(kept.get(one.name, {}), found)
        worse += [f"{one.name}, {line}" for line in lines]
        seconds = time.monotonic() - start
        print(f"{one.name} ({one.family}), {seconds:.0f} s: {table.summary(found)}", flush=True)
        if arguments.record:
            kept = table.read()  # another process may have added rows
            kept[one.name] = kept.get(one.name, {}) | found
            table.write(kept, [each.name for each in ARCHITECTURES])
    print(table.totals(kept))
    print("\n".join(["worse than the table:", *worse]) if worse else "nothing is worse")
    return 1 if worse else 0


def apart(one: Architecture, routes: list[str]) -> dict[str, dict[str, str]]:
    """What `measure` gives, in a process of its own, whose memory ends with it."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(one, routes, there))
    child.start()
    there.close()
    try:
        if here.poll(_SECONDS):
            return here.recv()
        why = f"nothing after {_SECONDS:.0f} s"
    except EOFError:
        child.join()
        why = f"the process ended with code {child.exitcode}"
    finally:
        child.kill()
        child.join()
    crashed = dict.fromkeys(("forward", "gradients"), f"{CRASH}: {why}")
    return {f"{route} {batch}": crashed for route in routes for batch in SETTINGS}


def _child(one: Architecture, routes: list[str], results) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())  # PyTorch prints the graphs that it cannot export
    results.send(measure(one, routes))


if __name__ == "__main__":
    sys.exit(main())
