"""The native library: C files, and the table of how they are compiled for each processor; and
`cuda/`, kernels that CuPy compiles for the GPU that it finds.

Standard library only, and nothing of the package, since `setup.py` imports this floor to build the
library into the wheel. `framework/fusion/compiled/native.py` loads what was built, or compiles a
file when it is first wanted.
"""
