"""Allowlist of torch operators in a trace, with each operator's effect on memory.

A trace is data, and an operator's name in it is a request. Allowed are operators of the `aten`
namespace on tensors and plain values, and a few of `prims`: nothing that reads a file, takes a
pointer, a storage or a function, or trusts unchecked sizes. Whether an operator counts as the
candidate's own work is decided in tools/judging.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.tools.report import Failed, Failure, Fault, clean_text

if TYPE_CHECKING:
    import torch


_NAME = re.compile(r"(aten|prims)\.([A-Za-z0-9_]{1,80})\.([A-Za-z0-9_]{1,80})", re.ASCII)
_FOREIGN_TYPES = re.compile(r"Storage|Stream|Any|Dict|Future|RRef|Enum|__torch__|^t\d?$|\bt\b|tVal")
"""Types of parameters and results (in torch's spelling) without a plain value."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRIMITIVES = _words(
    "broadcast_in_dim collapse_view convert_element_type iota rev split_dim squeeze transpose view_of"
)

REFUSED_OPERATORS = _words("""
    from_file record_stream set_data data retain_grad item equal is_nonzero to_mkldnn mkldnn_adaptive_avg_pool2d
    mkldnn_convolution mkldnn_linear mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_reorder_conv2d_weight
    mkldnn_reorder_conv3d_weight mkldnn_rnn_layer sparse_compressed_tensor sparse_bsc_tensor sparse_bsr_tensor
    sparse_csc_tensor sparse_csr_tensor sym_constrain_range sym_constrain_range_for_size
    """)
"""Refused names without a leading underscore."""

INTERNAL = _words("""
    _adaptive_avg_pool2d _adaptive_avg_pool3d _addmm_activation _aminmax _cdist_forward _chunk_cat _conj _conj_copy
    _conj_physical _convolution _ctc_loss _cummax_helper _cummin_helper _embedding_bag _embedding_bag_forward_only
    _euclidean_dist _fft_c2c _fft_c2r _fft_r2c _fused_dropout _fused_rms_norm _grouped_mm _int_mm _linalg_det
    _linalg_eigh _linalg_check_errors _linalg_slogdet _linalg_solve_ex _linalg_svd _log_softmax _logcumsumexp
    _masked_softmax _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _neg_view _neg_view_copy _pad_circular _pad_enum _pdist_forward _prelu_kernel _reshape_alias _reshape_alias_copy
    _reshape_copy _safe_softmax _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_mm _softmax _stack _standard_gamma _thnn_fused_gru_cell
    _thnn_fused_lstm_cell _to_copy _trilinear _unique2 _unsafe_index _unsafe_view _upsample_bicubic2d_aa
    _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    _weight_norm_interface _assert_tensor_metadata
    """)
"""Allowed names with a leading underscore, beside `_foreach_` and Python's own (`__and__`): torch
checks less in its internal operators."""

UNINITIALISED = _words("empty empty_like empty_permuted empty_strided new_empty new_empty_strided")
"""Operators that leave their memory uninitialised."""
FILLS: dict[str, float | None] = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1, "full": None,
    "full_like": None, "new_full": None,
}  # fmt: skip
"""Operators that allocate and fill. None: with the argument after the sizes (or the tensor)."""
GROWING = _words("resize_ resize_as_ set_")
"""Operators that may enlarge a storage, and leave the new part uninitialised."""


@dataclass(frozen=True)
class AllowedOperator:
    """An operator that may be executed."""

    call: Any
    """torch's OpOverload, or a stand-in."""
    name: str
    """Name without namespace and overload."""
    mutable: bool
    """Writes to an argument."""
    view: bool
    random: bool
    """Draws from the default generator."""


def refused(name: str, reason: str) -> Failed:
    """Returns the failure for host code that calls an operator which is not allowed."""
    return Failed(
        Failure(
            fault=Fault.FALLBACK,
            message=clean_text(f"the host code asks torch for {name}, which {reason}", 300),
        )
    )


@functools.lru_cache(maxsize=4096)
def known(name: str) -> AllowedOperator:
    """Returns the operator by name, as `aten.view.default`. Raises Failed if it may not be
    executed."""
    import torch

    match = _NAME.fullmatch(name)
    if match is None:
        raise refused(name, "is no operator of torch that a verdict can replay")
    namespace, operator, overload = match.groups()
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    overload_of_torch = (
        getattr(packet, overload, None) if isinstance(packet, torch._ops.OpOverloadPacket) else None
    )
    if not isinstance(overload_of_torch, torch._ops.OpOverload):
        raise refused(name, "this version of torch does not have")
    if not _allowed(namespace, operator) or not _plain(overload_of_torch._schema):
        raise refused(name, "a verdict does not replay: it reaches for more than its tensors")
    return AllowedOperator(
        call=_checked_alias if operator == "_reshape_alias" else overload_of_torch,
        name=operator,
        mutable=bool(overload_of_torch._schema.is_mutable),
        view=bool(overload_of_torch.is_view),
        random=torch.Tag.nondeterministic_seeded in overload_of_torch.tags,
    )


def drawn_on_the_host(
    operator: AllowedOperator, args: list[Any], kwargs: dict[str, Any], device: str
) -> Any:
    """Runs an operator with a CPU generator, and moves the result to the device.

    A reference with a generator that the device does not accept is built on the CPU and moved, too.
    """
    import torch
    from torch.utils._pytree import tree_map

    def on_host(value: object) -> Any:
        if isinstance(value, torch.Tensor):
            return value.cpu()
        return torch.device("cpu") if isinstance(value, torch.device) else value

    result = operator.call(
        *(tree_map(on_host, a) for a in args),
        **{k: tree_map(on_host, v) for k, v in kwargs.items()},
    )
    if not operator.mutable:
        return result.to(device)
    args[0].copy_(result)
    return args[0]


def _allowed(namespace: str, operator: str) -> bool:
    if namespace == "prims":
        return operator in PRIMITIVES
    if operator.startswith("_") and not operator.startswith("__"):
        return operator in INTERNAL or operator.startswith("_foreach_")
    return operator not in REFUSED_OPERATORS and not operator.startswith(
        ("mkldnn_", "quantize", "q_", "cudnn_", "miopen_")
    )


def _plain(schema: Any) -> bool:
    types = [str(a.type) for a in (*schema.arguments, *schema.returns)]
    return any("Tensor" in type_name for type_name in types) and not any(
        _FOREIGN_TYPES.search(type_name) for type_name in types
    )


def _checked_alias(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> Any:
    """Replaces `_reshape_alias`, which trusts any strides, by `as_strided`, which checks them."""
    import torch

    return torch.ops.aten.as_strided.default(tensor, size, stride)
