"""Recurrent layers: as ONNX's LSTM or GRU where they are that, else as Scan.

Gives `write_loop`. May import nnet3, and the modules around it.
"""
