import torch
import torch.nn as nn


class Model(nn.Module):
    """nn.TransformerEncoder, norm first, gelu, with a causal mask and padding."""

    def __init__(self, d, heads, ff, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            d, heads, ff, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.enc = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
        )

    def forward(self, x, pad):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device)
        return self.enc(x, mask=mask, src_key_padding_mask=pad)


def get_inputs():
    p = torch.zeros(2, 7)
    p[1, 5:] = float("-inf")
    return [torch.randn(2, 7, 16), p]


def get_init_inputs():
    return [16, 4, 32, 2]
