"""A region of a model: a module that occurs once or many times, as a problem with its own text.

The text is the module's graph in aten operators, with the weights as parameters of flat names:

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_weight = nn.Parameter(torch.randn((64,)) * 0.02 + 1.0)

        def forward(self, hidden_states):
            mul = torch.ops.aten.mul.Tensor(hidden_states, self.norm_weight)
            return mul
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernelwright.agent.optimizing.capture import ModuleCall
from kernelwright.agent.optimizing.graph_costs import bytes_of_node, is_computing
from kernelwright.agent.optimizing.region_text import (
    NoRegion,
    RegionProblemText,
    drawn_like,
    shape_and_dtype,
)
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class Region(Value):
    """Modules with equal graphs, and their common problem."""

    name: str
    """Python name of the kernel: `llama_decoder_layer`."""
    paths: tuple[str, ...]
    problem: Problem
    structure: str
    """Text of the problem without the ranges of its numbers: equal for equal modules."""
    conditions: tuple[str, ...]
    """Expressions over `args` and `kwargs`, true for calls with this graph."""
    tensors: tuple[str, ...]
    """Expressions of the inputs over `args` and `kwargs`."""
    weights: dict[str, str]
    """Name of each weight in the module, by its name in the problem."""
    output: str
    """Expression of the module's result, built from the tuple `o` of tensors."""
    calls: int
    """Calls of all these modules while the model runs once."""
    launches: int
    """Minimum number of kernels launched by eager PyTorch in a call: its computing operators."""
    bytes_moved: int
    """Bytes read and written by these operators."""
    bytes_needed: int
    """Bytes of the region's inputs, weights and outputs."""

    @property
    def bytes_saved(self) -> int:
        """Maximum number of bytes saved by a single kernel in a run of the model."""
        return max(self.bytes_moved - self.bytes_needed, 0) * self.calls


def region_of(call: ModuleCall, program: ExportedProgram) -> Region:
    """Returns a module's region. Raises NoRegion if its graph changes state, or has constants too
    large for a text.
    """
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise NoRegion("it writes to its buffers or inputs")
    graph = program.graph_module.graph
    for node in [
        n for n in graph.nodes if "_assert" in str(n.target) or "_guards" in str(n.target)
    ]:
        if not node.users:
            graph.erase_node(node)
    writer = RegionProblemText(call, program)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(call.module).__name__).lower()
    costs = [bytes_of_node(node) for node in graph.nodes if is_computing(node)]
    return Region(
        name=name,
        paths=(call.path,),
        problem=Problem(
            name=f"region:{name}",
            source=writer.text(drawn_like),
            title=type(call.module).__name__,
        ),
        structure="\n".join((writer.text(shape_and_dtype), *writer.conditions, writer.output)),
        conditions=tuple(writer.conditions),
        tensors=tuple(writer.tensors),
        weights=writer.weights,
        output=writer.output,
        calls=call.count,
        launches=len(costs),
        bytes_moved=sum(costs),
        bytes_needed=writer.bytes_needed,
    )
