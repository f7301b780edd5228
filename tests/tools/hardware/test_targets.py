"""The targets, their names and how full a kernel makes them."""

from __future__ import annotations

import pytest

from kernelwright.tools.hardware.targets import TARGETS, occupancy, parse_target


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("sm_90", "sm_90"), ("SM90", "sm_90"), ("90", "sm_90"), ("9.0", "sm_90"), ("sm_90a", "sm_90"),
        ("h100", "sm_90"), ("H200", "sm_90"), ("NVIDIA H200", "sm_90"), ("NVIDIA H100 80GB HBM3", "sm_90"),
        ("a100", "sm_80"), ("NVIDIA A100-SXM4-80GB", "sm_80"), ("A10G", "sm_86"), ("rtx 3090", "sm_86"),
        ("rtx4090", "sm_89"), ("NVIDIA GeForce RTX 4090", "sm_89"), ("L4", "sm_89"), ("L40S", "sm_89"),
        ("b200", "sm_100"),
        ("sm_100", "sm_100"), ("10.0", "sm_100"), ("rtx5090", "sm_120"), ("120", "sm_120"), ("mi300x", "gfx942"),
        ("gfx942", "gfx942"), ("AMD Instinct MI300X", "gfx942"),
    ],
)  # fmt: skip
def test_a_target_is_found_by_any_of_its_names(name: str, target: str) -> None:
    assert parse_target(name).name == target


@pytest.mark.parametrize("name", ["", "sm_70", "v100", "tpu", "sm_", "900", "gfx90a"])
def test_an_unknown_target_is_one_line_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match="unknown target") as raised:
        parse_target(name)
    text = str(raised.value)
    assert "\n" not in text
    assert all(known in text for known in TARGETS)


def test_shared_memory_a_block_is_what_the_driver_allows() -> None:
    limits = {name: target.shared_per_block for name, target in TARGETS.items()}
    assert limits == {
        "sm_80": 166912,
        "sm_86": 101376,
        "sm_89": 101376,
        "sm_90": 232448,
        "sm_100": 232448,
        "sm_120": 101376,
        "gfx942": 65536,
    }


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "expected", "limit"),
    [
        (32, 0, 4, 1.0, "warps"),
        (64, 0, 4, 0.5, "registers"),
        (128, 0, 8, 0.25, "registers"),
        (255, 0, 8, 0.125, "registers"),
        (16, 0, 1, 0.5, "blocks"),
        (32, 100 * 1024, 8, 0.25, "shared"),
        (32, 232448, 8, 0.125, "shared"),
        (32, 232449, 8, 0.0, "shared"),
        (0, 0, 16, 1.0, "warps"),
        (168, 0, 12, 0.1875, "registers"),
    ],
)
def test_occupancy_on_hopper_is_the_calculators(
    registers: int, shared: int, warps: int, expected: float, limit: str
) -> None:
    assert occupancy(registers, shared, warps, TARGETS["sm_90"]) == (expected, limit)


def test_occupancy_follows_the_target() -> None:
    assert occupancy(40, 0, 4, TARGETS["sm_89"]) == (1.0, "warps")
    assert occupancy(32, 0, 1, TARGETS["sm_86"]) == (pytest.approx(16 / 48), "blocks")
    assert occupancy(32, 40 * 1024, 4, TARGETS["sm_89"]) == (pytest.approx(8 / 48), "shared")
    assert occupancy(128, 0, 4, TARGETS["gfx942"]) == (0.5, "registers")


def test_a_block_without_warps_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one warp"):
        occupancy(32, 0, 0, TARGETS["sm_90"])


def test_tritons_target_is_made_for_both_makers() -> None:
    assert (TARGETS["sm_90"].gpu_target().arch, TARGETS["sm_90"].gpu_target().backend) == (
        90,
        "cuda",
    )
    assert (TARGETS["gfx942"].gpu_target().arch, TARGETS["gfx942"].gpu_target().warp_size) == (
        "gfx942",
        64,
    )
