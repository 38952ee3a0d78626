"""Architectures of timm."""

from __future__ import annotations

from .images import images  # before torchvision, which timm imports

# isort: split
from collections.abc import Callable
from typing import Any

import timm
from timm.layers import GatedMlp
from timm.models.convmixer import ConvMixer
from timm.models.metaformer import MetaFormer, Pooling
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock, SpatialGatingBlock
from torch import nn

from .measuring import Architecture


def built(name: str, make: Callable[[], nn.Module], size: int) -> Architecture:
    """A class of timm."""
    return Architecture(name, "timm", make, images(size))


def row(name: str, size: int = 64, **options: Any) -> Architecture:
    """A model of timm; options make it smaller."""
    return Architecture(
        name,
        "timm",
        lambda: timm.create_model(name, pretrained=False, num_classes=10, **options),
        images(size),
    )


def _mixer(**options: Any) -> nn.Module:
    sizes = {"num_blocks": 2, "embed_dim": 48, "patch_size": 8, "mlp_ratio": 4}
    if not options:
        del sizes["mlp_ratio"]
    return MlpMixer(10, 32, **sizes, **options)


def _poolformer() -> nn.Module:
    return MetaFormer(
        depths=(1, 1, 1, 1), dims=(16, 32, 48, 64), token_mixers=Pooling, num_classes=10
    )


TIMM = [
    row("resnet14t"),
    row("seresnet18"),
    row("ecaresnet26t"),
    row("gernet_s"),
    row("res2net50_48w_2s", layers=[1, 1, 1, 1]),
    row("resnest14d"),
    row("hrnet_w18_small"),
    row("dla46_c"),
    row("dpn48b"),
    row("ese_vovnet19b_slim"),
    row("ghostnet_050"),
    row("mixnet_s"),
    row("tf_efficientnet_lite0"),
    row("lcnet_050"),
    row("mobileone_s0"),
    row("repvgg_a0"),
    row("levit_128s", 64, img_size=64),
    row("deit_tiny_patch16_224", 32, img_size=32, depth=2),
    row("cait_xxs24_224", 32, img_size=32, depth=2, embed_dim=48, num_heads=4),
    row("crossvit_tiny_240"),
    row("coat_lite_tiny", img_size=64),
    row("convit_tiny", 32, img_size=32, depth=3, local_up_to_layer=2),
    row("pit_ti_224", 64, img_size=64),
    row("tnt_s_patch16_224", img_size=64, depth=2),
    row("twins_svt_small", img_size=64, depths=(1, 1, 1, 1)),
    row(
        "volo_d1_224",
        64,
        img_size=64,
    ),
    row("xcit_nano_12_p16_224", 64, img_size=64, depth=2),
    row("beit_base_patch16_224", 32, img_size=32, depth=2, embed_dim=48, num_heads=4),
    row("eva02_tiny_patch14_224", 28, img_size=28, depth=2),
    built("mlp_mixer", _mixer, 32),
    built("gmlp", lambda: _mixer(block_layer=SpatialGatingBlock, mlp_layer=GatedMlp), 32),
    built("resmlp", lambda: _mixer(block_layer=ResBlock, norm_layer=Affine), 32),
    built("poolformer", _poolformer, 64),
    row("nfnet_l0", 32),
    row("edgenext_xx_small"),
    row("mobilevit_xxs"),
    row("fastvit_t8"),
    row("efficientformer_l1", 224),
    row("nest_tiny", img_size=64),
    row("visformer_tiny", 64, img_size=64),
    row("sequencer2d_s", 28, img_size=28, layers=(1, 1, 1, 1)),
    row("botnet26t_256", 64, img_size=64),
    row("halonet26t", 256),
    row("lambda_resnet26t", 64, img_size=64),
    row("gcresnext26ts", 32),
    row("convnextv2_atto", 32, depths=(1, 1, 1, 1)),
    built("convmixer", lambda: ConvMixer(48, 2, num_classes=10), 32),
    row("mobilenetv4_conv_small", 32),
    row("mobilenetv4_hybrid_medium"),
    row("fbnetc_100", 32),
    row("rexnet_100", 32),
    row("tinynet_e", 32),
    row("skresnet18", 32),
    row("regnetz_005", 32),
    row("repvit_m0_9", 32),
    row("efficientvit_b0", 32),
    row("coatnet_pico_rw_224", 64, img_size=64),
    row("mobilevitv2_050"),
    row("pvt_v2_b0", 64, depths=(1, 1, 1, 1)),
    row("inception_next_atto", 32),
    row("hgnetv2_b0", 32),
    row("swinv2_cr_tiny_224", 64, img_size=64, depths=(1, 1, 1, 1)),
    row("starnet_s1", 32),
    row("mambaout_femto", 32),
    row("vit_relpos_small_patch16_224", 32, img_size=32, depth=2),
    row("vit_tiny_r_s16_p8_224", 64, img_size=64, depth=2),
    row("shvit_s1", 64),
    row("ghostnetv2_100"),
    row("samvit_base_patch16_224", 32, img_size=32, depth=2, embed_dim=48, num_heads=4),
]
