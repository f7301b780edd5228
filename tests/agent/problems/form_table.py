"""Problems in the forms in which people have them: each is a folder of files, and what is typed after `agent solve`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

IMPORTS = """
import collections
import dataclasses
import functools
import typing

import torch
import torch.nn.functional as F
from torch import nn
"""
NORM = """

class Norm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
"""


@dataclass(frozen=True)
class FormOfUsers:
    """One problem."""

    text: str = ""
    name: str = "block.py"
    init: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    """Other files beside it."""


def notebook(*cells: str) -> str:
    """Returns the file of a notebook with these code cells."""
    return json.dumps(
        {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4}
    )


DEVELOPED = {
    "imported_class": FormOfUsers(
        "import torch\nfrom transformers.models.llama.modeling_llama import LlamaRMSNorm\n\n"
        "model = LlamaRMSNorm(96)\ny = model(torch.randn(4, 7, 96))\n"
    ),
    "kernelbook": FormOfUsers(
        IMPORTS
        + NORM.replace("Norm(nn", "Model(nn")
        + "\n\ndef get_inputs():\n    return [torch.rand([4, 4, 24])]\n"
        "\n\ndef get_init_inputs():\n    return [[], {'width': 24}]\n"
    ),
    "keyword_only_and_dataclass_out": FormOfUsers(
        IMPORTS
        + "\n@dataclasses.dataclass\nclass Out:\n    scores: torch.Tensor\n    best: torch.Tensor\n"
        "    hidden: typing.Optional[torch.Tensor] = None\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, *, x, temperature=1.0):\n        y = (x / temperature).softmax(-1)\n"
        "        return Out(scores=y, best=y.amax(-1))\n\n\ndef get_inputs():\n"
        "    return {'x': torch.randn(16, 33), 'temperature': 0.7}\n\n\ndef get_init_inputs():\n    return []\n"
    ),
    "sequential_at_the_top": FormOfUsers(
        IMPORTS
        + "\nwidth = 24\nnet = nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, 8)).eval()\n"
        "with torch.no_grad():\n    print(net(torch.randn(5, 16)))\n"
    ),
    "lambda": FormOfUsers(
        IMPORTS + "\nact = lambda x: x * torch.sigmoid(1.702 * x)\nact(torch.randn(6, 50))\n"
    ),
    "partial_beside_inputs": FormOfUsers(
        IMPORTS + "\ndef scaled(x, weight, scale):\n    return x * weight * scale\n\n\n"
        "double = functools.partial(scaled, scale=2.0)\nexample_inputs = (torch.randn(6, 50), torch.randn(50))\n"
    ),
    "sequential_beside_inputs": FormOfUsers(
        IMPORTS
        + "\nwidth = 24\nnet = nn.Sequential(nn.Linear(width, 40), nn.GELU())\nloss = nn.MSELoss()\n"
        "sample_args = [torch.randn(5, width)]\n"
    ),
    "lambda_functions": FormOfUsers(
        IMPORTS + NORM + "\nModel = Norm\nget_inputs = lambda: [torch.randn(6, 40)]\n"
        "get_init_inputs = functools.partial(list, [40])\n"
    ),
    "bound_in_a_block_and_a_tuple": FormOfUsers(
        IMPORTS
        + NORM.replace("Norm(nn", "Model(nn")
        + "\nif torch.cuda.is_available():\n\n    def get_inputs():\n"
        "        return [torch.randn(64, 40)]\nelse:\n\n    def get_inputs():\n        return [torch.randn(6, 40)]\n\n"
        "get_init_inputs, eps = (lambda: [40]), 1e-5\n"
    ),
    "imported_functions": FormOfUsers(
        IMPORTS
        + NORM.replace("Norm(nn", "Model(nn")
        + "\nfrom shapes import draw as get_inputs, get_init_inputs\n",
        files={
            "shapes.py": "import torch\n\nget_init_inputs = lambda: [[], {'width': 24}]\n\n\n"
            "def draw(rows=5):\n    return {'x': torch.randn(rows, 24)}\n"
        },
    ),
    "arguments_of_the_program": FormOfUsers(
        "import argparse\nimport sys\n" + IMPORTS + "\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=40)\noptions = parser.parse_args()\n"
        "rows = int(sys.argv[1]) if len(sys.argv) > 1 else 6\nlayers = {}\nlayers['slope'] = 0.1\n"
        "\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.LayerNorm(options.width)\n        self.slope = layers['slope']\n\n"
        "    def forward(self, x):\n        return F.leaky_relu(self.norm(x), self.slope)\n\n\n"
        "def get_inputs():\n    return [torch.randn(rows, options.width)]\n\n\nget_init_inputs = list\n"
    ),
    "partial_of_a_class": FormOfUsers(
        IMPORTS
        + NORM
        + "\nModel = functools.partial(Norm, eps=0.1)\nget_init_inputs = lambda: [24]\n"
        "get_inputs = lambda: [torch.randn(6, 24)]\n"
    ),
    "partial": FormOfUsers(
        IMPORTS
        + "\n\ndef scaled(x, shift, scale=1.0):\n    return torch.tanh(x * scale) + shift\n\n\n"
        "double = functools.partial(scaled, scale=2.0)\ndouble(torch.randn(6, 50), torch.randn(50))\n"
    ),
    "any_number_of_inputs": FormOfUsers(
        IMPORTS + "\n\nclass Sum(nn.Module):\n    def forward(self, *xs):\n        total = xs[0]\n"
        "        for x in xs[1:]:\n            total = total + torch.relu(x)\n        return total\n\n\n"
        "inputs = [torch.randn(9, 31) for _ in range(3)]\nSum()(*inputs)\n"
    ),
    "notebook": FormOfUsers(
        notebook(
            "%matplotlib inline\nimport torch\nfrom torch import nn",
            NORM,
            "norm = Norm(40)",
            "norm(torch.randn(3, 40))",
        ),
        name="norms.ipynb",
    ),
    "dotted_name": FormOfUsers(name="torch.nn.GELU", init=("approximate=tanh",), inputs=("12x50",)),
    "function_with_defaults": FormOfUsers(
        IMPORTS
        + "\n\ndef gated(x, bias=None, *, alpha=2.0, limit=6.0):\n    y = x if bias is None else x + bias\n"
        "    return torch.clamp(y * torch.sigmoid(alpha * y), max=limit)\n\n\nif __name__ == '__main__':\n"
        "    torch.manual_seed(0)\n    device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "    x = torch.randn(8, 70, device=device)\n    print(gated(x, torch.randn(70, device=device), limit=3.0))\n"
    ),
    "named_tuple_in": FormOfUsers(
        IMPORTS
        + "\n\nclass Batch(typing.NamedTuple):\n    x: torch.Tensor\n    mask: torch.Tensor\n\n\n"
        "class Masked(nn.Module):\n    def forward(self, batch):\n"
        "        return batch.x.masked_fill(batch.mask, -1.0).exp()\n\n\n"
        "Masked()(Batch(torch.randn(4, 30), torch.rand(4, 30) > 0.5))\n"
    ),
    "decorated_class": FormOfUsers(
        IMPORTS
        + "\nREGISTRY = {}\n\n\ndef register(name):\n    def add(kind):\n        REGISTRY[name] = kind\n"
        "        return kind\n\n    return add\n\n\n@register('norm')"
        + NORM.lstrip("\n").join(["\n", ""])
        + "\n\ndef test_norm():\n    norm = Norm(28)\n    assert norm(torch.randn(2, 28)).shape == (2, 28)\n"
    ),
    "dataclass_config": FormOfUsers(
        IMPORTS
        + "\n\n@dataclasses.dataclass\nclass Config:\n    width: int = 32\n    rate: float = 0.5\n\n\n"
        "class Gate(nn.Module):\n    def __init__(self, config: Config):\n        super().__init__()\n"
        "        self.up = nn.Linear(config.width, 2 * config.width)\n        self.rate = config.rate\n\n"
        "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        a, b = self.up(x).chunk(2, -1)\n"
        "        return a * torch.sigmoid(b) * self.rate\n\n\nconfig: Config = Config(width=24)\nmodel = Gate(config)\n"
        "out = model(torch.randn(7, config.width))\n"
    ),
    "optional_input": FormOfUsers(
        IMPORTS + "\n\nclass Model(nn.Module):\n"
        "    def forward(self, x, bias: typing.Optional[torch.Tensor] = None, scale=None):\n"
        "        x = x if bias is None else x + bias\n        return x if scale is None else x * scale\n\n\n"
        "def get_inputs():\n    return [torch.randn(5, 44), None, torch.randn(44)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    ),
}
KEPT_BACK = {
    "kernelgym_tuple": FormOfUsers(
        IMPORTS
        + NORM.replace("Norm(nn", "Model(nn")
        + "\n\ndef get_inputs():\n    return (torch.rand(6, 40),)\n"
        "\n\ndef get_init_inputs():\n    return ([40], {'eps': 1e-3})\n"
    ),
    "dataclass_in": FormOfUsers(
        IMPORTS
        + "\n\n@dataclasses.dataclass\nclass Pair:\n    left: torch.Tensor\n    right: torch.Tensor\n"
        "    weight: float = 0.5\n\n\nclass Model(nn.Module):\n    def forward(self, pair, gain):\n"
        "        return torch.lerp(pair.left, pair.right, pair.weight) * gain\n\n\ndef get_inputs():\n"
        "    pair = Pair(torch.randn(6, 20), torch.randn(6, 20))\n    return [pair, torch.randn(20)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    ),
    "factory": FormOfUsers(
        IMPORTS
        + NORM
        + "\n\ndef build(width, depth):\n    layers = []\n    for _ in range(depth):\n"
        "        layers += [nn.Linear(width, width), nn.SiLU()]\n    return nn.Sequential(*layers, Norm(width))\n\n\n"
        "if __name__ == '__main__':\n    width = 24\n    model = build(width, 2)\n    x = torch.randn(9, width)\n"
        "    y = model(x)\n    print(y.shape)\n"
    ),
    "vision_block": FormOfUsers(
        IMPORTS
        + "\n\nclass ConvNormAct(nn.Sequential):\n    def __init__(self, cin, cout, stride=1):\n"
        "        super().__init__(\n            nn.Conv2d(cin, cout, 3, stride, 1, bias=False),\n"
        "            nn.BatchNorm2d(cout),\n            nn.ReLU(inplace=True),\n        )\n\n\n"
        "class BasicBlock(nn.Module):\n    expansion: int = 1\n\n    def __init__(self, width, norm_layer=None):\n"
        "        super().__init__()\n        norm_layer = norm_layer or nn.BatchNorm2d\n"
        "        self.first = ConvNormAct(width, width)\n        self.conv = nn.Conv2d(width, width, 3, padding=1)\n"
        "        self.norm = norm_layer(width)\n\n    def forward(self, x):\n"
        "        return F.relu(self.norm(self.conv(self.first(x))) + x)\n\n\nif __name__ == '__main__':\n"
        "    block = BasicBlock(8).eval()\n    print(block(torch.rand(2, 8, 9, 9)).shape)\n"
    ),
    "transformer_mlp_text": FormOfUsers(
        IMPORTS
        + "\n\nclass LayerScale(nn.Module):\n    def __init__(self, dim, init_values=1e-5, inplace=False):\n"
        "        super().__init__()\n        self.inplace = inplace\n"
        "        self.gamma = nn.Parameter(init_values * torch.ones(dim))\n\n    def forward(self, x):\n"
        "        return x.mul_(self.gamma) if self.inplace else x * self.gamma\n\n\n"
        "class Mlp(nn.Module):\n    def __init__(self, dim, hidden=None, act_layer=nn.GELU, drop=0.0):\n"
        "        super().__init__()\n        hidden = hidden or 2 * dim\n        self.fc1 = nn.Linear(dim, hidden)\n"
        "        self.act = act_layer()\n        self.drop = nn.Dropout(drop)\n"
        "        self.fc2 = nn.Linear(hidden, dim)\n"
        "        self.scale = LayerScale(dim)\n\n    def forward(self, x):\n"
        "        return x + self.scale(self.fc2(self.drop(self.act(self.fc1(x)))))\n\n\n"
        "mlp = Mlp(dim=16, act_layer=nn.GELU)\nassert mlp(torch.rand(2, 5, 16)).shape == (2, 5, 16)\n"
    ),
    "one_of_several": FormOfUsers(
        IMPORTS + NORM + NORM.replace("class Norm", "class Other").replace("rsqrt", "sqrt"),
        name="block.py:Norm",
        init=("24",),
        inputs=("5x24",),
    ),
    "imports_of_the_folder": FormOfUsers(
        "import torch\nfrom torch import nn\n\nfrom .parts import Norm as RootNorm, act\n\n\nclass Block(nn.Module):\n"
        "    def __init__(self, width):\n        super().__init__()\n        self.norm = RootNorm(width)\n\n"
        "    def forward(self, x):\n        return act(self.norm(x))\n\n\nBlock(36)(torch.randn(5, 36))\n",
        files={
            "parts.py": IMPORTS
            + NORM
            + "\n\nLIMIT = 3.0\n\n\ndef act(x):\n    return torch.clamp(x, max=LIMIT)\n"
        },
    ),
    "generator": FormOfUsers(
        IMPORTS
        + "\nrows = 7\n\n\nclass Model(nn.Module):\n    def forward(self, a, b):\n        return a * b.sigmoid()\n\n\n"
        "def get_inputs():\n    for _ in range(2):\n        yield torch.randn(rows, 29)\n\n\n"
        "def get_init_inputs():\n    pass\n"
    ),
    "dictionaries_in_and_out": FormOfUsers(
        IMPORTS
        + "\n\nclass Split(nn.Module):\n    def forward(self, batch):\n        x = batch['x'] + batch['bias']\n"
        "        return {'low': x.clamp(max=0), 'high': x.clamp(min=0), 'rest': None}\n\n\n"
        "example_input = {'batch': {'x': torch.randn(6, 22), 'bias': torch.randn(22)}}\nSplit()(**example_input)\n"
    ),
    "named_tuple_out": FormOfUsers(
        IMPORTS
        + "\nMoments = collections.namedtuple('Moments', ['mean', 'spread'])\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        return Moments(x.mean(-1), x.amax(-1) - x.amin(-1))\n\n\n"
        "def get_inputs():\n    x = torch.randn(8, 41)\n    return x\n\n\ndef get_init_inputs():\n    return ()\n"
    ),
    "model_output": FormOfUsers(
        "import torch\nfrom torch import nn\nfrom transformers.modeling_outputs import BaseModelOutput\n\n\n"
        "class Head(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.fc = nn.Linear(width, width)\n\n    def forward(self, hidden_states):\n"
        "        return BaseModelOutput(last_hidden_state=torch.tanh(self.fc(hidden_states)))\n\n\n"
        "head = Head(16)\nout = head(hidden_states=torch.randn(3, 5, 16))\nprint(out.last_hidden_state.shape)\n"
    ),
    "unit_test": FormOfUsers(
        IMPORTS
        + "import unittest\n"
        + NORM
        + "\n\nclass TestNorm(unittest.TestCase):\n    def test_shape(self):\n"
        "        norm = Norm(18)\n        x = torch.randn(4, 18)\n        self.assertEqual(norm(x).shape, x.shape)\n"
    ),
    "benchmark_loop": FormOfUsers(
        IMPORTS
        + "import time\n\n\ndef softcap(x, cap: float = 30.0):\n    return cap * torch.tanh(x / cap)\n\n\n"
        "def benchmark():\n    x = torch.randn(16, 64)\n    for _ in range(3):\n        start = time.time()\n"
        "        y = softcap(x, cap=20.0)\n        print(time.time() - start)\n    return y\n\n\nbenchmark()\n"
    ),
    "compiled_model": FormOfUsers(
        IMPORTS + NORM + "\nmodel = Norm(26).to('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "fast = torch.compile(model, mode='max-autotune')\nout = fast(torch.randn(6, 26))\n"
    ),
    "plain_inputs": FormOfUsers(
        IMPORTS
        + "\n\nclass Model(nn.Module):\n    def forward(self, x, kind, power, flip, nothing=None):\n"
        "        x = x.abs() if kind == 'abs' else x\n        x = x ** power\n        return -x if flip else x\n\n\n"
        "def get_inputs():\n    return [torch.randn(5, 33), 'abs', 2, True, None]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    ),
    "inherited_forward": FormOfUsers(
        IMPORTS
        + "\n\nclass Base(nn.Module):\n    def forward(self, x):\n        return self.act(x) + x\n\n\n"
        "class Residual(Base):\n    def __init__(self, slope=0.1):\n        super().__init__()\n"
        "        self.act = nn.LeakyReLU(slope)\n\n\nResidual(0.2)(torch.randn(7, 19))\n"
    ),
    "nested_lists": FormOfUsers(
        IMPORTS + "\n\nclass Model(nn.Module):\n    def forward(self, xs, weights):\n"
        "        return torch.cat([x * w for x, w in zip(xs, weights)], dim=-1)\n\n\ndef get_inputs():\n"
        "    return [[torch.randn(5, 8), torch.randn(5, 9)], (torch.randn(8), torch.randn(9))]\n\n\n"
        "def get_init_inputs():\n    return [[], {}]\n"
    ),
}
