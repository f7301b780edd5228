"""First-order linear recurrence: h[t] = decay[t] * h[t - 1] + x[t].

decay, x: (batch_size, length, channels), the recurrence running along length from h = 0. Output: every h, the same
shape.
"""

import torch
from torch import nn

FAMILY = "scans"
TAGS = ("memory", "scan")
ALIASES = ("gated scan", "ssm scan", "linear rnn", "first order recurrence")

batch_size = 64
length = 256
channels = 4096

CPU_SIZES = {"batch_size": 2, "length": 19, "channels": 33}


class Model(nn.Module):
    def forward(self, decay: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + x[:, step]
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    shape = (batch_size, length, channels)
    return [torch.sigmoid(torch.randn(shape) + 2.0), torch.randn(shape)]


def get_init_inputs():
    return []
