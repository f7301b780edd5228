"""Errors that say that there is no memory left, whichever library raised them."""

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import out_of_memory
from kernelwright.tools.tensor_memory import found_no_memory

CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


class Unreadable(RuntimeError):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "no_memory"),
    [
        (MemoryError(), True),
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError(CUBLAS), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 1 byte"
            ),
            True,
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`"), False),
        (ValueError(CUBLAS), False),
        (Unreadable(), False),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, BaseException) else str(one),
)
def test_a_lack_of_memory_is_told_by_the_error(error, no_memory):
    assert found_no_memory(error) is no_memory
    assert out_of_memory(error) is no_memory


def test_a_real_lack_of_memory_on_a_cpu_is_one():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert found_no_memory(raised.value)
