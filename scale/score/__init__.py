"""Scoring of corpora: a model's outputs for tables of utterances, in shards that run as jobs.

Gives `Scoring`, the options, and the worker of one shard. May import jobs, and the floors below.
"""
