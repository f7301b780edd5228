"""The least time that a card allows for a problem, where the card is not here."""

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.hardware.peaks import PEAKS
from kernelwright.tools.timing.card_estimates import (
    LAUNCH_BOUND,
    LAUNCH_MILLISECONDS,
    estimate_cards,
)


def card_of(name):
    [estimate] = estimate_cards(find_by_name("fused silu"), [name])
    return estimate.card, estimate.stands_for


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("a100", "A100 SXM4 80GB"), ("h100", "H100 SXM5 HBM3"), ("H100 PCIe", "H100 PCIe"), ("h200", "H200"),
        ("l4", "L4"), ("4090", "GeForce RTX 4090"), ("rtx4090", "GeForce RTX 4090"), ("b200", "B200"),
        ("mi300x", "Instinct MI300X"), ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"), ("sm_90", "H200"),
        ("gfx942", "Instinct MI300X"), ("9.0", "H200"),
    ],
)  # fmt: skip
def test_a_card_is_found_by_what_people_call_it_and_a_target_stands_for_its_first_card(name, card):
    assert card_of(name) == (card, "")


def test_a_card_without_tabulated_peaks_is_told_by_name_beside_the_card_that_is_taken():
    assert card_of("a40") == ("A10", "a40")


def test_a_copying_problem_is_bound_by_its_bytes_over_the_memory_rate():
    problem = find_by_name("fused silu")
    [estimate] = estimate_cards(problem, ["l4"])
    rate = next(peak for peak in PEAKS if peak.gpu == "L4").bytes_per_second
    assert estimate.roofline.bound == "memory"
    assert estimate.roofline.milliseconds == pytest.approx(1e3 * estimate.roofline.bytes / rate)
    assert estimate.roofline.bytes > 0
    assert estimate.source


def test_a_faster_card_takes_less_and_a_product_is_bound_by_its_operations():
    slow, fast = estimate_cards(find_by_name("matmul"), ["l4", "h200"])
    assert slow.roofline.bound == fast.roofline.bound == "compute"
    assert fast.roofline.milliseconds < slow.roofline.milliseconds
    assert fast.roofline.operations == slow.roofline.operations > 0


def test_a_small_problem_is_bounded_by_a_launch_and_not_by_nanoseconds():
    small = find_by_name("fused silu").with_sizes({"rows": 2, "columns": 8})
    [estimate] = estimate_cards(small, ["h200"])
    assert (estimate.roofline.bound, estimate.roofline.milliseconds) == (
        LAUNCH_BOUND,
        LAUNCH_MILLISECONDS,
    )


def test_each_card_is_estimated_once_in_the_order_asked_for():
    problem = find_by_name("fused silu")
    cards = [
        estimate.card for estimate in estimate_cards(problem, ["h200", "a100", "sm_90", "A100"])
    ]
    assert cards == ["H200", "A100 SXM4 80GB"]
