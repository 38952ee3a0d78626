"""The three walks of docs/architecture.md stay short: how many files each enters, at most."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES = {
    # base/errors.py spells names in any case; ir/nesting.py holds inner nets to a limit; caches
    "b.fc": 20,
    # chains.py makes programs of the loops. A plan's parts
    # are files of runtime/plans; a product asks each of our ways to compute it (lone rows, AMX,
    # blocks of rows) before MKL or BLAS; steps are joined in blocks of rows.
    # native.py and libraries.py: where functions in C come from; cores.py: whose processor it is.
    # runtime/externals.py: what is read from a scope, looked at again where it has changed
    "first run": 61,
    "second run": 10,
    "nnet3 config": 11,  # the opener, what one file may fill, the budget of suggestions
    # lower/requests.py: recurrences as commands or as operators; splices.py: rows read in place
    "nnet3 compile and lower": 46,
    # base/python/cached.py: properties that a fork leaves open; memory that computers share
    # base/settings.py: options are values of a run, read from the environment in one place
    # gc_disabled.py: the collector is off while a net is made
    "nnet3 computer": 14,
    # run/input_arrays.py checks what callers give; plans and products as in "first run";
    # kept_factors.py: which weights stay packed; gemm_backends.py: the products that read them
    # caches by bytes, the collector off while a frame is bound; what plans of a form share
    # runtime/externals.py: what is read from a scope, looked at again where it has changed
    # op_list.py says which views are apart, so that loops are made: loop_arrays.py, codegen.py,
    # native.py, libraries.py, row_blocks.py
    "nnet3 run": 51,
    "NDL to Network": 32,  # the door: opener, values, limits and roots
    "NDL net": 18,  # base/python/cached.py, caches by bytes, options, the collector off
}
"""What they enter now: a change that enters more files says here why it must."""


def test_walks_enter_few_files():
    command = [sys.executable, "-P", str(ROOT / "benchmarks" / "walks.py")]
    # Where the number of threads is left open the free cores are counted now and then.
    env = os.environ | {"OPSCOPE_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    found = dict(re.findall(r"^(\S.*?) +calls +\d+ files +(\d+) ", done.stdout, re.MULTILINE))
    assert found.keys() == MOST_FILES.keys()
    longer = {name: files for name, files in found.items() if int(files) > MOST_FILES[name]}
    assert not longer
