"""The messages of vosk-server's gRPC service, and its names.

They live in a pool of their own: a program may have the module that protoc makes of vosk-server's
file besides, and a pool takes each name once.

Source: `grpc/stt_service.proto` of vosk-server.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory

PACKAGE = "vosk.stt.v1"
SERVICE, METHOD = f"{PACKAGE}.SttService", "StreamingRecognize"
LINEAR16_PCM = 1
"""The one encoding of samples: 16-bit integers, little-endian. 0 says nothing, and means it."""

_DURATION = duration_pb2.Duration.DESCRIPTOR.full_name
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "StreamingRecognitionRequest": {
        "config": (1, "RecognitionConfig"),
        "audio_content": (2, "bytes"),
    },
    "StreamingRecognitionResponse": {"chunks": (1, "repeated SpeechRecognitionChunk")},
    "RecognitionConfig": {"specification": (1, "RecognitionSpec")},
    "RecognitionSpec": {
        "audio_encoding": (1, "int32"),  # an enum in the file, which is the same on the wire
        "sample_rate_hertz": (2, "int64"),
        "language_code": (3, "string"),
        "profanity_filter": (4, "bool"),
        "model": (5, "string"),
        "partial_results": (7, "bool"),
        "single_utterance": (8, "bool"),
        "raw_results": (10, "bool"),
        "max_alternatives": (11, "int32"),
        "enable_word_time_offsets": (12, "bool"),
    },
    "SpeechRecognitionChunk": {
        "alternatives": (1, "repeated SpeechRecognitionAlternative"),
        "final": (2, "bool"),
        "end_of_utterance": (3, "bool"),
    },
    "SpeechRecognitionAlternative": {
        "text": (1, "string"),
        "confidence": (2, "float"),
        "words": (3, "repeated WordInfo"),
    },
    "WordInfo": {
        "start_time": (1, _DURATION),
        "end_time": (2, _DURATION),
        "word": (3, "string"),
        "confidence": (4, "float"),
    },
}
"""Fields by message: number and type."""
_ONE_OF = {"StreamingRecognitionRequest": "streaming_request"}
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="stt_service.proto",
        package=PACKAGE,
        syntax="proto3",
        dependency=[duration_pb2.DESCRIPTOR.name],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in _ONE_OF:
            message.oneof_decl.add(name=_ONE_OF[name])
        one = {"oneof_index": 0} if name in _ONE_OF else {}
        for field, (number, kind) in fields.items():
            made = message.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL, **one)
            if kind.startswith("repeated "):
                made.label = _Field.LABEL_REPEATED
                kind = kind.removeprefix("repeated ")
            if kind.islower() and "." not in kind:
                made.type = getattr(_Field, f"TYPE_{kind.upper()}")
            else:
                made.type = _Field.TYPE_MESSAGE
                made.type_name = f".{kind if '.' in kind else f'{PACKAGE}.{kind}'}"
    return file


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(duration_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_MADE = _classes()
Request: Any = _MADE["StreamingRecognitionRequest"]
Response: Any = _MADE["StreamingRecognitionResponse"]
