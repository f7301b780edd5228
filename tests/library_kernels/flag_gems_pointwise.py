"""flag-gems: functions of one or more tensors, element by element.

Its wrappers write the kernels' text when they are first called.
"""

from __future__ import annotations

from tests.library_kernels.table import Library, LibraryKernel, rows

PREAMBLE = """import os
import sys
import tempfile

os.environ.setdefault("GEMS_VENDOR", "nvidia")  # spares it a call of nvidia-smi
os.environ.setdefault("FLAGGEMS_CACHE_DIR", os.path.join(tempfile.gettempdir(), "flaggems"))

import flag_gems

sys.modules["flag_gems.utils.libentry"].minor_version = 6  # as for Triton 3.6: its launches leave the constants out with 3.9
from flag_gems.utils.codegen_config_utils import get_codegen_config

get_codegen_config().prefer_block_pointer = False  # Triton 3.9 has no block pointers"""

BLOCK_POINTERS = PREAMBLE.partition("from flag_gems")[0].rstrip()

FLAG_GEMS = Library("flag_gems", "flag-gems", "5.0.2", PREAMBLE)

UNARY = """
abs
absolute | . | . | . | left=leaves minus infinity negative
acos | . | . | x=rand(rows, columns) * 2 - 1
alias_copy | . | x.clone()
angle
arcsinh | . | . | . | left=log(x + sqrt(x * x + 1)) loses the digits of large negative x
atan
ceil
celu | . | functional.celu(x) | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
celu_alpha | flag_gems.celu(x, 0.7) | functional.celu(x, 0.7) | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
clamp | flag_gems.clamp(x, -0.5, 0.7) | torch.clamp(x, -0.5, 0.7)
clamp_min | flag_gems.clamp_min(x, 0.25) | torch.clamp(x, min=0.25)
clip | flag_gems.clip(x, -1.5, None) | torch.clip(x, min=-1.5)
cos
cosh
elu | . | functional.elu(x) | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
elu_alpha | flag_gems.elu(x, 1.3) | functional.elu(x, 1.3) | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
erf
exp
exp2
expm1 | . | . | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
gelu | . | functional.gelu(x)
gelu_tanh | flag_gems.gelu(x, approximate="tanh") | functional.gelu(x, approximate="tanh")
hardsigmoid | . | functional.hardsigmoid(x) | . | left=gives 0 for NaN
i0 | . | torch.special.i0(x)
isfinite
isinf
isnan
isneginf
log | . | . | x=rand(rows, columns) + 0.01
log10 | . | . | x=rand(rows, columns) + 0.01
log_sigmoid | . | functional.logsigmoid(x)
logical_not
logit | flag_gems.logit(x, 1e-6) | torch.logit(x, 1e-6) | x=rand(rows, columns) | left=gives a number for NaN
nan_to_num | flag_gems.nan_to_num(x, 0.5, 7.0, -7.0) | torch.nan_to_num(x, 0.5, 7.0, -7.0)
neg
reciprocal | . | . | x=rand(rows, columns) + 0.1
relu
relu6 | . | functional.relu6(x) | . | left=gives 0 for NaN
round
rsqrt | . | . | x=rand(rows, columns) + 0.1
selu | . | . | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
sigmoid
signbit
silu | . | functional.silu(x)
sin
softplus | . | functional.softplus(x)
softplus_beta | flag_gems.softplus(x, 2.0, 5.0) | functional.softplus(x, 2.0, 5.0)
softshrink | . | functional.softshrink(x)
special_i0e | . | torch.special.i0e(x)
special_i1 | . | torch.special.i1(x)
sqrt | . | . | x=rand(rows, columns)
square
tan | . | . | x=rand(rows, columns)
tanh
threshold | flag_gems.threshold(x, 0.1, -3.0) | functional.threshold(x, 0.1, -3.0)
pow_tensor_scalar | flag_gems.pow_tensor_scalar(x, 3) | torch.pow(x, 3)
pow_scalar | flag_gems.pow_scalar(2.5, x) | torch.pow(2.5, x)
add_scalar | flag_gems.add(x, 2.5) | x + 2.5
mul_scalar | flag_gems.mul(x, 0.3) | x * 0.3
sub_scalar | flag_gems.sub(x, 0.7, alpha=2) | torch.sub(x, 0.7, alpha=2)
div_scalar | flag_gems.true_divide(x, 3.0) | x / 3.0
remainder_scalar | flag_gems.remainder(x, 0.75) | torch.remainder(x, 0.75)
eq_scalar | flag_gems.eq_scalar(x, 3) | x == 3 | x=randint(0, 5, (rows, columns))
ne_scalar | flag_gems.ne_scalar(x, 3) | x != 3 | x=randint(0, 5, (rows, columns))
lt_scalar | flag_gems.lt_scalar(x, 0.1) | x < 0.1
le_scalar | flag_gems.le_scalar(x, 0.1) | x <= 0.1
gt_scalar | flag_gems.gt_scalar(x, 0.1) | x > 0.1
ge_scalar | flag_gems.ge_scalar(x, 0.1) | x >= 0.1
bitwise_not | . | . | x=randint(-1000, 1000, (rows, columns))
bitwise_and_scalar | flag_gems.bitwise_and_scalar(x, 21) | torch.bitwise_and(x, 21) | x=randint(-1000, 1000, (rows, columns))
bitwise_or_scalar | flag_gems.bitwise_or_scalar(x, 21) | torch.bitwise_or(x, 21) | x=randint(-1000, 1000, (rows, columns))
to_half | flag_gems.to_copy(x, dtype=torch.float16) | x.to(torch.float16)
to_float | flag_gems.to_copy(x, dtype=torch.float32) | x.float() | . | dtype=bfloat16
"""

