"""From audio to words: features, iVectors, FSTs, decoding, recognisers as Vosk and Kaldi have them.

Stands above nnet3 and below bridges: may import framework, operators and nnet3, never cntk.
"""
