"""What is wrong with a candidate, and where, from the offline compile."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.tools.report import Cheat, Fault


def test_an_error_has_its_line_column_and_caret(offline: Any) -> None:
    source = offline.softmax_source.replace("tl.exp(x -", "tl.exponential(x -")
    failure = offline.compiled(source).failure
    assert failure is not None
    assert failure.fault is Fault.COMPILE
    assert failure.where is not None
    assert (
        source.splitlines()[failure.where.line - 1]
        == failure.where.text
        == "    e = tl.exponential(x - tl.max(x, axis=0))"
    )
    line, caret = failure.where.caret().splitlines()
    assert line[caret.index("^") :].startswith("tl.exponential")
    assert "exponential" in failure.message
    assert "softmax_kernel" in failure.message


def test_an_error_in_a_called_function_is_placed_there(offline: Any) -> None:
    source = offline.softmax_source.replace(
        "@triton.jit\ndef softmax_kernel",
        "@triton.jit\ndef inner(v):\n    return tl.exp(v) + nowhere\n\n\n@triton.jit\ndef softmax_kernel",
    ).replace("e = tl.exp(x - tl.max(x, axis=0))", "e = inner(x)")
    failure = offline.compiled(source).failure
    assert failure is not None
    assert failure.where is not None
    assert failure.where.text == "    return tl.exp(v) + nowhere"
    assert failure.where.column == 23


def test_a_compile_error_that_is_caught_is_still_told(offline: Any) -> None:
    body = """
    def forward(self, x):
        y = torch.empty_like(x)
        try:
            softmax_kernel[(1,)](x, y, x.shape[1], x.stride(0), BLOCK=4095)
        except Exception:
            return torch.softmax(x, -1)
        return y
    """
    failure = offline.compiled(offline.softmax(body)).failure
    assert failure is not None
    assert failure.fault is Fault.COMPILE
    assert "power of 2" in failure.message


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("def __init__(self, size):\n    super().__init__()\ndef forward(self, x):\n    return x\n", Fault.ENTRY_POINT),
        ("def forward(self, x):\n    softmax_kernel[(1,)](x)\n", Fault.LAUNCH),
        ("def forward(self, x):\n    softmax_kernel[(1,)](x, x, 1, 1, BLOCK=16, warps=3)\n", Fault.LAUNCH),
        ("def forward(self, x):\n    y = torch.empty_like(x)\n    softmax_kernel[(1,)](x, y, 1, 1, "
        "BLOCK=16)\n    return y[7, 7, " "7]\n", Fault.RUNTIME),
        ("def forward(self, x):\n    y = torch.empty_like(x)\n    softmax_kernel[(1,)](x, y, 1, 1, "
        "BLOCK=16)\n    return " "y[0]\n", Fault.SHAPE),
        ("def forward(self, x):\n    y = torch.empty_like(x)\n    softmax_kernel[(1,)](x, y, 1, 1, "
        "BLOCK=16)\n    return " "y.half()\n", Fault.DTYPE),
        ("def forward(self, x):\n    y = torch.empty_like(x)\n    softmax_kernel[(1,)](x, y, 1, 1, "
        "BLOCK=16)\n    return y, y\n", Fault.OUTPUT),
        ("def forward(self, x):\n    y = torch.empty_like(x)\n    softmax_kernel[(1,)](x, y, 1, 1, "
        "BLOCK=16)\n    return " "y.cpu()\n", Fault.OUTPUT),
    ],
)  # fmt: skip
def test_host_code_that_fails_is_the_fault_it_is(offline: Any, body: str, fault: Fault) -> None:
    failure = offline.compiled(offline.softmax(body)).failure
    assert failure is not None
    assert failure.fault is fault, failure


def test_a_module_that_raises_is_an_import_fault_with_its_line(offline: Any) -> None:
    failure = offline.compiled(offline.softmax_source + '\n{}["missing"]\n').failure
    assert failure is not None
    assert failure.fault is Fault.IMPORT
    assert failure.where is not None
    assert failure.where.text == '{}["missing"]'


def test_a_grid_that_no_driver_takes_is_refused(offline: Any) -> None:
    body = """
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(1, 70000)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
        return y
    """
    failure = offline.compiled(offline.softmax(body)).failure
    assert failure is not None
    assert failure.fault is Fault.LAUNCH
    assert "70000" in failure.message
    assert "65535" in failure.message


def test_a_tensor_on_the_cpu_cannot_be_launched_on(offline: Any) -> None:
    body = """
    def forward(self, x):
        y = torch.empty(x.shape, device="cpu")
        softmax_kernel[(1,)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
        return y
    """
    failure = offline.compiled(offline.softmax(body)).failure
    assert failure is not None
    assert failure.fault is Fault.LAUNCH
    assert "y_ptr" in failure.message


@pytest.mark.slow
def test_an_endless_import_times_out_and_the_next_one_is_compiled(offline: Any) -> None:
    failure = offline.compiled(
        offline.softmax_source + "\nwhile True:\n    pass\n", seconds=5
    ).failure
    assert failure is not None
    assert failure.fault is Fault.TIMEOUT
    assert "importing" in failure.message
    assert offline.compiled(offline.softmax_source).failure is None


def test_a_process_that_ends_itself_is_a_crash(offline: Any) -> None:
    failure = offline.compiled(offline.softmax_source + "\nimport os\nos._exit(0)\n").failure
    assert failure is not None
    assert failure.fault is Fault.CRASH


def test_a_message_of_the_candidates_own_is_forgery(offline: Any) -> None:
    forged = (
        offline.softmax_source
        + "\nimport os, struct\nb = b'{\"result\": 7}'\nos.write(3, struct.pack('<I', len(b)) + b)\n"
    )
    failure = offline.compiled(forged).failure
    assert failure is not None
    assert (failure.fault, failure.cheat) == (Fault.CHEAT, Cheat.FORGERY)


def test_an_unknown_target_is_refused_before_anything_runs(offline: Any) -> None:
    with pytest.raises(ValueError, match="unknown target"):
        offline.matrix(offline.softmax_source, ["sm_13"])
