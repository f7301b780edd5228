"""Forms of results without data, as they are answered here and as torch itself finds them out."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import prepare_problem
from kernelwright.tools.operators.dispatch import meta_results, meta_results_mode
from kernelwright.tools.operators.operators import count_operations
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.dry_run import measure_cost, without_data
from kernelwright.tools.references.operator_costs import trace

SHAPES = ((), (1,), (4,), (3, 4), (3, 1), (1, 4), (2, 3, 4), (2, 1, 4), (0, 4))
NUMBERS = {
    "clamp": (0.0, 1.0),
    "leaky_relu": (0.1,),
    "elu": (0.5,),
    "hardtanh": (-1.0, 1.0),
    "softplus": (),
    "fill_": (2.0,),
    "normal_": (3.0, 0.5),
    "uniform_": (-1.0, 1.0),
}
OF_TENSORS = ("maximum", "minimum", "xlogy")
BINARY = (
    *OF_TENSORS,
    "add",
    "sub",
    "mul",
    "div",
    "rsub",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
    "ne",
    "clamp_min",
    "clamp_max",
)

GROUPED_ATTENTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F
LENGTH = 10


class Model(nn.Module):
    def forward(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def get_inputs():
    return [torch.randn(1, 4, LENGTH, 8), torch.randn(1, 2, LENGTH, 8), torch.randn(1, 2, LENGTH, 8)]


def get_init_inputs():
    return []
"""

DISTANCES = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.cdist(x, y)

def get_inputs():
    return [torch.randn(40, 300), torch.randn(50, 300)]

def get_init_inputs():
    return []
"""


def name_of(packet: object) -> str:
    return str(packet).rpartition(".")[2]


def operands() -> list[torch.Tensor]:
    """Of every shape in two types, and some that lie in other ways: transposed, cut, spread, last axis in front."""
    plain = [
        torch.empty(s, dtype=t, device="meta")
        for s in SHAPES
        for t in (torch.float32, torch.float16)
    ]
    base = torch.empty(6, 8, device="meta")
    image = torch.empty(2, 3, 4, 5, device="meta")
    others = [
        base.t(),
        base[:, :4],
        base[::2],
        base[0].expand(6, 8),
        image.to(memory_format=torch.channels_last),
    ]
    return [
        *plain,
        *others,
        image,
        torch.empty(3, 4, dtype=torch.int32, device="meta"),
        torch.empty(3, 4),
    ]


def form(made: torch.Tensor) -> tuple[object, ...]:
    return made.shape, made.stride(), made.dtype, made.device


def of_torch(
    packet: torch._ops.OpOverloadPacket, arguments: tuple[object, ...]
) -> tuple[object, ...] | None:
    """The form that torch gives; None where it refuses the operands."""
    try:
        return form(packet(*arguments))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def arguments_beyond_elements() -> dict[str, list[tuple[object, ...]]]:
    """Of operators that are not elementwise: some that fit, and some that torch refuses or answers in another way."""
    norm, image, wide = (
        torch.empty(s, device="meta") for s in ((2, 3, 8), (2, 6, 4, 5), (4, 2, 3, 8))
    )
    weight, six, half = (torch.empty(8, device="meta"), torch.empty(6, device="meta"), norm.half())
    left, right = torch.empty(5, 8, device="meta"), torch.empty(8, 7, device="meta")
    tensors = [
        norm,
        image,
        half,
        wide,
        norm.transpose(0, 1),
        torch.empty((), device="meta"),
        image.long(),
    ]
    along = [(t, axis) for t in tensors for axis in (0, 1, -1, 5, -9)]
    soft = [(*a, False) for a in along] + [(norm, 1, True)]
    return {
        "_softmax": soft, "_log_softmax": soft, "_safe_softmax": along, "cumsum": along,
        "tril": [(t, *d) for t in (*tensors, norm.bool()) for d in ((), (1,))],
        "triu": [(t, *d) for t in (*tensors, norm.bool()) for d in ((), (-1,))],
        "mse_loss": [(a, b, *r) for a in (norm, half) for b in (norm, half, weight) for r in ((), (0,), (2,))],
        "smooth_l1_loss": [(norm, norm, *r) for r in ((), (0,), (2, 0.5))] + [(norm, weight)],
        "native_layer_norm": [
            (x, form, w, w, 1e-5) for x in (norm, wide, half, image) for form in ([8], [3, 8], [7])
            for w in (None, weight, six)
        ],
        "native_group_norm": [
            (x, w, w, 2, 6, size, groups, 1e-5) for x in (image, image.to(memory_format=torch.channels_last), norm)
            for w in (None, six, weight) for size in (20, 19) for groups in (1, 3, 4)
        ],
        "addmm": [
            (b, x, y) for b in (six, torch.empty(7, device="meta"), torch.empty(5, 1, device="meta"))
            for x in (left, left.half(), norm) for y in (right, torch.empty(7, 8, device="meta").t(), left)
        ],
        "stack": [
            (ts, *a) for ts in ([norm, norm], [norm, half], [norm, wide], [six]) for a in ((), (1,), (-1,), (9,))
        ],
    }  # fmt: skip


ELEMENTWISE = [p for p in meta_results() if name_of(p) not in arguments_beyond_elements()]


def forms_of_all(made: object) -> tuple[object, ...]:
    return tuple(map(form, made)) if isinstance(made, tuple) else (form(made),)


@pytest.mark.parametrize("name", list(arguments_beyond_elements()))
def test_quick_answers_for_whole_tensors_are_what_torch_gives(name: str) -> None:
    packet, given = getattr(torch.ops.aten, name), 0
    for arguments in arguments_beyond_elements()[name]:
        found = meta_results()[packet](arguments, {})
        if found is None:
            continue
        given += 1
        assert forms_of_all(found) == forms_of_all(packet(*arguments)), (name, arguments)
    assert given >= 2


@pytest.mark.parametrize("packet", ELEMENTWISE, ids=name_of)
def test_every_quick_answer_is_the_form_that_torch_gives(
    packet: torch._ops.OpOverloadPacket,
) -> None:
    name, answer, given = name_of(packet), meta_results()[packet], 0
    if name in ("rand", "randn"):
        asked = {"device": torch.device("meta"), "dtype": torch.float16}
        assert form(answer(((3, 4),), asked)) == form(packet((3, 4), **asked))
        assert answer(((3, 4),), {}) is None  # not on meta
        return
    values = operands()
    for one in values:
        seconds: list[tuple[object, ...]] = [NUMBERS.get(name, ())]
        if name in BINARY:
            seconds = [
                (other,) for other in (values if name in OF_TENSORS else (*values, 2.0, 3, True))
            ]
        for second in seconds:
            found = answer((one, *second), {})
            if found is None:
                continue
            given += 1
            assert form(found) == of_torch(packet, (one, *second)), (name, form(one), second)
    assert given >= len(SHAPES)


def test_a_model_has_outputs_of_the_same_form_with_and_without_meta_results() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.GELU(), torch.nn.GroupNorm(2, 8)
    ).to("meta")
    x = torch.empty(2, 3, 9, 9, device="meta")
    for image in (x, x.to(memory_format=torch.channels_last)):
        slow = model(image) * image.mean() + 1
        with meta_results_mode()():
            quick = model(image) * image.mean() + 1
        assert form(quick) == form(slow)


def test_operands_that_do_not_fit_each_other_are_left_to_torch() -> None:
    multiply = meta_results()[torch.ops.aten.mul]
    whole = torch.empty(3, 4, device="meta")
    for shape in ((4, 3), (3,), (2, 4), (5, 1, 3)):
        other = torch.empty(shape, device="meta")
        assert multiply((whole, other), {}) is None
        assert multiply((other, whole), {}) is None


@pytest.mark.parametrize(
    ("name", "numbers", "dtype"),
    [
        ("normal_", (0.0, -1.0), torch.float32),
        ("uniform_", (1.0, -1.0), torch.float32),
        ("normal_", (0.0, 1.0), torch.int32),
        ("uniform_", (0.0, 1.0), torch.int64),
    ],
)
def test_numbers_that_torch_refuses_are_left_to_it(
    name: str, numbers: tuple[float, ...], dtype: torch.dtype
) -> None:
    packet, tensor = getattr(torch.ops.aten, name), torch.empty(3, 4, dtype=dtype, device="meta")
    assert meta_results()[packet]((tensor, *numbers), {}) is None


IMPORTS = """
import sys
import torch
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.references.input_spec import input_spec

