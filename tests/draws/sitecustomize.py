"""Processes that a test starts draw without a seed as the test does: the same in every run.

Python loads this file first, as their `PYTHONPATH` names its folder. The processes of one test draw
the same numbers, but ranks do not: that they agree on what they draw is for the package to see to.
"""

import os

test = os.environ.get("PYTEST_CURRENT_TEST")
if test:
    import unseeded

    unseeded.install()
    ranks = sorted(f"{name}={value}" for name, value in os.environ.items() if "RANK" in name)
    unseeded.begin(" ".join([test.rpartition(" (")[0], *ranks]))
