# problem: fused_softmax
# odd: CUDA graph over static buffers, inputs copied in
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    out = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * columns + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def launch(x: torch.Tensor, out: torch.Tensor) -> None:
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)


class ModelNew(nn.Module):
    """One graph for each shape and dtype. Every call copies its input in and its output out."""

    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        if not x.is_cuda or not torch.cuda.is_available():
            out = torch.empty_like(x)
            launch(x, out)
            return out
        key = (tuple(x.shape), x.dtype, x.device)
        if key not in self.graphs:
            self.graphs[key] = self.record(x)
        graph, static_x, static_out = self.graphs[key]
        static_x.copy_(x)
        graph.replay()
        return static_out.clone()

    @staticmethod
    def record(x: torch.Tensor):
        static_x, static_out = torch.empty_like(x), torch.empty_like(x)
        static_x.copy_(x)
        # Compiles outside of the capture, on a stream of its own as torch asks.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            launch(static_x, static_out)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(static_x, static_out)
        return graph, static_x, static_out
