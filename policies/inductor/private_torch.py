"""All private or patched functions of torch and Triton that drafting depends on.

A contract test checks the list. The patches pretend that a GPU exists. They last for the whole
process, so drafting
runs in a process of its own.
"""

from __future__ import annotations

import math
import numbers
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PRIVATE_NAMES = (
    "torch:_sym_log2",
    "torch._decomp.decompositions:_compute_scale",
    "torch._dispatch.python:enable_python_dispatcher",
    "torch._dynamo.device_interface:CudaInterface.Worker",
    "torch._dynamo.source:ConstantSource",
    "torch._inductor.choices:InductorChoices.can_fuse",
    "torch._inductor.choices:InductorChoices.can_fuse_horizontal",
    "torch._inductor.choices:InductorChoices.reduction_split_factor",
    "torch._inductor.choices:InductorChoices.score_fusion",
    "torch._inductor.choices:InductorChoices.should_use_persistent_reduction",
    "torch._inductor.codegen.simd:CantSplit",
    "torch._inductor.codegen.simd:SIMDKernel._split_iteration_ranges",
    "torch._inductor.codegen.triton:TritonKernel",
    "torch._inductor.codegen.triton:TritonOverrides",
    "torch._inductor.compile_fx:_recursive_post_grad_passes",
    "torch._inductor.config:triton.native_matmul",
    "torch._inductor.debug:DebugContext",
    "torch._inductor.dtype_propagation:DtypePropagationOpsHandler.mod",
    "torch._inductor.decomposition:select_decomp_table",
    "torch._inductor.fx_passes.reinplace:_generalized_scatter",
    "torch._inductor.fx_passes.reinplace:_inplace_generalized_scatter",
    "torch._inductor.fx_passes.reinplace:graph_call_function",
    "torch._inductor.graph:GraphLowering._update_scheduler",
    "torch._inductor.graph:GraphLowering.codegen",
    "torch._inductor.graph:GraphLowering.decide_layout_opt",
    "torch._inductor.graph:GraphLowering.init_wrapper_code",
    "torch._inductor.graph:GraphLowering.run_node",
    "torch._inductor.inductor_prims:prepare_softmax_online",
    "torch._inductor.ir:OnlineSoftmaxReduction.create",
    "torch._inductor.ir:Reduction.create",
    "torch._inductor.ir:StorageBox.has_exceeded_max_reads",
    "torch._inductor.ir:StorageBox.realize_hint",
    "torch._inductor.ir:StorageBox.should_realize_on_reuse",
    "torch._inductor.ir:as_storage_and_layout",
    "torch._inductor.kernel.conv:conv_layout",
    "torch._inductor.ir:get_fill_order",
    "torch._inductor.kernel.mm_common:use_native_matmul",
    "torch._inductor.lowering:_make_reduction_inner",
    "torch._inductor.lowering:_maybe_layout_constraints",
    "torch._inductor.lowering:lowerings",
    "torch._inductor.lowering:make_pointwise",
    "torch._inductor.lowering:register_lowering",
    "torch._inductor.lowering:to_dtype",
    "torch._inductor.lowering:pooling_size",
    "torch._inductor.lowering:needs_fallback_due_to_atomic_add_limitations",
    "torch._inductor.lowering:use_scatter_fallback",
    "torch._inductor.loop_body:LoopBody.has_op",
    "torch._inductor.ops_handler:DefaultHandler._default",
    "torch._inductor.scheduler:BaseSchedulerNode.get_read_write_buffer_accesses",
    "torch._inductor.scheduler:NopKernelSchedulerNode",
    "torch._inductor.scheduler:Scheduler.can_fuse",
    "torch._inductor.scheduler:Scheduler.shared_data_after_reordering_loop",
    "torch._inductor.sizevars:SizeVarAllocator.guard_int_seq",
    "torch._inductor.sizevars:SizeVarAllocator.guard_or_false",
    "torch._inductor.sizevars:SizeVarAllocator.statically_known_equals",
    "torch._inductor.sizevars:SizeVarAllocator.statically_known_gt",
    "torch._inductor.tiling_utils:get_pw_red_splits",
    "torch._inductor.virtualized:V.set_graph_handler",
    "torch._inductor.virtualized:ops",
    "torch._subclasses.fake_tensor:FakeTensorMode",
    "torch.fx.experimental.proxy_tensor:disable_proxy_modes_tracing",
    "torch.fx.experimental.symbolic_shapes:ShapeEnv._maybe_evaluate_static",
    "torch.fx.experimental.symbolic_shapes:ShapeEnv._set_replacement",
    "torch.fx.experimental.symbolic_shapes:ShapeEnv.create_symbol",
    "torch.fx.experimental.symbolic_shapes:ShapeEnv.create_symintnode",
    "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_expr",
    "torch.fx.passes.fake_tensor_prop:FakeTensorProp.propagate_dont_convert_inputs",
    "torch.library:register_fake",
    "torch.nn.init:_calculate_fan_in_and_fan_out",
    "torch.utils._sympy.functions:FloorDiv",
    "torch.utils._sympy.functions:Max",
    "torch.utils._sympy.functions:ModularIndexing",
    "torch.utils._sympy.functions:Identity",
    "torch.utils._sympy.interp:sympy_interp",
    "torch.utils._sympy.reference:PythonReferenceAnalysis",
    "torch.utils._triton:triton_hash_with_backend",
    "torch._subclasses.fake_tensor:init_gpu_context",
    "torch._subclasses.fake_tensor:unset_fake_temporarily",
    "triton.backends.compiler:GPUTarget",
    "triton.runtime.driver:driver.set_active",
)
"""Private attributes of torch used or replaced, as `module:attribute`."""


