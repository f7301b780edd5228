"""The catalogue's references run, at full sizes and at their CPU sizes, and cannot be passed by an answer that
computes nothing.
"""

import ast

import pytest
import torch

from kernelwright.agent.problems.finding import catalogue, find_by_name
from kernelwright.tools.manifests.manifest import load_manifest
from kernelwright.tools.problem import Problem, check_form, module_integers
from kernelwright.tools.references.dry_run import measure_cost, run_once

FAMILIES = {
    "elementwise",
    "activations",
    "row_reductions",
    "softmax",
    "norms",
    "matmul",
    "attention",
    "losses",
    "scans",
    "pooling",
    "convolution",
    "embedding",
    "quantisation",
}
PROBLEMS = catalogue()
SLOWEST_MS, FASTEST_MS = 2.5, 0.015
BYTES_A_SECOND, FP32_A_SECOND, FP16_A_SECOND = 4.8e12, 67e12, 989e12
"""Peaks of an H200, as its data sheet has them."""


@pytest.fixture(params=PROBLEMS, ids=lambda p: p.name)
def problem(request: pytest.FixtureRequest) -> Problem:
    return request.param


def test_the_catalogue_covers_every_family_with_some_problems_held_out():
    assert len(PROBLEMS) >= 40
    assert {p.family for p in PROBLEMS} == FAMILIES
    held_out = [p for p in PROBLEMS if "held_out" in p.tags]
    assert 8 <= len(held_out) <= 12
    assert len({p.family for p in held_out}) >= 8


def test_names_hashes_and_titles_are_all_different():
    for facts in (
        [p.name for p in PROBLEMS],
        [p.hash for p in PROBLEMS],
        [p.title for p in PROBLEMS],
    ):
        assert all(facts)
        assert len(set(facts)) == len(facts)


def test_a_reference_has_the_form_and_says_its_cpu_sizes(problem: Problem):
    check_form(problem.source)
    integers = module_integers(problem.source)
    assert problem.cpu_sizes
    assert set(problem.cpu_sizes) <= set(integers)
    assert all(small < integers[name] for name, small in problem.cpu_sizes.items())
    assert any(small % 2 for small in problem.cpu_sizes.values()), (
        "no odd size: masks are never tried"
    )


def test_a_reference_runs_at_its_cpu_sizes_and_is_finite(problem: Problem):
    outputs = run_once(problem.with_sizes(problem.cpu_sizes))
    assert outputs
    assert all(bool(torch.isfinite(o.double()).all()) for o in outputs)


def test_a_reference_is_small_at_its_cpu_sizes(problem: Problem):
    weight = measure_cost(problem.with_sizes(problem.cpu_sizes))
    assert weight.elements < 30_000
    assert weight.operations < 2_000_000


def test_full_sizes_take_a_kernel_between_20_microseconds_and_2_milliseconds_on_an_h200(
    problem: Problem,
):
    weight = measure_cost(problem)
    width = {"fp16": 2}.get(next((t for t in problem.tags if t == "fp16"), ""), 4)
    rate = FP16_A_SECOND if width == 2 else FP32_A_SECOND
    milliseconds = 1000 * max(
        weight.elements * width / BYTES_A_SECOND, _products(problem, weight.operations) / rate
    )
    assert FASTEST_MS < milliseconds < SLOWEST_MS


def _products(problem: Problem, operations: int) -> int:
    return operations if problem.family in ("matmul", "attention", "convolution") else 0


@pytest.mark.parametrize("fill", ["zeros", "constant"])
def test_an_answer_that_computes_nothing_does_not_pass_allclose(problem: Problem, fill: str):
    for output in run_once(problem.with_sizes(problem.cpu_sizes)):
        value = output.double()
        lazy = (
            torch.zeros_like(value)
            if fill == "zeros"
            else torch.full_like(value, value.mean().item())
        )
        if fill == "constant" and value.numel() == 1:
            continue
        assert not torch.allclose(lazy, value, rtol=1e-2, atol=1e-2)


def test_the_answer_for_other_inputs_does_not_pass_allclose(problem: Problem):
    one, other = (_outputs(problem, seed) for seed in (1, 2))
    assert not all(
        torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-2)
        for a, b in zip(one, other, strict=True)
    )


def test_no_input_is_its_own_answer(problem: Problem):
    module: dict = {}
    exec(compile(problem.with_sizes(problem.cpu_sizes).source, problem.name, "exec"), module)
    torch.manual_seed(3)
    model, inputs = module["Model"](*module["get_init_inputs"]()), module["get_inputs"]()
    outputs = _flat(model(*inputs))
    for given in inputs:
        for got in outputs:
            same = given.shape == got.shape and given.dtype == got.dtype
            assert not (same and torch.allclose(given.double(), got.double(), rtol=1e-2, atol=1e-2))


def test_weights_make_a_difference(problem: Problem):
    """Affine parameters at ones and zeros could be left out; ours are drawn."""
    module: dict = {}
    exec(compile(problem.with_sizes(problem.cpu_sizes).source, problem.name, "exec"), module)
    model = module["Model"](*module["get_init_inputs"]())
    for name, parameter in model.named_parameters():
        flat = bool((parameter == parameter.flatten()[0]).all())
        assert not flat, f"{name} is constant when it is made"


def test_references_do_not_read_sizes_from_inside_the_model(problem: Problem):
    tree = ast.parse(problem.source)
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef))
    for function in (f for f in model.body if isinstance(f, ast.FunctionDef)):
        own = {a.arg for a in function.args.args} | {
            n.id
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        read = {
            n.id
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }
        assert not (read - own) & set(module_integers(problem.source))


def _outputs(problem: Problem, seed: int) -> list[torch.Tensor]:
    module: dict = {}
    exec(compile(problem.with_sizes(problem.cpu_sizes).source, problem.name, "exec"), module)
    torch.manual_seed(0)
    model = module["Model"](*module["get_init_inputs"]())
    torch.manual_seed(seed)
    return _flat(model(*module["get_inputs"]()))


def _flat(output: object) -> list[torch.Tensor]:
    return [o.detach() for o in (output if isinstance(output, tuple) else (output,))]


@pytest.mark.parametrize(
    ("said", "name"),
    [("rope", "rope"), ("RoPE", "rope"), ("rotary embedding", "rope"), ("rotary position embedding kernel", "rope"),
    ("conv2d", "conv2d"), ("2d convolution", "conv2d"), ("depthwise conv2d", "depthwise_conv2d"), ("conv1d", "conv1d")],
)  # fmt: skip
def test_rope_and_conv2d_are_found_under_the_names_that_people_use(said: str, name: str):
    assert find_by_name(said).name == name


def test_the_manifests_of_the_catalogue_are_shipped():
    missing = [p.name for p in PROBLEMS if (kept := load_manifest(p)) is None or kept.failure]
    assert not missing, (
        "python -m kernelwright.tools.manifests.manifest --suite catalogue computes them"
    )
