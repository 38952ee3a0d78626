"""Nets in inference form: what every writer of another format takes, beside its own run here.

Gives `inference_form`, `CntkRun`, `OwnRun` and the inputs that a writer is checked with. May import
framework, operators, cntk and proto.
"""