PRETENDED_GPU_PROPERTIES = {
    "name": "H100", "major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 80 << 30, "warp_size": 32,
    "gcnArchName": "", "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "L2_cache_size": 50 << 20, "shared_memory_per_block": 49152, "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
}  # fmt: skip
"""Properties the pretended GPU reports."""


def pretend_gpu() -> None:
    """Pretends as much of an H100 as Inductor asks for."""
    import torch
    import torch._dynamo.device_interface as interfaces
    import torch.utils._triton
    import tqdm
    from torch._subclasses import fake_tensor
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    tqdm.tqdm.monitor_interval = 0  # its thread would be lost in forked processes
    card = types.SimpleNamespace(**PRETENDED_GPU_PROPERTIES)
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_properties": card,
        "get_device_name": "H100",
        "get_device_capability": (9, 0), "synchronize": None, "_lazy_init": None, "is_bf16_supported": True,
    }  # fmt: skip
    extra_answers = {
        "get_compute_capability": 90,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _constant(answer))
    for name, answer in (answers | extra_answers).items():
        setattr(interfaces.CudaInterface, name, staticmethod(_constant(answer)))
        setattr(interfaces.CudaInterface.Worker, name, staticmethod(_constant(answer)))
    torch.utils._triton.triton_hash_with_backend = _constant("none")
    fake_tensor.init_gpu_context = _constant(None)  # torch's CUDA build makes a real tensor there
    target = GPUTarget("cuda", 90, 32)
    driver.set_active(
        types.SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0)
    )


def _constant(answer: object) -> Any:
    return lambda *_, **__: answer


def accept_symbols() -> None:
    """Lets `nn` be built with symbols for its sizes: initial values are not drawn, and arithmetic of `math` keeps
    symbols.
    """
    import torch
    import torch.nn as nn

    torch.distributions.Distribution.set_default_validate_args(
        False
    )  # it asks for the values of parameters
    numbers.Integral.register(torch.SymInt)
    by_symbols: dict[str, Any] = {"sqrt": torch.sym_sqrt}
    if (log2 := getattr(torch, "_sym_log2", None)) is not None:
        by_symbols |= {
            "log2": log2,
            "log": lambda x: log2(x) * math.log(2),
            "log10": lambda x: log2(x) * math.log10(2),
        }
    for name, symbolic in by_symbols.items():
        setattr(math, name, _symbolic(getattr(math, name), symbolic))
        for kind in (torch.SymInt, torch.SymFloat):
            setattr(
                kind, name, symbolic
            )  # numpy's functions of what it does not know are methods of it
    # Initial values are never read: the draft's constructor draws its own.
    for name in [n for n in dir(nn.init) if n.endswith("_") and not n.startswith("_")]:
        setattr(nn.init, name, lambda tensor, *_, **__: tensor)
    nn.init._calculate_fan_in_and_fan_out = _constant((1, 1))
    rnn: Any = torch.nn.modules.rnn
    rnn.isinstance = lambda value, kind: (
        isinstance(value, kind) or (kind is int and isinstance(value, torch.SymInt))
    )
    torch.Tensor.__invert__ = lambda x: torch.ops.aten.bitwise_not(x)  # type: ignore[method-assign]


def _symbolic(plain: Callable[..., Any], symbolic: Callable[..., Any]) -> Any:
    import torch

    def either(value: object, *args: Any) -> Any:
        return (
            symbolic(value)
            if isinstance(value, torch.SymInt | torch.SymFloat) and not args
            else plain(value, *args)
        )

    return either


def own_scatters() -> None:
    """Lets Inductor scatter integers by its own kernels: `tl.atomic_add` takes them, and plain stores take all."""
    import torch
    from torch._inductor import decomposition, lowering
    from torch._inductor.fx_passes import reinplace

    small = (torch.bool, torch.bfloat16, torch.int8, torch.int16, torch.uint8)

    def without_kernel(
        operator: object,
        reduction: str | None,
        dtype: torch.dtype,
        source: object,
        device: str,
        is_tensor: bool,
    ) -> bool:
        return reduction not in (None, "add", "sum") or (reduction is not None and dtype in small)

    for module in (decomposition, lowering):
        module.use_scatter_fallback = without_kernel  # type: ignore[attr-defined]
        module.needs_fallback_due_to_atomic_add_limitations = lambda dtype: dtype in small  # type: ignore[attr-defined]
    plain_call = reinplace.graph_call_function

    # Only ever run for the shape of what they give, for which a copy would ask for a real device.
    reinplace._generalized_scatter.__code__ = (lambda inp, src, view_ops: inp.clone()).__code__
    reinplace._inplace_generalized_scatter.__code__ = (lambda inp, src, view_ops: inp).__code__

    def call(
        graph: torch.fx.Graph, function: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        if function is not torch.ops.aten.copy_.default:
            return plain_call(graph, function, *args, **options)
        node = graph.call_function(function, args, options)
        node.meta["val"] = args[0].meta["val"]
        return node

    reinplace.graph_call_function = call  # type: ignore[assignment]
