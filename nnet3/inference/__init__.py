"""Scores for utterances and streams, and the whole pipeline in one call.

Gives `ChunkComputer`, `LoopedComputer`, `StepComputer`, `compile_request`. May import cache and
every room before it.
"""