IN_PLACE = """
abs_ | . | x.abs_()
arcsinh_ | . | x.arcsinh_() | . | left=log(x + sqrt(x * x + 1)) loses the digits of large negative x
arctanh_ | . | x.arctanh_() | x=rand(rows, columns) * 1.8 - 0.9 | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
asinh_ | . | x.asinh_() | . | left=log(x + sqrt(x * x + 1)) loses the digits of large negative x
atan_ | . | x.atan_()
ceil_ | . | x.ceil_()
celu_ | . | functional.celu_(x) | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
clamp_ | flag_gems.clamp_(x, -0.5, 0.7) | x.clamp_(-0.5, 0.7)
clip_ | flag_gems.clip_(x, -0.5, 0.7) | x.clip_(-0.5, 0.7)
cos_ | . | x.cos_()
cosh_ | . | x.cosh_()
digamma_ | . | x.digamma_() | x=rand(rows, columns) + 0.5 | left=it is far off next to a pole
elu_ | . | functional.elu_(x) | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
erf_ | . | x.erf_()
exp_ | . | x.exp_()
exp2_ | . | x.exp2_()
expm1_ | . | x.expm1_() | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
floor_ | . | x.floor_()
gelu_ | . | x.copy_(functional.gelu(x))
hardswish_ | . | functional.hardswish(x, inplace=True)
i0_ | . | x.i0_()
log10_ | . | x.log10_() | x=rand(rows, columns) + 0.01
log1p_ | . | x.log1p_() | x=rand(rows, columns) | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
logit_ | . | x.logit_() | x=rand(rows, columns) * 0.9 + 0.05
neg_ | . | x.neg_()
reciprocal_ | . | x.reciprocal_() | x=rand(rows, columns) + 0.1
relu_ | . | x.relu_()
round_ | . | x.round_()
rsqrt_ | . | x.rsqrt_() | x=rand(rows, columns) + 0.1
selu_ | . | functional.selu_(x) | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
sgn_ | . | x.sgn_() | . | left=NaN becomes 0
sigmoid_ | . | x.sigmoid_()
silu_ | . | functional.silu(x, inplace=True)
sin_ | . | x.sin_()
sinh_ | . | x.sinh_() | . | left=exp(x) - 1 or log(1 + x) as written loses the digits of small x
sqrt_ | . | x.sqrt_() | x=rand(rows, columns)
square_ | . | x.square_()
tan_ | . | x.tan_() | x=rand(rows, columns)
tanh_ | . | x.tanh_()
add_ | . | x.add_(y) | x=randn(rows, columns), y=randn(rows, columns)
mul_ | . | x.mul_(y) | x=randn(rows, columns), y=randn(columns)
sub_ | . | x.sub_(y) | x=randn(rows, columns), y=randn(rows, 1)
"""

