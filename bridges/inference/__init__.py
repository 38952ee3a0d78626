"""Nets in inference form: what every writer of another format takes, beside its own run here.

Gives `inference_form`, `CntkRun`, `OwnRun`, the inputs that a writer is checked with; `Reading`,
what a writer reads of an operator. May import framework, operators, cntk and proto.
"""
