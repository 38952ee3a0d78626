"""The claims of the founding documents, a module for each; the page `conformance` shows them."""

from conformance.claims import (
    extending_cntk,
    network_design,
    nnet3_compilation,
    nnet3_data_types,
    redesigned_language,
)
from conformance.claims.claim import Document

DOCUMENTS: tuple[Document, ...] = (
    network_design.DOCUMENT,
    nnet3_data_types.DOCUMENT,
    nnet3_compilation.DOCUMENT,
    extending_cntk.DOCUMENT,
    redesigned_language.DOCUMENT,
)
