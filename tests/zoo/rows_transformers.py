"""Architectures of transformers, with two layers of small sizes."""

from __future__ import annotations

from .images import images  # before torchvision, which transformers imports

# isort: split
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from .measuring import Architecture, floats

_WORDS, _TIME = 50, 12
_KINDS = {"WhisperEncoder": WhisperEncoder}
"""Classes that transformers does not show."""
SMALL = {
    "vocab_size": _WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Settings that most configurations share."""


class Called(nn.Module):
    """A model that takes its inputs by position, and gives its outputs of floats as a tuple."""

    def __init__(self, module: nn.Module, names: Sequence[str], options: dict[str, Any]) -> None:
        super().__init__()
        self.module, self.names, self.options = module, names, options

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = dict(zip(self.names, inputs, strict=True))
        return tuple(floats(self.module(**given, **self.options).to_tuple()))


def tokens(batch: int) -> list[torch.Tensor]:
    return [torch.randint(3, _WORDS, (batch, _TIME))]


def masked(batch: int) -> list[torch.Tensor]:
    """Words, and a mask that ends the last row early."""
    mask = torch.ones(batch, _TIME, dtype=torch.int64)
    mask[-1, -3:] = 0
    return [*tokens(batch), mask]


def translated(batch: int) -> list[torch.Tensor]:
    return [*tokens(batch), tokens(batch)[0][:, :7]]


def waves(batch: int) -> list[torch.Tensor]:
    return [torch.randn(batch, 800)]


def clips(batch: int) -> list[torch.Tensor]:
    return [torch.randn(batch, 4, 3, 32, 32)]


def row(
    name: str,
    model: str,
    draw: Callable[[int], Sequence[torch.Tensor]],
    names: str = "input_ids",
    given: dict[str, Any] | None = None,
    **options: Any,
) -> Architecture:
    """A class of transformers; its configuration is that of its family, made smaller.

    Args:
        names: of the inputs. given: further arguments of a call. options: of the configuration.
    """

    def make() -> nn.Module:
        kind = _KINDS.get(model) or getattr(transformers, model)
        config = kind.config_class(**options)
        config.use_cache = False
        return Called(kind(config), names.split(), given or {})

    return Architecture(name, "transformers", make, draw)


_AUDIO = {
    "conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
_VISION = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
_TWO_PARTS = {
    "vocab_size": _WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
_MASKED = "input_ids attention_mask"

TRANSFORMERS = [
    row("bert", "BertModel", masked, _MASKED, **SMALL),
    row("roberta", "RobertaForMaskedLM", masked, _MASKED, **SMALL),
    row(
        "distilbert", "DistilBertModel", masked, _MASKED,
        vocab_size=_WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
    ),
    row("albert", "AlbertModel", masked, _MASKED, embedding_size=16, **SMALL),
    row("electra", "ElectraModel", masked, _MASKED, embedding_size=16, **SMALL),
    row(
        "deberta", "DebertaModel", tokens, "input_ids",
        relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=8, **SMALL,
    ),
    row(
        "deberta_v2", "DebertaV2Model", tokens, "input_ids",
        relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4,
        share_att_key=True, norm_rel_ebd="layer_norm", conv_kernel_size=3, **SMALL,
    ),
    row(
        "gpt2", "GPT2LMHeadModel", masked, _MASKED,
        vocab_size=_WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32,
    ),
    row("gpt_neox", "GPTNeoXModel", masked, _MASKED, **SMALL),
    row(
        "opt", "OPTModel", masked, _MASKED,
        vocab_size=_WORDS, hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=2,
        num_attention_heads=4, ffn_dim=64, max_position_embeddings=64,
    ),
    row(
        "bloom", "BloomModel", masked, _MASKED,
        vocab_size=_WORDS, hidden_size=32, n_layer=2, n_head=4,
    ),
    row("llama", "LlamaForCausalLM", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row(
        "mistral", "MistralModel", masked, _MASKED,
        num_key_value_heads=2, sliding_window=5, **SMALL,
    ),
    row("qwen2", "Qwen2Model", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row("gemma", "GemmaModel", masked, _MASKED, num_key_value_heads=2, head_dim=8, **SMALL),
    row("phi", "PhiModel", masked, _MASKED, **SMALL),
    row(
        "t5_encoder", "T5EncoderModel", masked, _MASKED,
        vocab_size=_WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
    ),
    row(
        "t5", "T5ForConditionalGeneration", translated, "input_ids decoder_input_ids",
        vocab_size=_WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
    ),
    row("bart", "BartModel", translated, "input_ids decoder_input_ids", **_TWO_PARTS),
    row(
        "marian", "MarianMTModel", translated, "input_ids decoder_input_ids", **_TWO_PARTS,
    ),
    row(
        "xlnet", "XLNetModel", masked, _MASKED, {"use_mems": False},
        vocab_size=_WORDS, d_model=32, n_layer=2, n_head=4, d_inner=64,
    ),
    row("mpnet", "MPNetModel", masked, _MASKED, **SMALL),
    row(
        "funnel", "FunnelModel", masked, _MASKED,
        vocab_size=_WORDS, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=64,
    ),
    row("fnet", "FNetModel", tokens, **SMALL),
    row("squeezebert", "SqueezeBertModel", masked, _MASKED, embedding_size=32, **SMALL),
    row("mobilebert", "MobileBertModel", masked, _MASKED,
        embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=2, **SMALL),
    row("vit_hf", "ViTModel", images(32), "pixel_values", **_VISION),
    row("dinov2", "Dinov2Model", images(32), "pixel_values", **_VISION),
    row("beit_hf", "BeitModel", images(32), "pixel_values",
        use_relative_position_bias=True, **_VISION),
    row(
        "swin_hf", "SwinModel", images(32), "pixel_values",
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
    ),
    row(
        "segformer", "SegformerForSemanticSegmentation", images(64), "pixel_values",
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=16,
    ),
    row("wav2vec2", "Wav2Vec2Model", waves, "input_values", **SMALL, **_AUDIO),
    row("hubert", "HubertModel", waves, "input_values", **SMALL, **_AUDIO),
    row(
        "whisper_encoder", "WhisperEncoder", lambda batch: [torch.randn(batch, 8, 40)],
        "input_features", **_TWO_PARTS, num_mel_bins=8, max_source_positions=20,
    ),
    row(
        "clip_text", "CLIPTextModel", masked, _MASKED,
        **SMALL | {"pad_token_id": 1, "bos_token_id": 0},
    ),
    row("clip_vision", "CLIPVisionModel", images(32), "pixel_values", **_VISION),
    row(
        "mamba", "MambaModel", tokens,
        vocab_size=_WORDS, hidden_size=16, num_hidden_layers=2, state_size=4,
    ),
    row("xlm_roberta", "XLMRobertaForSequenceClassification", masked, _MASKED, **SMALL),
    row("bert_answers", "BertForQuestionAnswering", masked, _MASKED, **SMALL),
    row("convbert", "ConvBertModel", masked, _MASKED, embedding_size=32, head_ratio=2, **SMALL),
    row("roformer", "RoFormerModel", masked, _MASKED, embedding_size=32, **SMALL),
    row("layoutlm", "LayoutLMModel", masked, _MASKED, max_2d_position_embeddings=64, **SMALL),
    row("rembert", "RemBertModel", masked, _MASKED, input_embedding_size=16, **SMALL),
    row("esm", "EsmModel", masked, _MASKED, position_embedding_type="rotary", **SMALL),
    row("modernbert", "ModernBertModel", masked, _MASKED, local_attention=8, **SMALL),
    row("big_bird", "BigBirdModel", masked, _MASKED, attention_type="original_full", **SMALL),
    row(
        "flaubert", "FlaubertModel", masked, _MASKED,
        vocab_size=_WORDS, emb_dim=32, n_layers=2, n_heads=4,
    ),
    row(
        "gpt_neo", "GPTNeoModel", masked, _MASKED,
        vocab_size=_WORDS, hidden_size=32, num_layers=2, num_heads=4,
        attention_types=[[["global", "local"], 1]], window_size=4, max_position_embeddings=64,
    ),
    row(
        "gptj", "GPTJModel", masked, _MASKED,
        vocab_size=_WORDS, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=32,
    ),
    row(
        "codegen", "CodeGenModel", masked, _MASKED,
        vocab_size=_WORDS, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=32,
    ),
    row(
        "gpt_bigcode", "GPTBigCodeModel", masked, _MASKED,
        vocab_size=_WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32,
    ),
    row(
        "openai_gpt", "OpenAIGPTModel", tokens, "input_ids",
        vocab_size=_WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32,
    ),
    row("falcon", "FalconModel", masked, _MASKED, **SMALL),
    row(
        "mpt", "MptModel", masked, _MASKED,
        vocab_size=_WORDS, d_model=32, n_layers=2, n_heads=4, max_seq_len=32,
    ),
    row("stablelm", "StableLmModel", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row("starcoder2", "Starcoder2Model", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row("olmo2", "Olmo2Model", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row("gemma2", "Gemma2Model", masked, _MASKED,
        num_key_value_heads=2, head_dim=8, sliding_window=5, **SMALL),
    row("qwen3", "Qwen3Model", masked, _MASKED, num_key_value_heads=2, head_dim=8, **SMALL),
    row("phi3", "Phi3Model", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row("cohere", "CohereModel", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row("granite", "GraniteModel", masked, _MASKED, num_key_value_heads=2, **SMALL),
    row("mbart", "MBartModel", translated, "input_ids decoder_input_ids", **_TWO_PARTS),
    row("m2m_100", "M2M100Model", translated, "input_ids decoder_input_ids", **_TWO_PARTS),
    row("pegasus", "PegasusModel", translated, "input_ids decoder_input_ids", **_TWO_PARTS),
    row("wavlm", "WavLMModel", waves, "input_values", **SMALL, **_AUDIO),
    row("data2vec_audio", "Data2VecAudioModel", waves, "input_values", **SMALL, **_AUDIO),
    row("wav2vec2_conformer", "Wav2Vec2ConformerModel", waves, "input_values", **SMALL, **_AUDIO),
    row(
        "whisper", "WhisperModel",
        lambda batch: [torch.randn(batch, 8, 40), *tokens(batch)],
        "input_features decoder_input_ids", **_TWO_PARTS, num_mel_bins=8, max_source_positions=20,
    ),
    row(
        "audio_spectrogram", "ASTModel", lambda batch: [torch.randn(batch, 32, 16)],
        "input_values", **_VISION | {"patch_size": 8}, max_length=32, num_mel_bins=16,
    ),
    row("convnext_hf", "ConvNextModel", images(32), "pixel_values",
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32]),
    row("resnet_hf", "ResNetModel", images(32), "pixel_values",
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], embedding_size=8),
    row("mobilevit_hf", "MobileViTModel", images(64), "pixel_values",
        image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 24, 32, 40, 48]),
    row("pvt_hf", "PvtModel", images(64), "pixel_values", image_size=64,
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 3, 4]),
    row("glpn", "GLPNModel", images(64), "pixel_values",
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 3, 4]),
    row("yolos", "YolosModel", images(32), "pixel_values",
        **_VISION | {"image_size": [32, 32]}, num_detection_tokens=4),
    row("swinv2_hf", "Swinv2Model", images(32), "pixel_values",
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
    row("siglip_vision", "SiglipVisionModel", images(32), "pixel_values", **_VISION),
    row("siglip_text", "SiglipTextModel", masked, _MASKED, **SMALL),
    row("videomae", "VideoMAEModel", clips, "pixel_values", **_VISION, num_frames=4),
    row("timesformer", "TimesformerModel", clips, "pixel_values", **_VISION, num_frames=4),
    row(
        "patchtst", "PatchTSTModel", lambda batch: [torch.randn(batch, 32, 3)], "past_values",
        context_length=32, num_input_channels=3, patch_length=8, patch_stride=8, d_model=16,
        num_attention_heads=2, num_hidden_layers=2, ffn_dim=32,
    ),
    row(
        "patchtsmixer", "PatchTSMixerModel", lambda batch: [torch.randn(batch, 32, 3)],
        "past_values", context_length=32, num_input_channels=3, patch_length=8, patch_stride=8,
        d_model=16, num_layers=2,
    ),
    row(
        "rwkv", "RwkvModel", tokens,
        vocab_size=_WORDS, hidden_size=16, attention_hidden_size=16, num_hidden_layers=2,
        context_length=32,
    ),
    row(
        "mamba2", "Mamba2Model", tokens,
        vocab_size=_WORDS, hidden_size=16, num_hidden_layers=2, state_size=4, num_heads=4,
        head_dim=8, n_groups=2, chunk_size=4,
    ),
]  # fmt: skip
