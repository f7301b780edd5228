"""Choices of host code are noted while it runs. Those that a problem fixes are excused; others need two outcomes."""

from __future__ import annotations

import pytest

from kernelwright.tools.tracing.host_code.coverage import one_sided_choices
from kernelwright.tools.tracing.host_code.recording import RECORDER, ChoiceRecorder, compiled


class Tensor:
    """What host code asks of a tensor."""

    dtype, ndim, is_cuda, requires_grad = "float32", 2, True, False

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def is_contiguous(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return 256 * self.shape[0]


CLASS = """
TABLE = {0: 0.5}
COUNTS = [0]


class Tally:
    n = 0


SHARES = [1.0] * 96 + [0.5]


class ModelNew:
    def __init__(self, width):
        self.width = width
        self.calls = self.ndim = 0
        self.seen = []

    def forward(self, x, bias=None):
        rows, columns = x.shape
        self.calls += 1
        BODY
        return share
"""
SHAPES = ((3, 64), (5, 127), (7, 2), (1, 33), (48, 96))


def unseen(body: str, widths: tuple[int, ...] = (8,)) -> list[tuple[str, str]]:
    text = CLASS.replace("BODY", body.replace("\n", "\n        "))
    recorder = ChoiceRecorder()
    scope = {RECORDER: recorder}
    with recorder.counted(True):
        exec(compiled(text, "candidate.py", recorder), scope)
    for width in widths:
        model = scope["ModelNew"](width)
        for shape in SHAPES:
            with recorder.counted(True):
                model.forward(Tensor(*shape))
    choices = one_sided_choices(text, recorder.outcomes_by_choice(), [[width] for width in widths])
    return [(choice.text, choice.never) for choice in choices]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("share = 0.5 if str(columns)[-2:] == '00' else 1.0", ("str(columns)[-2:] == '00'", "true")),
        ("share = TABLE.get(rows * columns % 8191, 1.0)", ("TABLE.get(rows * columns % 8191, 1.0)", "another value")),
        ("share = SHARES[columns * 2 % 50]", ("SHARES[columns * 2 % 50]", "another value")),
        ("share = 1.0 - 0.5 * (columns >> 12 & 1)", ("columns >> 12", "another value")),
        ("share = 1.0\nif x.data_ptr() % 256: share = 0.5", ("x.data_ptr() % 256", "true")),
        ("share = 1.0 - 0.5 * (self.calls > 50)", ("self.calls > 50", "true")),
        ("share = x.requires_grad and 0.5 or 1.0", ("x.requires_grad", "true")),
        ("share = 1.0\nwhile columns > 10_000: columns = 0", ("columns > 10000", "true")),
        ("share = [1.0, 0.5][callable(x)]", ("callable(x)", "true")),
        ("share = min([1.0, *(0.5 for n in x.shape if n > 500)])", ("n > 500", "true")),
        ("match columns:\n    case 1000: share = 0.5\n    case _: share = 1.0", ("match_case", "taken")),
        ("try: share = SHARES[columns]\nexcept IndexError: share = 1.0\nif rows > 9: share = 1", None),
        ("COUNTS[0] += 1\nshare = 0.5 if COUNTS[0] > 99 else 1.0", ("COUNTS[0] > 99", "true")),
        ("self.ndim += 1\nshare = 0.5 if self.ndim > 99 else 1.0", ("self.ndim > 99", "true")),
        ("Tally.n += 1\nshare = 0.5 if Tally.n > 99 else 1.0", ("Tally.n > 99", "true")),
        ("self.seen.append(1)\nshare = 0.5 if len(self.seen) > 99 else 1.0", ("len(self.seen) > 99", "true")),
        ("try: share = 1.0 / (columns != 999)\nexcept ZeroDivisionError: share = 0.5", ("columns != 999", "false")),
    ],
    ids=range(17),
)  # fmt: skip
def test_a_choice_with_one_outcome_is_told(body, told):
    found = unseen(body)
    if told is None:
        assert not found
    elif told[0] == "match_case":
        assert [never for _, never in found] == ["taken"]
    else:
        assert told in found


@pytest.mark.parametrize(
    "body",
    [
        "share = 1.0 if x.dtype == 'float32' else 0.5",
        "share = {'float32': 1.0, 'float16': 0.5}[x.dtype]",
        "if x.ndim != 2 or columns > 10_000: raise ValueError('two dimensions')\nshare = 1.0",
        "assert columns < 10_000\nshare = 1.0",
        "if not x.is_contiguous(): x = x.contiguous()\nshare = 1.0",
        "share = 1.0 if bias is None else 0.5",
        "if columns == 0: return 0.0\nshare = 1.0",
        "warps = 8 if columns > 4096 else 4\ndict(num_warps=warps)\nshare = 1.0",
        "share = 1.0 if rows > 4 else 0.5",
        "share = 1.0 if self.width == 8 else 0.5",
        "device = x.is_cuda\nshare = 1.0 if device else 0.5",
    ],
)
def test_what_a_problem_fixes_and_what_only_refuses_is_excused(body):
    assert not unseen(body)


def test_an_argument_of_the_constructor_that_varies_is_no_excuse():
    body = "share = 0.5 if self.width == 4097 else 1.0"
    assert not unseen(body, widths=(8,))
    assert unseen(body, widths=(8, 16)) == [("self.width == 4097", "true")]


def test_outcomes_of_a_size_that_raises_or_is_not_replayed_do_not_count():
    recorder = ChoiceRecorder()
    scope = {RECORDER: recorder}
    exec(compiled("def f(n):\n    return 0.5 if n > 9 else 1.0", "candidate.py", recorder), scope)
    with recorder.counted(True):
        scope["f"](1)
    with recorder.counted(False):
        scope["f"](10)
    assert recorder.outcomes_by_choice() == [2]


def test_an_expression_of_thousands_of_terms_is_recorded():
    text = "total = 1" + " + 1" * 2_000 + "\nshare = 1.0 if total > 9 else 0.5\n"
    recorder = ChoiceRecorder()
    with recorder.counted(True):
        exec(compiled(text, "candidate.py", recorder), {RECORDER: recorder})
    assert recorder.outcomes_by_choice() == [1]
