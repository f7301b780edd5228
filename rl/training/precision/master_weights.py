"""An optimizer over an fp32 master copy of every bf16 weight.

A bf16 weight of 0.02 has neighbours 1.2e-4 away, so a step of 1e-6 (AdamW's at such a learning
rate) is rounded to nothing. The optimizer therefore moves fp32 masters, and each bf16 weight is
its master rounded to nearest: the mixed-precision training of Micikevicius et al.
(arXiv:1710.03740, section 3.1), with masters in host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelwright.errors import InputError

GRADIENT_BYTES = 1 << 30
"""Largest size of fp32 gradients in memory at a time: the optimizer steps in parts of about this
size.
"""
MASTERS_KEY = "masters"
"""Key of the masters in the state dict."""


class MasterWeights(torch.optim.Optimizer):
    """Steps one of torch's optimizers on fp32 masters instead of on the model's weights.

    Groups and state are those of the inner optimizer, as in accelerate's AcceleratedOptimizer.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, masters: Mapping[torch.nn.Parameter, torch.Tensor]
    ) -> None:
        """Wraps `optimizer`, which has made no step yet. `masters`: fp32, by the weight of the
        model.

        Raises InputError for an optimizer outside torch: others place their state on the GPU.
        """
        if not type(optimizer).__module__.startswith("torch.optim"):
            raise InputError(
                f"--set optim=...: {type(optimizer).__name__} cannot step fp32 masters in host memory: leave it out, "
                "or use --lora"
            )
        self.optimizer = optimizer
        self._masters = {weight: torch.nn.Parameter(master) for weight, master in masters.items()}
        for group in optimizer.param_groups:
            group["params"] = [self._masters[weight] for weight in group["params"]]
        self._parts = _parts(self._masters)

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Returns the state of the inner optimizer, by master."""
        return self.optimizer.state

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        """Returns the groups of the inner optimizer, which schedulers change."""
        return self.optimizer.param_groups

    @property
    def defaults(self) -> Any:  # type: ignore[override]
        """Returns the defaults of the inner optimizer."""
        return self.optimizer.defaults

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Moves the masters by the gradients of the weights, then rounds each master into its
        weight.

        The gradients of the weights are cleared.
        """
        for part in self._parts:
            for weight, master in part.items():
                if weight.grad is not None:
                    master.grad = weight.grad.to(master.device).float()
                    weight.grad = None
            # The optimizer leaves masters alone that have no gradient: those of other parts, and frozen ones.
            self.optimizer.step()
            for weight, master in part.items():
                if master.grad is not None:
                    weight.copy_(master.to(weight.dtype))
                    master.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of the weights."""
        for weight in self._masters:
            weight.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the optimizer's state and, after the first step, the masters."""
        state = self.optimizer.state_dict()
        return {**state, MASTERS_KEY: list(self._masters.values())} if state["state"] else state

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores state and masters. A state without masters comes from a training in fp32: its
        weights become the masters.
        """
        if state_dict["state"]:
            for index, (weight, master) in enumerate(self._masters.items()):
                stored = state_dict.get(MASTERS_KEY)
                master.copy_(weight if stored is None else stored[index])
        self.optimizer.load_state_dict(
            {name: state_dict[name] for name in ("state", "param_groups")}
        )

    def named(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Returns the masters by weight name."""
        return {
            name: self._masters[weight].detach()
            for name, weight in model.named_parameters()
            if weight in self._masters
        }


def _parts(
    masters: Mapping[torch.nn.Parameter, torch.nn.Parameter],
) -> list[dict[torch.nn.Parameter, torch.nn.Parameter]]:
    """Splits the masters into parts of about GRADIENT_BYTES."""
    parts: list[dict[torch.nn.Parameter, torch.nn.Parameter]] = [{}]
    size = 0
    for weight, master in masters.items():
        if size >= GRADIENT_BYTES:
            parts.append({})
            size = 0
        parts[-1][weight] = master
        size += master.numel() * master.element_size()
    return parts