for name in sys.argv[1:]:
    assert input_spec(find_by_name(name)).tensors == "meta"
print("torch._dynamo" in sys.modules)
"""


def test_describing_a_problem_does_not_import_dynamo() -> None:
    """Over a second of every judge's start."""
    command = [
        sys.executable,
        "-c",
        IMPORTS,
        "fused_silu",
        "fused_softmax",
        "layer_norm",
        "linear_gelu",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True)
    assert done.stdout == "False\n"


def test_weighing_a_problem_does_not_import_dynamo() -> None:
    """Nor does choosing the sizes of a verdict."""
    program = IMPORTS.replace("input_spec import input_spec", "dry_run import measure_cost")
    program = program.replace(
        'input_spec(find_by_name(name)).tensors == "meta"',
        "measure_cost(find_by_name(name)).operations",
    )
    command = [sys.executable, "-c", program, "fused_softmax", "layer_norm", "cross_entropy_loss"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True)
    assert done.stdout == "False\n"


def test_normal_numbers_are_not_drawn_where_there_are_no_values():
    with without_data():
        made = [torch.normal(0.0, 1.0, (2, 3)), torch.normal(mean=0.0, std=1.0, size=(2, 3)),
                torch.normal(torch.zeros(2, 3), 1.0), torch.randn(2, 3)]  # fmt: skip
    assert [(m.device.type, m.shape) for m in made] == [("meta", torch.Size([2, 3]))] * 4


def test_distances_weigh_what_lies_between_their_operands():
    assert measure_cost(Problem(name="distances", source=DISTANCES)).operations >= 2 * 40 * 50 * 300


def test_attention_with_grouped_keys_is_prepared_and_counted():
    problem = Problem(name="grouped", source=GROUPED_ATTENTION)
    prepared = prepare_problem(problem, "cpu", 1)
    products = 2 * 2 * 4 * 10 * 10 * 8
    assert prepared.operations is not None
    assert prepared.operations >= products
    assert measure_cost(problem).operations >= products


def test_a_formula_that_refuses_is_no_fault_of_the_operator(monkeypatch):
    from torch.utils import flop_counter

    def refuse(*_: object, **__: object) -> int:
        raise AssertionError("sdpa_flop_count: query/key/value shapes are incompatible")

    matrix = torch.randn(8, 8)
    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.mm, refuse)
    assert count_operations(lambda: matrix @ matrix).operations == 64
    assert trace(lambda: matrix @ matrix, [])[1].ops == {"mm": 1}
