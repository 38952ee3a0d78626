"""Readers of training data and writers of results.

A deserializer (`text_format`, `htk_data`, `image_reader`, `binary_format`, several by `joined`)
knows a file format and gives chunks of sequences; an enumerator (`order`, `htk_order`) says which
sequence comes next; a packer (`pack`, `htk_pack`) puts sequences into minibatches with a layout
(`layout`). Tables and sentences have packers of their own (`table`, `lm_reader`, `lu_reader`).
`reader` and `writer` hold what all have in common, and find them by the name that a config gives.
Source: CNTK's `Source/Readers`.
"""
