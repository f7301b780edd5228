"""Functions of the libraries that have no row, and why.

What a row was made for and then left out says so itself (`left=`).
"""

from __future__ import annotations

READS = "its host code reads a value from the device"
SIZES = "the size of its output depends on values"
RANDOM = "it draws random numbers"
ADDRESSES = "its host code makes an array of addresses"

NEVER_TRIED = {
    "liger_kernel: cross_entropy, fused_linear_cross_entropy, fused_linear_scaled_cross_entropy, fused_moe": READS,
    "liger_kernel: jsd, tvd, fused_linear_jsd, fused_linear_kl_div with labels": READS,
    "flag_gems: equal, allclose, bincount, index_add, isclose reduced, fill with a tensor, masked_fill of one element": READS,
    "flag_gems: nonzero, unique, unique_consecutive, masked_select, repeat_interleave with a tensor": SIZES,
    "flag_gems: rand, randn, randperm, normal, uniform_, exponential_, bernoulli_, multinomial, dropout": RANDOM,
    "flag_gems: arange, eye, full, ones, zeros, linspace, logspace": "it has no input",
    "flag_gems: softmax, layer_norm, group_norm ... backward": "only the forward pass is tried",
    "conch: nms, voxelization": SIZES,
    "conch: copy_blocks": ADDRESSES,
    "conch: quantize_blockwise": "a code on the border between two levels falls on either side",
    "fla: everything with cu_seqlens": READS,
}
