"""Sentences for language models and language understanding.

Gives LMSequenceReader, LUSequenceReader and their writers. May import config and readers.base.
"""
