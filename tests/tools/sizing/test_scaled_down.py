"""A smaller size that is like the problem's own: what is equal stays equal, what is a multiple stays one."""

from kernelwright.tools.problem import Problem
from kernelwright.tools.sizing.scaled_down import scaled_down
from kernelwright.tools.sizing.selection import select_sizes

SOURCE = """
import torch
rows = ROWS
columns = COLUMNS
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 BODY
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return []
"""
SMALL = (("columns", 37), ("rows", 35))


def problem(rows: int, columns: int, body: str = "") -> Problem:
    text = SOURCE.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)).replace("BODY", body)
    return Problem(name="doubled", source=text)


def sizes_of(found) -> list[tuple[int, int]]:
    return [(one.sizes["rows"], one.sizes["columns"]) for one in found]


def test_equal_extents_stay_equal_and_ratios_stay_what_they_are():
    assert sizes_of(scaled_down(problem(4096, 4096), SMALL)) == [(256, 256)]
    assert sizes_of(scaled_down(problem(2048, 8192), SMALL)) == [(128, 512)]
    assert sizes_of(scaled_down(problem(4608, 768), SMALL)) == [(576, 96)]


def test_an_extent_of_a_few_stays_at_least_two_and_odd_numbers_have_nothing_like_them():
    assert sizes_of(scaled_down(problem(3, 1 << 20), SMALL)) == [(2, 32768)]
    assert scaled_down(problem(4097, 8191), SMALL) == ()


def test_a_size_at_which_the_reference_raises_is_not_taken():
    shaped = problem(4096, 4096, "if x.shape[0] % 512 == 0 else x.reshape(-1, 7, 512)")
    assert sizes_of(scaled_down(shaped, SMALL)) == []


def test_a_verdict_without_a_gpu_tries_it_and_one_with_few_sizes_or_on_a_gpu_does_not():
    def tried(device: str, count: int) -> bool:
        selection = select_sizes(problem(4096, 4096), "x = 1", device, 7 << 16, count)
        return any("divided by" in size.why for size in selection.others)

    assert tried("cpu", 8)
    assert not tried("cpu", 3)
    assert not tried("cuda:0", 8)
