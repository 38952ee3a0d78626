"""`python -m opscope`: the command line, as `opscope`."""

import gc

gc.disable()  # nothing of what is loaded here ever becomes garbage

from .python_api.cli.main import main  # noqa: E402

gc.enable()


def run() -> None:
    """The whole life of a process."""
    gc.freeze()  # modules stay
    main.owns_process = True  # those of a command, too
    try:
        main()
    finally:
        gc.freeze()  # the process ends: what it has need not be searched for cycles first


if __name__ == "__main__":
    run()
