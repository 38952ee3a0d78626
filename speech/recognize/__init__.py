"""Recognizers: model folders as Vosk and Kaldi have them, utterances with their endpoints, words
with times and confidences, transcripts as files.

Gives `Model`, `KaldiRecognizer` and `transcribe` to users and programs. May import every room of
this floor but programs.

Source: Vosk's `model.cc` and `recognizer.cc`, Kaldi's `online2/online-endpoint.h`.
"""
