"""Sparse samples in binary files of records, in the order of the file.

Gives DSSMReader, LibSVMBinaryReader and SparsePCReader. May import config and readers.base.
"""
