"""CNTK's binary formats: chunks, and files of sections.

Gives their readers and a writer. May import config and readers.base.
"""
