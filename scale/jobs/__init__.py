"""Command lines run as jobs: on this machine, by Slurm, SGE, Kubernetes or Dask.

Gives `JobPool`, which runs jobs to their end, its runners, and the lock of a folder to
recipes. May import the framework only.
"""
