"""Problems whose drafts have many decisions, and their sessions."""

from collections.abc import Iterator

import pytest

from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.decisions.session import PlanSession
from kernelwright.tools.problem import Problem

GATED = """
import torch
import torch.nn as nn

rows, columns, wide = 2560, 48, 64


class Model(nn.Module):
    def __init__(self, columns, wide):
        super().__init__()
        self.up = nn.Linear(columns, wide)
        self.norm = nn.LayerNorm(wide)

    def forward(self, x):
        y = torch.tanh(self.up(x))
        z = self.norm(y) * torch.sigmoid(y)
        return torch.softmax(z, dim=-1), z.sum(dim=0)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns, wide]
"""

CONVOLVED = """
import torch
import torch.nn as nn

batch, channels, wide, size = 2, 16, 16, 12


class Model(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.down = nn.Conv2d(channels, wide, 3, padding=1)
        self.up = nn.ConvTranspose2d(wide, channels, 4, stride=2, padding=1)

    def forward(self, x):
        y = torch.relu(self.down(x))
        return torch.nn.functional.max_pool2d(y * torch.sigmoid(y), 2), torch.tanh(self.up(y))


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels, wide]
"""

HALF = """
import torch
import torch.nn as nn

batch, length, hidden = 2, 32, 32


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.bmm(torch.tanh(a), b.transpose(1, 2))) + 1


def get_inputs():
    return [
        torch.randn(batch, length, hidden, dtype=torch.float16),
        torch.randn(batch, length, hidden, dtype=torch.float16),
    ]


def get_init_inputs():
    return []
"""

PROBLEMS = {
    "gated": Problem(name="gated", source=GATED),
    "convolved": Problem(name="convolved", source=CONVOLVED),
    "half": Problem(name="half", source=HALF),
}


class Sessions:
    """Opens the session of a problem when a test first asks for it."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.opened: dict[str, PlanSession] = {}

    def __getitem__(self, name: str) -> PlanSession:
        if name not in self.opened:
            self.opened[name] = self._drafter.open_plans(PROBLEMS[name])
        return self.opened[name]


@pytest.fixture(scope="session")
def sessions(drafter: Drafter) -> Iterator[Sessions]:
    sessions = Sessions(drafter)
    yield sessions
    for session in sessions.opened.values():
        session.close()
