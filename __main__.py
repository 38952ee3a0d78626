"""`python -m opscope`: the command line, as `opscope`."""

import gc
import os

# OpenBLAS's threads spin for 20 ms once NumPy is loaded, and most commands have no work for them.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "17")  # 2**17 cycles, some 50 us
gc.disable()  # nothing of what is loaded here ever becomes garbage

from .python_api.cli.main import main  # noqa: E402

gc.enable()


def run() -> None:
    """The whole life of a process."""
    gc.freeze()  # modules stay
    main.owns_process = True  # a command's modules also stay
    try:
        main()
    finally:
        gc.freeze()  # the process ends: what it has need not be searched for cycles first


if __name__ == "__main__":
    run()
