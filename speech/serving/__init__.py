"""Many streams at once: lanes whose streams share runs of the network, processes of them, and the
server of `opscope serve`. Gives `BatchModel` and `BatchRecognizer` to users. May import audio and
recognize.
"""
