"""Features as Kaldi computes them: MFCC, filter banks, CMVN, spliced and transformed frames.

Gives `Mfcc`, `Fbank`, `mfcc`, `OnlineCmvn` to ivector, recognise and programs. May import audio.
"""
