"""Compares each module with its reference, and checks its operator."""

import importlib
import json
import runpy
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

SMALL = Path(__file__).parent / "small"
PACKAGE = json.loads((SMALL / "package.json").read_text())
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 4e-2}


def on_device(values):
    return tree_map(lambda v: v.to(DEVICE) if isinstance(v, torch.Tensor) else v, list(values))


@pytest.fixture(
    params=PACKAGE["cases"], ids=[f"{c['module']} {c['shape']}".strip() for c in PACKAGE["cases"]]
)
def case(request):
    """Module of the package, its reference with equal weights, inputs, operator."""
    name, dtype = request.param["module"], request.param["dtype"]
    module_of = importlib.import_module(f"{PACKAGE['package']}.{name}")
    small = runpy.run_path(str(SMALL / request.param["file"]))
    torch.manual_seed(0)
    arguments = small["get_init_inputs"]()
    reference = module_of.reference.Model(*arguments).to(DEVICE)
    module = getattr(module_of, request.param["class"])(*arguments).to(DEVICE)
    module.load_state_dict(reference.state_dict())
    for each in (module, reference):
        each.train(module_of.OPERATOR.training)
        if dtype:
            each.to(getattr(torch, dtype))
    return module, reference, on_device(small["get_inputs"]()), module_of.OPERATOR


def with_grad(value):
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().clone().requires_grad_() if floating else value


def copied(inputs):
    return tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, inputs)


def assert_close(actual, expected):
    pairs = list(zip(tree_leaves(actual), tree_leaves(expected), strict=True))
    for left, right in pairs:
        if not isinstance(right, torch.Tensor):
            assert left == right
            continue
        assert left.dtype == right.dtype
        tolerance = TOLERANCES.get(right.dtype, 0.0)
        floating = right.is_floating_point() and right.numel()
        scale = float(right.double().nan_to_num(0.0, 0.0, 0.0).abs().mean()) if floating else 0.0
        torch.testing.assert_close(
            left, right, rtol=tolerance, atol=tolerance * max(scale, 1e-6), equal_nan=True
        )


def test_the_kernel_runs_and_equals_the_reference(case):
    module, reference, inputs, operator = case
    with torch.no_grad():
        expected = reference(*copied(inputs))
        operator.refusal = "the operator was not called"
        actual = module(*copied(inputs))
    assert operator.refusal == ""
    assert_close(actual, expected)


def test_torch_compile_keeps_the_operator(case):
    module, reference, inputs, operator = case
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph

    with torch.no_grad():
        expected = reference(*copied(inputs))
        compiled = torch.compile(module, fullgraph=True, backend=backend)
        assert_close(compiled(*copied(inputs)), expected)
    assert any(operator.name.split("::")[1] in str(node.target) for node in graphs[0].graph.nodes)


def operator_call(module, inputs, operator):
    """Returns the operator, and its arguments in a call of the module."""
    calls, kept = [], operator._op

    def record(*values):
        calls.append(values)
        return kept(*values)

    operator._op = record
    with torch.no_grad():
        module(*copied(inputs))
    operator._op = kept
    return kept, tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, calls[0])


def gradients(outputs, leaves):
    """Returns the gradients of a sum of all floating outputs, each element weighted by a random number.

    The plain sum of a softmax is constant: its gradient is zero, and only noise would be compared.
    """
    outputs = [o for o in tree_leaves(outputs) if isinstance(o, torch.Tensor) and o.requires_grad]
    leaves = [v for v in tree_leaves(leaves) if isinstance(v, torch.Tensor) and v.requires_grad]
    if not outputs or not leaves:
        pytest.skip("nothing is differentiable")
    random, totals = torch.Generator().manual_seed(7), []
    for output in outputs:
        factors = torch.randn(output.shape, generator=random, dtype=torch.float64)
        totals.append((output.double().nan_to_num() * factors.to(output.device)).sum())
    return torch.autograd.grad(totals, leaves, allow_unused=True, materialize_grads=True)


def test_gradients_are_those_of_the_reference(case):
    module, reference, inputs, operator = case
    leaves = tree_map(with_grad, copied(inputs))
    try:
        outputs = reference(*copied(leaves))
    except RuntimeError as error:
        pytest.skip(f"the reference has no gradient: {error}")
    weights = [weight for weight in reference.parameters() if weight.requires_grad]
    expected = gradients(outputs, [leaves, weights])
    leaves = tree_map(with_grad, copied(inputs))
    own = [weight for weight in module.parameters() if weight.requires_grad]
    operator.gradients_refusal = "the kernel of the gradients was not called"
    assert_close(gradients(module(*copied(leaves)), [leaves, own]), expected)
    if operator.has_gradient_kernel:
        assert operator.gradients_refusal == ""
    if operator.differentiable:
        op, values = operator_call(module, inputs, operator)
        values = tree_map(with_grad, values)
        buffers = [b for b in reference.buffers() if b.is_floating_point()]
        actual = gradients(op(*values), values)
        # The operator differentiates buffers, too; they come last.
        assert_close(actual[: len(actual) - len(buffers)], expected)


def test_opcheck(case):
    """Schema, fake implementation, autograd registration and AOT dispatch, with and without grad."""
    module, _, inputs, operator = case
    op, values = operator_call(module, inputs, operator)
    torch.library.opcheck(op, values)
    # opcheck differentiates the sum of all outputs, which must be floating numbers.
    outputs = [o for o in tree_leaves(op(*copied(values))) if isinstance(o, torch.Tensor)]
    if operator.differentiable and all(output.is_floating_point() for output in outputs):
        torch.library.opcheck(op, tree_map(with_grad, values))
