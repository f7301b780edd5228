"""Writes a kernel file whose module has gradients: kernels of a layer and of its gradients, in an autograd function."""

from __future__ import annotations

from kernelwright.agent.candidates.joined_text import joined_text
from kernelwright.agent.gradients.gradient_facts import GradientFacts
from kernelwright.agent.gradients.gradient_problem import weight_expression

FORWARD_CLASS, BACKWARD_CLASS = "ForwardKernels", "BackwardKernels"
TEMPLATE = '''

# ---- Forward and backward, joined by an autograd function. ----
class KernelFunction(torch.autograd.Function):
    """Runs the kernels of the layer and of its gradients."""

    @staticmethod
    def forward(ctx, layer, forms, *values):
        """values: the inputs and the weights with gradients. Adds the structure of the outputs to forms."""
        ctx.layer = layer
        ctx.plain = [(isinstance(value, torch.Tensor), value) for value in values]
        ctx.plain = [(is_tensor, None if is_tensor else value) for is_tensor, value in ctx.plain]
        ctx.save_for_backward(*[value for value in values if isinstance(value, torch.Tensor)])
        output = super(ModelNew, layer).forward(*values[:{count}])
        outputs, form = torch.utils._pytree.tree_flatten(output)
        forms.append(form)
        differentiable = [id(value) for value in {outputs}]
        ctx.has_gradient = [id(value) in differentiable for value in outputs]
        ctx.mark_non_differentiable(
            *[v for v in outputs if isinstance(v, torch.Tensor) and id(v) not in differentiable]
        )
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        """Returns a gradient for each value of forward."""
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if is_tensor else value for is_tensor, value in ctx.plain]
        gradients = [gradient for gradient, has in zip(gradients, ctx.has_gradient) if has]
        computed = iter(ctx.layer.gradients(*values[:{count}], *gradients))
        return None, None, *[next(computed) if wanted else None for wanted in {wanted}]


class ModelNew({forward_class}):
    """The layer; its gradients come from kernels, too."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # No submodule: state_dict holds the weights once.
        self.__dict__["backward_kernels"] = {backward_class}(*args, **kwargs)

    def forward(self, {arguments}):
        if not torch.is_grad_enabled():
            return super().forward({arguments})
        forms = []
        outputs = KernelFunction.apply(self, forms, {values})
        return torch.utils._pytree.tree_unflatten(outputs, forms[0])

    def gradients(self, *values):
        """Returns the gradients with respect to {leaves}, with the weights of this module."""
        for module, twin in zip(self.modules(), self.backward_kernels.modules(), strict=True):
            twin._parameters, twin._buffers, twin.training = module._parameters, module._buffers, module.training
        computed = self.backward_kernels(*values)
        return computed if isinstance(computed, (tuple, list)) else (computed,)
'''


def autograd_text(forward: str, backward: str, facts: GradientFacts) -> str:
    """Returns the text of a module with gradients.

    forward, backward: kernels of the problem and of its problem of gradients, each with or without the checks of its
    contract.
    """
    joined = joined_text(
        forward, backward, {"ModelNew": FORWARD_CLASS}, {"ModelNew": BACKWARD_CLASS}, "backward_"
    )
    has_gradient = [
        *(name in facts.inputs for name in facts.arguments),
        *(True for _ in facts.weights),
    ]
    values = [*facts.arguments, *map(weight_expression, facts.weights)]
    return (
        joined.rstrip()
        + "\n"
        + TEMPLATE.format(
            count=len(facts.arguments),
            outputs=f"({', '.join(facts.outputs)},)",
            wanted=tuple(has_gradient),
            arguments=", ".join(facts.arguments),
            values=", ".join(values),
            leaves=", ".join((*facts.inputs, *facts.weights)),
            forward_class=FORWARD_CLASS,
            backward_class=BACKWARD_CLASS,
        )
    )
