"""`python -m opscope`: the command line, as `opscope`."""

from .python_api.cli.main import main

if __name__ == "__main__":
    main()
