"""The tasks of a judge service: its problems by name, each with the prompt that a policy is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTRACT = (
    "Write one Python file with `class ModelNew(torch.nn.Module)` that takes the same constructor and forward "
    "arguments as `Model` below and returns the same result. All computing must be done by Triton kernels "
    "(`@triton.jit`) in that file: torch may only allocate, view and copy. The kernel must be right at other sizes "
    "too, and on unusual values. "
    "Answer with the whole file in one fenced block of Python."
)


@dataclass(frozen=True)
class Task:
    """One problem of the service."""

    id: str
    """The service's name of the problem: what is given to `JudgeClient.score`."""
    title: str
    family: str
    reference: str
    """The PyTorch text that a candidate must agree with."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Task:
        return cls(
            told["name"], told.get("title", ""), told.get("family", ""), told.get("source", "")
        )

    @property
    def prompt(self) -> list[dict[str, str]]:
        """A chat of one message."""
        return [{"role": "user", "content": prompt_of(self.reference)}]

    def row(self) -> dict[str, Any]:
        """A row of a data set: the prompt, and the problem that the reward is asked about."""
        return {"prompt": self.prompt, "problem": self.id}


def prompt_of(reference: str) -> str:
    """The text that asks for a kernel."""
    return f"{CONTRACT}\n\n```python\n{reference.strip()}\n```"
