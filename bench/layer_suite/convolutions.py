"""Convolutional blocks, built by transformers, torchvision and timm."""

from __future__ import annotations

from bench.layer_suite.layer import Family, Layer, transformers_imports

MAPS = Family(
    inputs={"x": "batch, channels, size, size"},
    model={"channels": 96}, tiny_model={"channels": 8},
    tiny={"batch": 2, "size": 9}, small={"batch": 4, "size": 56}, large={"batch": 32, "size": 56},
    dtype="float16",
)  # fmt: skip

CONVOLUTIONS: tuple[Layer, ...] = (
    MAPS.layer(
        "convnext_layer", transformers_imports("convnext", "ConvNextConfig", "ConvNextLayer"),
        "self.layer = ConvNextLayer(ConvNextConfig(), dim=channels)", "self.layer(x)", dtype="float32",
    ),
    MAPS.layer(
        "convnext_v2_layer", transformers_imports("convnextv2", "ConvNextV2Config", "ConvNextV2Layer"),
        "self.layer = ConvNextV2Layer(ConvNextV2Config(), dim=channels)\n"
        "nn.init.normal_(self.layer.grn.weight)", "self.layer(x)",
    ),
    MAPS.layer(
        "resnet_bottleneck", "from torchvision.models.resnet import Bottleneck",
        "self.layer = Bottleneck(channels, channels // 4)", "self.layer(x)", package="torchvision",
        model={"channels": 256},
    ),
    MAPS.layer(
        "resnet_basic_stride", transformers_imports("resnet", "ResNetBasicLayer"),
        "self.layer = ResNetBasicLayer(channels, 2 * channels, stride=2)", "self.layer(x)", dtype="float32",
        model={"channels": 64},
    ),
    MAPS.layer(
        "regnet_y_layer", transformers_imports("regnet", "RegNetConfig", "RegNetYLayer"),
        "self.layer = RegNetYLayer(RegNetConfig(groups_width=channels // 4), channels, channels)", "self.layer(x)",
        model={"channels": 224},
    ),
    MAPS.layer(
        "efficientnet_block", "from torchvision.models.efficientnet import MBConv, MBConvConfig\nimport functools",
        "self.layer = MBConv(MBConvConfig(6, 5, 1, channels, channels, 1), 0.0,\n"
        "    functools.partial(nn.BatchNorm2d, eps=1e-3))", "self.layer(x)", package="torchvision",
        model={"channels": 40},
    ),
    MAPS.layer(
        "mobilenet_v3_block",
        "from torchvision.models.mobilenetv3 import InvertedResidual, InvertedResidualConfig",
        'self.layer = InvertedResidual(InvertedResidualConfig(channels, 5, 3 * channels, channels, '
        'True, "HS", 1, 1, 1.0),\n'
        "    nn.BatchNorm2d)", "self.layer(x)", package="torchvision", model={"channels": 40}, dtype="float32",
    ),
    MAPS.layer(
        "inception_a", "from torchvision.models.inception import InceptionA",
        "self.layer = InceptionA(channels, pool_features=channels // 4)", "self.layer(x)", package="torchvision",
        model={"channels": 192},
    ),
    MAPS.layer(
        "shufflenet_unit", "from torchvision.models.shufflenetv2 import InvertedResidual",
        "self.layer = InvertedResidual(channels, channels, 1)", "self.layer(x)", package="torchvision",
        model={"channels": 116},
    ),
    MAPS.layer(
        "poolformer_layer", transformers_imports("poolformer", "PoolFormerConfig", "PoolFormerLayer"),
        "self.layer = PoolFormerLayer(PoolFormerConfig(), channels, 3, channels, 4 * channels, 0.0)", "self.layer(x)",
    ),
    MAPS.layer(
        "mambaout_block", "from timm.models.mambaout import GatedConvBlock",
        "self.layer = GatedConvBlock(dim=channels)", "self.layer(x)", package="timm",
        inputs={"x": "batch, size, size, channels"}, dtype="bfloat16",
    ),
    MAPS.layer(
        "resnest_bottleneck", "from timm.models.resnest import ResNestBottleneck",
        "self.layer = ResNestBottleneck(channels, channels // 4)", "self.layer(x)", package="timm",
        model={"channels": 256}, tiny_model={"channels": 32},
    ),
    MAPS.layer(
        "diffusion_resnet_block",
        transformers_imports("chameleon", "ChameleonVQVAEEncoderResnetBlock")
        + "\nfrom transformers import ChameleonVQVAEConfig",
        "self.layer = ChameleonVQVAEEncoderResnetBlock(ChameleonVQVAEConfig(dropout=0.0), in_channels=channels,\n"
        "    out_channels=2 * channels)", "self.layer(x)", model={"channels": 128}, tiny_model={"channels": 32},
    ),
    MAPS.layer(
        "mobilevit_layer", transformers_imports("mobilevit", "MobileViTConfig", "MobileViTLayer"),
        "self.layer = MobileViTLayer(MobileViTConfig(num_attention_heads=4), in_channels=channels,\n"
        "    out_channels=channels, stride=1, hidden_size=channels + 16, num_stages=1)", "self.layer(x)",
        dtype="float32", tiny_model={"channels": 16},
    ),
)  # fmt: skip
