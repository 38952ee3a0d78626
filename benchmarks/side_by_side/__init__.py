"""Measuring sides of a workload in turn: processes, rounds, neighbours, commits, tables."""