BINARY = """
add
add_alpha | flag_gems.add(x, y, alpha=0.5) | torch.add(x, y, alpha=0.5)
addcmul | flag_gems.addcmul(x, y, z, value=0.3) | torch.addcmul(x, y, z, value=0.3) | x=randn(rows, columns), y=randn(rows, columns), z=randn(rows, columns)
addcdiv | flag_gems.addcdiv(x, y, z, value=0.3) | torch.addcdiv(x, y, z, value=0.3) | x=randn(rows, columns), y=randn(rows, columns), z=rand(rows, columns) + 0.1
atan2
bitwise_and | flag_gems.bitwise_and_tensor(x, y) | . | x=randint(-1000, 1000, (rows, columns)), y=randint(-1000, 1000, (rows, columns))
bitwise_or | flag_gems.bitwise_or_tensor(x, y) | . | x=randint(-1000, 1000, (rows, columns)), y=randint(-1000, 1000, (rows, columns))
bitwise_left_shift | . | . | x=randint(-1000, 1000, (rows, columns)), y=randint(0, 12, (rows, columns)) | left=raises: its wrapper passes `out` on to a function that takes none
bitwise_right_shift | . | . | x=randint(-100000, 100000, (rows, columns)), y=randint(0, 12, (rows, columns)) | left=raises: its wrapper passes `out` on to a function that takes none
clamp_tensor | flag_gems.clamp_tensor(x, y, z) | torch.clamp(x, y, z) | x=randn(rows, columns), y=randn(rows, columns) - 1, z=randn(rows, columns) + 1
copysign
div_trunc | flag_gems.div_mode(x, y, rounding_mode="trunc") | torch.div(x, y, rounding_mode="trunc") | x=randint(-1000, 1000, (rows, columns)), y=randint(1, 12, (rows, columns))
div_floor | flag_gems.div_mode(x, y, rounding_mode="floor") | torch.div(x, y, rounding_mode="floor") | x=randint(-1000, 1000, (rows, columns)), y=randint(1, 12, (rows, columns))
eq | . | . | x=randint(0, 5, (rows, columns)), y=randint(0, 5, (rows, columns))
floor_divide | . | . | x=randint(-1000, 1000, (rows, columns)), y=randint(1, 12, (rows, columns))
fmin
ge
greater
gt
hypot | . | . | . | left=gives infinity for NaN beside a number
isclose
le
lerp_scalar | flag_gems.lerp_scalar(x, y, 0.3) | torch.lerp(x, y, 0.3)
lerp_tensor | flag_gems.lerp_tensor(x, y, z) | torch.lerp(x, y, z) | x=randn(rows, columns), y=randn(rows, columns), z=rand(rows, columns)
logaddexp | . | . | . | left=gives NaN where both are the same infinity
logical_and
logical_or
logical_xor
lt
maximum
minimum
mul
mul_by_row | flag_gems.mul(x, y) | x * y | x=randn(rows, columns), y=randn(columns)
mul_by_column | flag_gems.mul(x, y) | x * y | x=randn(rows, columns), y=randn(rows, 1) | left=gives the wrong shape or values where the last dimension of one side is 1 and the GPU is a Hopper
mul_half | flag_gems.mul(x, y) | x * y | . | dtype=float16
add_bfloat16 | flag_gems.add(x, y) | x + y | . | dtype=bfloat16
add_outer | flag_gems.add(x, y) | x + y | x=randn(rows, 1), y=randn(columns)
add_transposed | flag_gems.add(x, y.t()) | x + y.t() | x=randn(rows, columns), y=randn(columns, rows)
add_4d_channels | flag_gems.add(x, y) | x + y | x=randn(batch, channels, height, width), y=randn(channels, 1, 1)
ne | . | . | x=randint(0, 5, (rows, columns)), y=randint(0, 5, (rows, columns))
polar | . | . | x=rand(rows, columns), y=randn(rows, columns)
pow_tensor_tensor | flag_gems.pow_tensor_tensor(x, y) | torch.pow(x, y) | x=rand(rows, columns) + 0.1, y=randn(rows, columns)
prelu | . | functional.prelu(x, y) | x=randn(batch, channels, columns), y=rand(channels)
remainder | . | . | x=randint(-1000, 1000, (rows, columns)), y=randint(1, 12, (rows, columns))
sub
true_divide | . | . | x=randn(rows, columns), y=rand(rows, columns) + 0.1
where | flag_gems.where_self(mask, x, y) | torch.where(mask, x, y) | mask=rand(rows, columns) > 0.5, x=randn(rows, columns), y=randn(rows, columns)
masked_fill | flag_gems.masked_fill(x, mask, -7.5) | x.masked_fill(mask, -7.5) | x=randn(rows, columns), mask=rand(rows, columns) > 0.5
masked_fill_ | flag_gems.masked_fill_(x, mask, -7.5) | x.masked_fill_(mask, -7.5) | x=randn(rows, columns), mask=rand(rows, columns) > 0.5
glu | . | functional.glu(x) | x=randn(rows, 2 * columns)
gelu_backward | . | x * (0.5 * (1 + torch.erf(y * 0.5**0.5)) + y * torch.exp(-0.5 * y * y) * 0.3989422804014327)
silu_backward | . | x * torch.sigmoid(y) * (1 + y * (1 - torch.sigmoid(y)))
sigmoid_backward | . | x * y * (1 - y)
tanh_backward | . | x * (1 - y * y)
threshold_backward | flag_gems.threshold_backward(x, y, 0.2) | torch.where(y > 0.2, x, 0.0)
silu_and_mul | . | functional.silu(x) * y
gelu_and_mul | . | functional.gelu(x) * y
gelu_and_mul_tanh | flag_gems.gelu_and_mul(x, y, "tanh") | functional.gelu(x, approximate="tanh") * y
silu_and_mul_half | flag_gems.silu_and_mul(x, y) | functional.silu(x) * y | . | dtype=float16
"""

