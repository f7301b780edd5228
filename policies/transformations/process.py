"""The entry of the sandboxed process: it executes the problem's file and returns a candidate's text."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from kernelwright.device_mapping import cuda_mapped_to
from kernelwright.policies.draft_channel import DraftChannel
from kernelwright.policies.transformations.exporting import ExportedModel, NotTransformed, export
from kernelwright.policies.transformations.linear_sum import write_linear_sum
from kernelwright.policies.transformations.matrix_vector import write_matrix_vector
from kernelwright.policies.transformations.reduced_linear import write_reduced_linear
from kernelwright.policies.transformations.row_reduction import write_row_reduction
from kernelwright.policies.transformations.split_product import write_split_product
from kernelwright.program_arguments import no_program_arguments

TRANSFORMATION_PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v
def get_inputs():
    return [torch.randn(2, 3, 32, 16) for _ in range(3)]
def get_init_inputs():
    return []
"""
MAX_REASON_CHARACTERS = 600
"""Maximum length of a refusal's reason."""


def warm() -> None:
    """Forked processes inherit the imports."""
    answer(TRANSFORMATION_PROBLEM)


def serve(channel: DraftChannel, payload: dict[str, Any]) -> None:
    """Answers a request of `kernelwright.policies.transformations.draft`."""
    channel.send(answer(payload["source"]))


def answer(source: str) -> dict[str, Any]:
    """The fields of a TransformedDraft."""
    start = time.monotonic()
    fields: dict[str, Any]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with cuda_mapped_to("cpu", source), no_program_arguments():
                exported = export(source)
            fields = _transformed(exported)
    except NotTransformed as reason:
        fields = {"refused": str(reason)[:MAX_REASON_CHARACTERS]}
    except Exception as error:  # whatever the problem or torch raises is why there is no draft
        reason_text = (str(error).strip().splitlines() or [""])[0]
        fields = {"refused": f"{type(error).__name__}: {reason_text}"[:MAX_REASON_CHARACTERS]}
    return {**fields, "seconds": time.monotonic() - start}


TRANSFORMATIONS: tuple[tuple[str, Callable[[ExportedModel], str]], ...] = (
    ("a reduction in two stages", write_row_reduction),
    ("a product of a matrix and a vector in two stages", write_matrix_vector),
    ("a product split over its long axis", write_split_product),
    ("a sum of a linear layer, its weights summed first", write_linear_sum),
    ("a linear layer and the reduction of its rows in one kernel", write_reduced_linear),
)


def _transformed(exported: ExportedModel) -> dict[str, Any]:
    """The first that fits. Raises NotTransformed with the reasons of all."""
    reasons = []
    for name, write in TRANSFORMATIONS:
        try:
            return {
                "source": write(exported),
                "transformation": name,
                "algebra": write is write_linear_sum,
            }
        except NotTransformed as reason:
            reasons.append(f"{name}: {reason}")
    raise NotTransformed("; ".join(reasons))
