"""Features as Kaldi computes them: MFCC, filter banks, CMVN, spliced and transformed frames.

Gives `Mfcc`, `Fbank`, `mfcc`, `OnlineCmvn` to ivector, recognize and programs. May import audio.
"""
