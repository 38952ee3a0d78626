"""Readers of training data: files to sequences, sequences to minibatches.

A deserializer (`text_format`, ...) knows a file format and gives chunks of sequences; an enumerator
(`order`) says which sequence comes next; a packer (`pack`) puts sequences into minibatches with a
layout (`layout`). Source: CNTK's `Source/Readers/ReaderLib`.
"""
