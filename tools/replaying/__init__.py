"""Executes traces on real tensors in a sandboxed process: on a CPU under Triton's interpreter, on a
GPU with compiled kernels (docs/explanation/trust.md).

`replayer` is the judge's side, `service` the process's. This code is trusted; traces and kernels
are not. Nothing here compares or decides.

Example: the candidate's host code `out = torch.empty_like(x); k[(4,)](x, out, 1000, BLOCK=256);
return out`, traced at x of shape (1000,), is replayed as follows. Tensors have numbers in the
trace; a table maps numbers to real tensors.

    trace (values)                                    replay (table)
    inputs: t0                                        {0: x}, the judge's memory
    Operator aten.empty_like(t0) -> t1                {0: x, 1: 1,000 poisoned floats between margins}
    Launch k, grid (4, 1, 1), args x=t0, out=t1, ...  interpreter or driver writes t1
    outputs: t1                                       copied to the judge's output tensor, if shape and dtype agree

The judge compares that output tensor. Poison that is still there was not written by the kernel;
changed margins were written outside of t1.
"""
