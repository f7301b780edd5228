"""Two modules in one text."""

from __future__ import annotations

import json
import math

from kernelwright.agent.candidates.joined_text import joined_text

FIRST = """from __future__ import annotations
import math


def block(n):
    return min(n, size())


def size():
    return 64


def half(n):
    return n // 2


class ModelNew:
    def forward(self, n):
        return block(n) + half(n)
"""
SECOND = FIRST.replace("return 64", "return 16").replace("self, n", "self, size")
SECOND = SECOND.replace("block(n) + half(n)", "block(size) + half(n=size)")


def test_equal_definitions_stay_once_and_others_keep_their_own_meaning():
    text = joined_text(FIRST, SECOND, {"ModelNew": "First"}, {"ModelNew": "Second"}, "other_")
    names: dict[str, object] = {}
    exec(compile(text, "joined", "exec"), names)
    first, second = names["First"], names["Second"]
    assert first().forward(100) == 64 + 50
    assert second().forward(100) == 16 + 50
    assert second().forward(other_size=100) == 16 + 50
    assert text.count("def half") == 1
    assert text.count("import annotations") == 1
    # `block` is equal in both texts, and calls a function that is not.
    assert "def other_block" in text


def test_imports_that_differ_keep_their_meaning_in_each_text():
    first = "import json\nfrom math import pi, tau\n\n\nclass ModelNew:\n    facts = json, pi\n"
    second = "import json\nimport json\nfrom cmath import pi, tau as pi\n\n\nclass ModelNew:\n    facts = json, pi\n"
    text = joined_text(first, second, {"ModelNew": "First"}, {"ModelNew": "Second"}, "other_")
    names: dict[str, object] = {}
    exec(compile(text, "joined", "exec"), names)
    assert names["First"].facts == (json, math.pi)
    assert names["Second"].facts == (json, math.tau)
