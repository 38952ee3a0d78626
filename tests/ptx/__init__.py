"""An interpreter of PTX, the assembly of NVIDIA's GPUs, in NumPy: one lane a thread.

It runs what NVRTC makes of the kernels in native/cuda, and finds what neither the stand-in of CuPy
nor a GPU shows readily: reads of shared memory before it is written, races, accesses outside
arrays, and barriers that some threads do not reach. `text.py` reads PTX, `python.py` translates it
to functions over arrays of lanes, `machine.py` runs them, `memory.py` checks accesses, and
`launches.py` runs the kernels that the stand-in of CuPy starts.
"""
