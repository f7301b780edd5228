"""The checker of readability on a kernel that breaks each rule."""

from __future__ import annotations

from bench.draft_readability import findings_of

FAULTY = """
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_pointer, a_pointer, b_pointer, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_pointer + at, at < n)
    x_2 = tl.load(x_pointer + at, at < n)
    scale = tl.cast(n, tl.float64)
    tl.store(a_pointer + at, x + x_2 * scale, at < n)
    tl.store(b_pointer + at, x + x_2 * scale, at < n)

class ModelNew:
    def forward(self, x):
        a = torch.empty((4,))
        b = torch.empty((4,))
        add_kernel[(1,)](x, a, b, 4, BLOCK=4)
        return a
"""


def test_each_rule_names_its_place():
    rules = [finding.rule for finding in findings_of(FAULTY)]
    assert sorted(rules) == [
        "dead output",
        "duplicate load",
        "equal store",
        "float64 scalar",
        "numbered name",
    ]
