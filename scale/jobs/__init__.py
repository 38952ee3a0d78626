"""Command lines run as jobs: on this machine, by Slurm, SGE, Kubernetes or Dask.

Gives `JobPool`, which runs jobs to their end, and its runners to recipes. May import the framework
only.
"""
