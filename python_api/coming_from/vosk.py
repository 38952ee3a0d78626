# ruff: noqa: E501  (an entry is a line)
"""Names of Vosk's packages, programs, folders and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .rows import Row, read

_ROWS: Final = """
import vosk | opscope.speech | `from opscope.speech import KaldiRecognizer, Model`
vosk.Model | opscope.speech.Model | folders of Vosk and of Kaldi; models are not downloaded
vosk.Model(lang=...) | opscope.speech.Model | looks in VOSK_MODEL_PATH and where Vosk keeps models
vosk.Model(model_name=...) | opscope.speech.Model | looks in VOSK_MODEL_PATH and where Vosk keeps models
vosk.Model.vosk_model_find_word | opscope.speech.Model.vosk_model_find_word |
vosk.SpkModel | opscope.speech.SpkModel |
vosk.{KaldiRecognizer EndpointerMode SetLogLevel} | opscope.speech.* |
vosk.KaldiRecognizer(model, rate) | opscope.speech.KaldiRecognizer | any sampling rate that the model allows
vosk.KaldiRecognizer(model, rate, grammar) | opscope.speech.KaldiRecognizer | the grammar is JSON, as in Vosk
vosk.KaldiRecognizer(model, rate, spk_model) | opscope.speech.KaldiRecognizer |
vosk.KaldiRecognizer.{AcceptWaveform Result PartialResult FinalResult Reset SetGrammar SetWords SetPartialWords SetNLSML SetMaxAlternatives SetSpkModel SetEndpointerMode SetEndpointerDelays SrtResult} | opscope.speech.KaldiRecognizer.* |
vosk.{GpuInit GpuThreadInit} | opscope.speech.* | recognizers compute on the CPU
vosk.{BatchModel BatchRecognizer} | opscope.speech.* | streams share runs of the network, on the CPU
vosk.{list_models list_languages Processor} | opscope.speech.* | an error that says why it is not there
vosk-server | opscope serve | the same WebSocket protocol, and HTTP
vosk-transcriber | opscope transcribe |
vosk-transcriber --input | opscope transcribe | recordings are arguments
vosk-transcriber --output | opscope transcribe | `--output FOLDER`
vosk-transcriber --output-type | opscope transcribe | `--format`
vosk-transcriber --model | opscope transcribe | the first argument, a folder
vosk-transcriber --tasks | opscope transcribe | `--jobs`
vosk-transcriber --list-models | opscope.speech.list_models | an error: models are not downloaded
vosk_recognizer_accept_waveform_f | opscope.speech.KaldiRecognizer.AcceptWaveform | floats are on the scale of 16-bit integers
vosk_recognizer_set_endpointer_mode | opscope.speech.KaldiRecognizer.SetEndpointerMode |
result: text | opscope.speech.Utterance | `text` of a `Transcript` from `opscope.speech.transcribe`
result: result, word, start, end, conf | opscope.speech.Word | `text`, `start`, `end`, `confidence`
result: alternatives | opscope.speech.Alternative |
result: partial | opscope.speech.Recognizer.partial_text |
result: spk, spk_frames | opscope.speech.SpeakerVector |
am/final.mdl | opscope.nnet3.AmNnetSimple | the acoustic model
conf/mfcc.conf | opscope.speech.MfccOptions |
conf/model.conf | opscope.speech.SearchOptions | beams, and the rules that end an utterance
graph/HCLG.fst | opscope.speech.load_graph |
graph/HCLr.fst, graph/Gr.fst | opscope.speech.load_graph | composed with look-ahead as the search goes
graph/words.txt | opscope.speech.Model |
graph/phones/word_boundary.int | opscope.speech.WordBoundaries |
ivector/ | opscope.speech.IvectorModel |
rescore/, rnnlm/ | opscope.speech.Model | not used, with a warning
"""


def rows() -> Iterator[Row]:
    """The rows of this table."""
    return read("Vosk", _ROWS)
