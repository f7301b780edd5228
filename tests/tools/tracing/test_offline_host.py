"""Host code that was written for a GPU, where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.tools.report import Fault


@pytest.mark.parametrize(
    "line",
    [
        "x = x.cuda()", 'x = x.to("cuda").cuda(0)', 'x = x.to(device="cuda", dtype=torch.float32)',
        "assert x.is_cuda and x.device.type == 'cuda'", "x = x.to(torch.cuda.current_device())",
        'y = torch.zeros(x.shape, device="cuda")',
        "assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)",
        "torch.cuda.synchronize(); assert x.get_device() == 0",
        "assert torch.cuda.get_device_properties(x.device).multi_processor_count == 132",
        "s = torch.cuda.current_stream(); s.synchronize()", "x = x.pin_memory() if not x.is_cuda else x.contiguous()",
        "assert triton.runtime.driver.active.get_current_target().arch == 90",
        "assert triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count'] == 132",
        "x = torch.nn.functional.pad(x, (0, 0))", "w = nn.Linear(4, 4).cuda(); assert w.weight.is_cuda",
    ],
)  # fmt: skip
def test_host_code_for_a_gpu_runs_without_one(offline: Any, line: str) -> None:
    body = f"""
    def forward(self, x):
        {line}
        y = torch.empty_like(x)
        with torch.cuda.device(x.device):
            softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096, num_warps=8)
        return y
    """
    result = offline.compiled(offline.softmax(body))
    assert result.failure is None, result.failure
    assert result.tensors == "fake"


def test_a_view_that_begins_off_alignment_is_specialised_as_such(offline: Any) -> None:
    body = """
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x[:, 1:], y, x.shape[1] - 1, x.stride(0), BLOCK=4096)
        return y
    """
    (kernel,) = offline.compiled(offline.softmax(body)).kernels
    assert kernel.signature["x_ptr"] == "*fp32"
    assert kernel.signature["y_ptr"] == "*fp32:16"
    assert kernel.signature["columns"] == "i32"
    assert kernel.vector_bits == 32


@pytest.mark.slow
@pytest.mark.parametrize(
    "read",
    [
        "int(x.sum().item())",
        "x[0, :2].tolist()",
        "x.abs().max() > 0 and 1",
        "len(x.nonzero())",
        "x.numpy()",
        "x.cpu().numpy()",
    ],
)
def test_host_code_that_reads_values_is_untraceable_and_its_line_is_told(
    offline: Any, read: str
) -> None:
    body = f"""
    def forward(self, x):
        y = torch.empty_like(x)
        rows = {read}
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
        return y
    """
    failure = offline.compiled(offline.softmax(body)).failure
    assert failure is not None
    assert failure.fault is Fault.UNTRACEABLE, failure
    assert failure.where is not None
    assert read in failure.where.text


def test_a_kernel_that_is_never_launched_is_none(offline: Any) -> None:
    result = offline.compiled(
        offline.softmax("def forward(self, x):\n    return torch.softmax(x, -1)\n")
    )
    assert result.failure is not None
    assert result.failure.fault is Fault.NO_KERNEL
    assert "aten._softmax.default" in result.census.compute_ops


def test_what_torch_computes_beside_the_kernel_is_listed(offline: Any) -> None:
    body = """
    def forward(self, x):
        y = torch.empty_like(x.contiguous().clone())
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
        return torch.relu(y) + 1
    """
    census = offline.compiled(offline.softmax(body)).census
    assert set(census.compute_ops) == {"aten.relu.default", "aten.add.Tensor"}
    assert "aten.clone.default" in census.layout_ops


def test_operators_of_its_own_are_stepped_into(offline: Any) -> None:
    source = offline.softmax(
        "def forward(self, x):\n    return torch.ops.mine.softmax(x)\n"
    ).replace(
        "class ModelNew",
        """@torch.library.custom_op("mine::softmax", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
    return y


@own.register_fake
def _(x):
    return torch.empty_like(x)


class ModelNew""",
    )
    result = offline.compiled(source)
    assert result.failure is None, result.failure
    assert result.census.launches == {"softmax_kernel": 1}


@pytest.mark.parametrize("layer", ["nn.GRU(8, 16, 2)", "nn.GRU(8, 8, bias=False)", "nn.LSTM(8, 16)", "nn.RNN(8, 16)",
    "nn.GRUCell(8, 16)", "nn.LSTMCell(8, 16)"])  # fmt: skip
def test_torch_s_recurrent_layers_run_without_a_gpu_beside_a_kernel(
    offline: Any, layer: str
) -> None:
    body = f"""
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        made, rest = self.layer(x[:8, :8])[:2]
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
        return y
    """
    results = offline.matrix(offline.softmax(body), ["sm_90", "sm_80"])
    assert [(result.failure, result.tensors) for result in results] == [(None, "fake")] * 2
