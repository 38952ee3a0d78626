"""Scopes, the operator registry, nets, passes and the executor; knows no operator by name."""
