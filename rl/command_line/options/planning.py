"""Options of `--plan`, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

if TYPE_CHECKING:
    from kernelwright.rl.training.online.options import OnlineOptions
    from kernelwright.rl.training.options import LogOptions
    from kernelwright.rl.training.sft.options import SftOptions
    from kernelwright.rl.training.sft.presets import Lora

DEFAULT_PROMPT_TOKENS = 1500
"""Assumed length of a prompt in a plan, in tokens."""


@dataclass(frozen=True)
class PlanOptions:
    """Options for the capacity plan."""

    PANEL: ClassVar[str] = "Plan"
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Print memory of each GPU, GPUs by role, seconds a step and hours, from the model's config alone, "
            "and stop; exits with 2 where it does not fit, with the nearest options that do.",
        ),
    ] = False
    gpu_type: Annotated[
        str | None,
        typer.Option(
            "--gpu-type",
            help="The GPU that --plan counts with: H100, A100, L40S ...",
            show_default="this machine's, else H100",
        ),
    ] = None
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-tokens",
            min=1,
            help="Tokens of a prompt that --plan counts with.",
            show_default=str(DEFAULT_PROMPT_TOKENS),
        ),
    ] = None

    def check(self) -> None:
        """Raises InputError for an option of the plan without --plan."""
        from kernelwright.errors import InputError

        if self.plan:
            return
        for name, value in (("gpu-type", self.gpu_type), ("prompt-tokens", self.prompt_tokens)):
            if value is not None:
                raise InputError(f"--{name} goes with --plan: leave it out, or add --plan")

    def show(
        self,
        options: SftOptions | LogOptions | OnlineOptions,
        path: str,
        recipe: Lora,
        gpus: int | None,
        as_json: bool,
        rows: int | None = None,
    ) -> None:
        """Prints the plan of a training. Raises InputError if the plan does not fit into memory."""
        from kernelwright.errors import InputError
        from kernelwright.rl.command_line.show.capacity import capacity_view, refusal
        from kernelwright.rl.training.capacity.layouts import plan_capacity
        from kernelwright.rl.training.capacity.model_shape import shape_of
        from kernelwright.rl.training.capacity.requests import gpu_rates, request_of

        shape = shape_of(path, recipe)
        request = request_of(
            options,
            shape,
            gpus or 1,
            gpu_rates(self.gpu_type),
            self.prompt_tokens or DEFAULT_PROMPT_TOKENS,
            rows,
        )
        plan = plan_capacity(shape, request)
        typer.echo(plan.model_dump_json(indent=2) if as_json else capacity_view(plan))
        if not plan.fits:
            raise InputError(refusal(plan))
