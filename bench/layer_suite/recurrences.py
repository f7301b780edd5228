"""Recurrent layers and state-space mixers, built by torch and transformers."""

from __future__ import annotations

from bench.layer_suite.layer import Family, Layer, transformers_imports

STEPS = Family(
    inputs={"x": "batch, length, hidden"},
    model={"hidden": 768}, tiny_model={"hidden": 32},
    tiny={"batch": 2, "length": 10}, small={"batch": 2, "length": 64}, large={"batch": 8, "length": 256},
)  # fmt: skip

RECURRENCES: tuple[Layer, ...] = (
    STEPS.layer(
        "mamba_block", transformers_imports("mamba", "MambaConfig", "MambaBlock"),
        "self.layer = MambaBlock(MambaConfig(hidden_size=hidden, state_size=16), layer_idx=0)\n"
        "mixer = self.layer.mixer\nnn.init.uniform_(mixer.A_log, 0.0, 2.5)\nnn.init.ones_(mixer.D)", "self.layer(x)",
        dtype="float32",
    ),
    STEPS.layer(
        "mamba2_block", transformers_imports("mamba2", "Mamba2Config", "Mamba2Block"),
        "config = Mamba2Config(hidden_size=hidden, num_heads=hidden // 32, head_dim=64, state_size=64, n_groups=1,\n"
        "    chunk_size=64)\nself.layer = Mamba2Block(config, layer_idx=0)", "self.layer(x)", dtype="float32",
    ),
    STEPS.layer(
        "rwkv_block", transformers_imports("rwkv", "RwkvConfig", "RwkvBlock"),
        "config = RwkvConfig(hidden_size=hidden, attention_hidden_size=hidden)\nself.layer = "
        "RwkvBlock(config, layer_id=0)\n"
        "nn.init.uniform_(self.layer.attention.time_decay, -5.0, 1.0)\n"
        "nn.init.zeros_(self.layer.attention.time_first)\n"
        "for name, parameter in self.named_parameters():\n    if 'time_mix' in name:\n"
        "        nn.init.uniform_(parameter)",
        "self.layer(x)", dtype="float32",
    ),
    STEPS.layer(
        "griffin_recurrent_block",
        transformers_imports("recurrent_gemma", "RecurrentGemmaConfig", "RecurrentGemmaRecurrentBlock"),
        "config = RecurrentGemmaConfig(hidden_size=hidden, lru_width=hidden, num_attention_heads=4)\n"
        "self.layer = RecurrentGemmaRecurrentBlock(config, layer_idx=0)\n"
        "nn.init.uniform_(self.layer.rg_lru.recurrent_param, 0.4, 0.8)\n"
        "for name in ('input_gate_weight', 'recurrent_gate_weight'):\n"
        "    nn.init.normal_(getattr(self.layer.rg_lru, name), std=0.1)\n"
        "for name in ('input_gate_bias', 'recurrent_gate_bias'):\n    "
        "nn.init.zeros_(getattr(self.layer.rg_lru, name))\n"
        "nn.init.normal_(self.layer.linear_y.weight, std=0.1)",
        "self.layer(x, torch.arange(x.shape[1], device=x.device).unsqueeze(0), None, use_cache=False)", dtype="float32",
    ),
    STEPS.layer(
        "lstm", "", "self.layer = nn.LSTM(hidden, hidden, batch_first=True)", "self.layer(x)", package="torch",
        dtype="float32", model={"hidden": 512},
    ),
    STEPS.layer(
        "gru_bidirectional", "", "self.layer = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)",
        "self.layer(x)", package="torch", dtype="float32", model={"hidden": 256},
    ),
)  # fmt: skip
