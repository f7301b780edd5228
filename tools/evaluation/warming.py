"""Warms a zygote up before its first fork, so that no candidate's process pays for it."""

from __future__ import annotations


def warm() -> None:
    """Traces one candidate and compiles its kernel.

    Restores the functions of Triton that tracing replaces.
    """
    import triton
    import triton.compiler
    import triton.compiler.compiler as compiler
    import triton.testing
    from triton.runtime.autotuner import Autotuner

    from kernelwright.tools.tracing import tracer

    originals = [(owner, "compile", owner.compile) for owner in (triton, triton.compiler, compiler)]
    originals += [
        (Autotuner, "run", Autotuner.run),
        (triton.testing, "do_bench", triton.testing.do_bench),
    ]
    originals += [(triton.testing, "do_bench_cudagraph", triton.testing.do_bench_cudagraph)]
    tracer.warm()
    for owner, name, value in originals:
        setattr(owner, name, value)
    from kernelwright.tools.compiling import worker

    worker.warm()
