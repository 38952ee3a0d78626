"""Audio: WAV as Kaldi reads it, other formats by soundfile, segments, other sampling rates.

Gives `read_audio`, `Audio`, `Resampler` to features and programs. May import nothing of this floor.
"""
