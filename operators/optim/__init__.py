"""Optimizers, clipping and learning-rate schedules.

Registers operators; gives kernels that update parameters. May import base.
"""
