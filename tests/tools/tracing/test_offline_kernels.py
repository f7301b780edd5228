"""What the offline compile says of a kernel: its true specialisation, resources, instructions, configs."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.tools.report import Fault


def test_a_softmax_compiles_with_its_true_specialisation(offline: Any) -> None:
    result = offline.compiled(offline.softmax_source)
    assert result.failure is None
    assert (result.tensors, result.mode) == ("fake", "jit")
    (kernel,) = result.kernels
    assert kernel.name == "softmax_kernel"
    assert kernel.signature == {
        "x_ptr": "*fp32:16",
        "y_ptr": "*fp32:16",
        "columns": "i32:16",
        "stride": "i32:16",
        "BLOCK": "constexpr",
    }
    assert kernel.config["BLOCK"] == 4096
    assert (kernel.grid, kernel.launches, kernel.warps) == ((4096, 1, 1), 1, 8)
    assert kernel.vector_bits == 128
    assert kernel.registers is not None
    assert 20 <= kernel.registers <= 56
    assert kernel.spills == 0
    assert kernel.occupancy is not None
    assert kernel.occupancy >= 0.5
    assert "ex2.approx.f32" in kernel.approximate
    assert result.census.launches == {"softmax_kernel": 1}
    assert result.census.compute_ops == {}


def test_several_targets_make_a_portability_matrix(offline: Any) -> None:
    names = ["h200", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120", "mi300x"]
    results = offline.matrix(offline.softmax_source, names)
    assert [r.target for r in results] == [
        "sm_90",
        "sm_80",
        "sm_86",
        "sm_89",
        "sm_100",
        "sm_120",
        "gfx942",
    ]
    assert all(r.passed for r in results)
    assert all(r.kernels[0].registers for r in results)
    assert len({r.kernels[0].hash for r in results}) == 7


@pytest.mark.parametrize(
    ("precision", "types", "tensor_core"),
    [("tf32", ("tf32",), "wgmma"), ("ieee", (), "")],
)
def test_the_precision_of_a_product_is_read_from_its_instructions(
    offline: Any, precision: str, types: tuple[str, ...], tensor_core: str
) -> None:
    (kernel,) = offline.compiled(
        offline.matmul(precision=precision), offline.matmul_problem
    ).kernels
    assert (kernel.mma_types, kernel.tensor_core) == (types, tensor_core)


def test_tensor_cores_of_other_targets_are_named(offline: Any) -> None:
    results = offline.matrix(offline.matmul(), ["sm_80", "sm_100"], offline.matmul_problem)
    assert [(r.kernels[0].tensor_core, r.kernels[0].mma_types) for r in results] == [
        ("mma", ("tf32",)),
        ("tcgen05", ("tf32",)),
    ]


AUTOTUNE = """@triton.autotune(
    configs=[
        triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_warps=4),
        triton.Config({"BM": 64, "BN": 32, "BK": 32}, num_warps=4),
        triton.Config({"BM": 32, "BN": 32, "BK": 64}, num_warps=4, num_stages=16),
    ],
    key=["M", "N", "K"],
)"""


def test_every_autotune_config_is_compiled_and_none_is_measured(offline: Any) -> None:
    result = offline.compiled(offline.matmul("", decorator=AUTOTUNE), offline.matmul_problem)
    assert result.failure is None, result.failure
    assert [(k.config["BM"], k.config["BK"]) for k in result.kernels] == [
        (32, 32),
        (64, 32),
        (32, 64),
    ]
    assert all(k.autotuned for k in result.kernels)
    assert result.census.launches == {"matmul_kernel": 1}
    assert [k.launches for k in result.kernels] == [1, 0, 0]
    assert any("left a config out" in note and "shared memory" in note for note in result.notes)


def test_configs_that_all_ask_for_too_much_are_a_fault(offline: Any) -> None:
    config = (
        '@triton.autotune(configs=[triton.Config({"BM": 32, "BN": 32, "BK": 64}, num_stages=s) for s in (16, '
        '17)], key=["M"])'
    )
    failure = offline.compiled(offline.matmul("", decorator=config), offline.matmul_problem).failure
    assert failure is not None
    assert failure.fault is Fault.RESOURCES


def test_heuristics_are_part_of_the_specialisation(offline: Any) -> None:
    heuristics = '@triton.heuristics({"BM": lambda args: 32 if args["M"] % 32 == 0 else 16})'
    (kernel,) = offline.compiled(
        offline.matmul("BN=32, BK=32", decorator=heuristics), offline.matmul_problem
    ).kernels
    assert kernel.config["BM"] == 32
    assert kernel.grid == (32, 32, 1)


def test_each_specialisation_is_compiled_once(offline: Any) -> None:
    body = """
    def forward(self, x):
        y = torch.empty_like(x)
        for _ in range(3):
            softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
        softmax_kernel[(7,)](x, y, 1, x.stride(0), BLOCK=16)
        return y
    """
    result = offline.compiled(offline.softmax(body))
    assert [(k.launches, k.config["BLOCK"]) for k in result.kernels] == [(3, 4096), (1, 16)]
    assert result.kernels[1].signature["columns"] == "constexpr"
    assert result.census.launches == {"softmax_kernel": 4}


def test_shared_memory_over_the_limit_is_found_before_any_gpu(offline: Any) -> None:
    result = offline.compiled(
        offline.matmul("BM=32, BN=32, BK=64, num_warps=4, num_stages=16"), offline.matmul_problem
    )
    assert result.failure is not None
    assert result.failure.fault is Fault.RESOURCES
    assert "232448" in result.failure.message
    assert result.kernels[0].shared is not None
    assert result.kernels[0].shared > 232448
