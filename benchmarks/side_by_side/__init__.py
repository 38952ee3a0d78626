"""Measuring sides of a workload in turn: processes, rounds, neighbors, commits, tables."""