HALF = """
exp | . | . | . | dtype=float16
gelu | . | functional.gelu(x) | . | dtype=bfloat16; needs=gpu
silu | . | functional.silu(x) | . | dtype=bfloat16
tanh | . | . | . | dtype=float16
relu | . | . | . | dtype=bfloat16; needs=gpu
sigmoid | . | . | . | dtype=float16
"""


def pointwise() -> list[LibraryKernel]:
    """All of them; those in half precision and with block pointers have a suffix to their names."""
    pair = [
        line
        if line.count(" | ") >= 3 and line.split(" | ")[3].strip() != "."
        else _with_inputs(line)
        for line in BINARY.strip().splitlines()
    ]
    half = [k._replace(name=f"{k.name}_half") for k in rows(FLAG_GEMS, HALF)]
    pointers = FLAG_GEMS._replace(preamble=BLOCK_POINTERS)
    old = [
        k._replace(name=f"{k.name}_block_pointers")
        for k in rows(pointers, HALF, "needs=gpu; triton=3.6")
    ]
    return [
        *rows(FLAG_GEMS, UNARY),
        *rows(FLAG_GEMS, IN_PLACE),
        *rows(FLAG_GEMS, "\n".join(pair)),
        *half,
        *old,
    ]


def _with_inputs(line: str) -> str:
    """A row of BINARY that leaves its inputs out: two matrices."""
    fields = [field.strip() for field in line.split(" | ")]
    fields += ["."] * (4 - len(fields))
    return " | ".join([*fields[:3], "x=randn(rows, columns), y=randn(rows, columns)", *fields[4:]])
