"""Inductor's kernels as values: the function's syntax tree, its block sizes, and what its decorator says."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.writing.plain import without_runtime
from kernelwright.policies.inductor.writing.products.parts import is_operand_split
from kernelwright.policies.inductor.writing.words.evidence import COPY, FILL, operators_shown

KINDS = {
    "persistent_reduction": "reduction",
    "reduction": "reduction",
    "pointwise": "pointwise",
    "split_scan": "scan",
}
"""Inductor's decorators, in words."""
MATMUL = r"mm(?![a-z])"
"""mm, bmm, addmm, not cummax."""
MATMUL_OPERATOR = r"(add|b|baddb)?mm$"
FAMILIES = (
    ("softmax", "softmax"), ("layer_norm", "layer_norm"), ("batch_norm", "batch_norm"), ("convolution", "convolution"),
    (MATMUL, "matmul"), ("embedding", "embedding"), ("cumsum", "cumsum"), ("max_pool", "max_pool"),
    ("avg_pool", "average_pool"),
    ("gelu", "gelu"), ("silu", "silu"), ("sigmoid", "sigmoid"), ("tanh", "tanh"), ("relu", "relu"),
    (r"^cat\b", "concatenate"), ("scatter|index_put", "scatter"),
    ("var_mean", "variance"), ("(?<!var_)mean", "mean"), ("amax", "maximum"), ("(?<!cum)sum", "sum"), ("clone", "copy"),
)  # fmt: skip
"""A regular expression over an operator's name -> the word that a kernel is called by; the first that fits."""
SUM_COMBINATION = ["tmp0 = arg0_0 + arg1_0", "return tmp0"]
"""The body of the function that a running sum combines with."""
UNNAMED_OPERATORS = {"view", "permute", "unsqueeze", "squeeze", "expand", "clone", "slice", "select", "transpose", "t",
    "_unsafe_view", "alias", "kernelwright.steps", "kernelwright.attention"}  # fmt: skip
"""Operators that move nothing: they are not named in comments."""

AUXILIARY_OPERATORS = {
    "full", "full_like", "scalar_tensor", "prims.iota", "prims.convert_element_type", "lift_fresh_copy",
    "copy", "arange", "zeros", "zeros_like", "ones", "ones_like", "where", "logical_not", "bitwise_not", "bitwise_and",
    "ne", "empty_like"}  # fmt: skip
"""Operators that serve others: they are named where there are none besides."""
MAX_NAMED_OPERATORS = 8
"""Operators that a comment names."""


@dataclass
class LoweredKernel:
    """One kernel as Inductor wrote it."""

    original: str
    """Inductor's name of the kernel, such as triton_red_fused_mean_pow_0."""
    name: str
    function: ast.FunctionDef
    helpers: list[ast.FunctionDef]
    """Functions that it calls, such as what a scan combines with."""
    kind: str
    """pointwise, reduction or scan."""
    dot: bool
    persistent: bool
    operators: tuple[str, ...]
    """Operators of aten, in the order of the graph."""
    hints: dict[str, int]
    """Extent of X, Y, Z, R0 at the problem's own sizes, rounded up to a power of two."""
    inner: bool
    """Whether the reduced elements lie side by side in memory."""
    grid: str
    """Inductor's name for how programs are counted."""
    grouped: bool = False
    """Whether its programs take tiles in groups."""
    indexed: bool = False
    """Whether it has a constant for the type of its indices."""
    single: bool = True
    """Whether its products are of fp32."""
    in_parts: bool = False
    """Whether it multiplies high and low parts of fp32."""
    splits: bool = False
    """Whether it splits an operand into such parts."""
    common: tuple[str, ...] = ()
    """The operators that all kernels which are merged in it share; empty where it is one kernel."""
    library_tf32: bool = False
    """torch.backends.cudnn.allow_tf32, as the problem leaves it."""

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters, in their order."""
        return [a.arg for a in self.function.args.args]

    @property
    def blocks(self) -> list[str]:
        """The parameters that are block sizes."""
        return [p for p in self.parameters if p.endswith("BLOCK")]

    @property
    def convolves(self) -> bool:
        """Whether its product is one with patches of an image, and not one that reads what a convolution gave."""
        return self.dot and "convolution" in self.operators and not any(re.match(MATMUL_OPERATOR, o)
            for o in self.operators)  # fmt: skip

    @property
    def by_tf32(self) -> bool:
        """Whether its product is of fp32 by tf32, as the library's own convolutions are by default."""
        return self.convolves and self.single and self.library_tf32

    @property
    def text(self) -> str:
        """The kernel's source, without its decorators where they were taken off."""
        return ast.unparse(self.function)


DEFINITION = re.compile(
    r"((?:^#[^\n]*\n)*)^(triton_\w+) = async_compile\.triton\('\w+', '''(.*?)''', device_str",
    re.M | re.S,
)


def kernels_of(text: str) -> dict[str, LoweredKernel]:
    """Returns the kernels by Inductor's names, in the order of the text. Raises DraftRefused."""
    kernels: dict[str, LoweredKernel] = {}
    used_names: set[str] = set()
    for comment, original, body in DEFINITION.findall(text):
        kernels[original] = _read(original, comment, body, used_names)
    return kernels


def _read(original: str, comment: str, body: str, used_names: set[str]) -> LoweredKernel:
    functions = [n for n in ast.parse(body).body if isinstance(n, ast.FunctionDef)]
    function = functions[-1]
    helpers = _plain_scans(function, functions[:-1], used_names)
    maker = next((d for d in function.decorator_list if isinstance(d, ast.Call)), None)
    if maker is None or not isinstance(maker.func, ast.Attribute):
        raise DraftRefused(f"Inductor wrote {original} in a form that is not known here")
    words = {k.arg: k.value for k in maker.keywords}
    heuristic = maker.func.attr
    if heuristic not in KINDS:
        raise DraftRefused(f"Inductor wrote {original} with {heuristic}, which has no plain form")
    listed = re.search(r"Original ATen: \[(.*?)\]", comment)
    operators = (
        tuple(o.strip().removeprefix("aten.") for o in listed[1].split(","))
        if listed and listed[1]
        else ()
    )
    meta = ast.unparse(words["inductor_meta"])
    dot = "tl.dot(" in body
    is_split = is_operand_split(body) and all(
        o in UNNAMED_OPERATORS or re.match(MATMUL_OPERATOR, o) for o in operators
    )
    if not dot and not is_split:
        operators = operators_shown(function, operators)
    return LoweredKernel(
        original=original,
        name=_unique(_plain_name(operators, KINDS[heuristic], dot, is_split), used_names),
        function=function,
        helpers=helpers,
        kind=KINDS[heuristic],
        dot=dot,
        splits=is_split,
        persistent=heuristic == "persistent_reduction",
        operators=operators,
        hints={
            k.upper().rstrip("_"): int(v) for k, v in ast.literal_eval(words["size_hints"]).items()
        },
        inner="INNER" in ast.unparse(words["reduction_hint"])
        if "reduction_hint" in words
        else False,
        grid=(re.search(r"'grid_type': '(\w+)'", meta) or ["", "Grid1D"])[1],
    )


def rename_kernels(kernels: list[LoweredKernel]) -> None:
    """Names for the kernels that are left, after what all their launches do; in place."""
    used_names = {other.name for kernel in kernels for other in kernel.helpers}
    for kernel in kernels:
        kernel.name = _unique(
            _plain_name(kernel.common or kernel.operators, kernel.kind, kernel.dot, kernel.splits),
            used_names,
        )


def _plain_name(operators: tuple[str, ...], kind: str, dot: bool, splits: bool) -> str:
    return f"{'parts' if splits else _family(operators, kind, dot)}_kernel"


def _plain_scans(
    function: ast.FunctionDef, helpers: list[ast.FunctionDef], used_names: set[str]
) -> list[ast.FunctionDef]:
    """Running sums by `tl.cumsum`; what else a scan combines with gets a name. Gives the functions that are left."""
    adding = {f.name for f in helpers if [ast.unparse(s) for s in f.body][-2:] == SUM_COMBINATION}
    _Cumulative(adding).visit(function)
    ast.fix_missing_locations(function)
    read = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    remaining = [f for f in helpers if f.name in read]
    for other in remaining:
        new = _unique("combine_kernel", used_names).removesuffix("_kernel")
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id == other.name:
                node.id = new
        other.name = new
        without_runtime(other)
    return remaining


class _Cumulative(ast.NodeTransformer):
    def __init__(self, adding: set[str]) -> None:
        self._adding = adding

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        call, target = node.value, node.targets[0]
        if (
            isinstance(call, ast.Call)
            and ast.unparse(call.func) == "tl.associative_scan"
            and ast.unparse(call.args[2]) in self._adding
            and isinstance(target, ast.Tuple)
            and isinstance(call.args[0], ast.Tuple)
        ):
            node.targets = [target.elts[0]]
            node.value = ast.parse(
                f"tl.cumsum({ast.unparse(call.args[0].elts[0])}, {ast.unparse(call.args[1])})",
                mode="eval",
            ).body
        return node


def _family(operators: tuple[str, ...], kind: str, dot: bool) -> str:
    """softmax_row, matmul_gelu, add_mul: at most two words of what it covers, and how it goes over the elements."""
    words: list[str] = []
    for part, word in FAMILIES:
        if any(re.search(part, o) for o in operators) and word not in words:
            words.append(word)
    words = [w for w in words if w != "copy"] or words
    if dot:
        words = [w for w in words if w in ("matmul", "convolution")][:1] + [w for w in words if w not in ("matmul",
            "convolution")]  # fmt: skip
    other_words = [
        o.strip("_")
        for o in operators
        if o.strip("_") not in UNNAMED_OPERATORS and not any(re.search(p, o) for p, _ in FAMILIES)
    ]
    chosen = (words or other_words or ["copy"])[:2]
    if kind == "reduction" and not dot:
        chosen.append("row")
    return "_".join(re.sub(r"\W+", "_", w) for w in chosen)


def _unique(name: str, used_names: set[str]) -> str:
    unique, number = name, 2
    while unique in used_names:
        unique = name.removesuffix("_kernel") + f"_{number}_kernel"
        number += 1
    used_names.add(unique)
    return unique


def comment_of(kernel: LoweredKernel) -> str:
    """One line above the kernel: the operators that it stands for, or what it does where it computes nothing."""
    if kernel.operators == COPY:
        return "# Copies its input into the order of memory that is read next."
    if kernel.operators == FILL:
        return "# Fills its output."
    return f"# Covers {operators_in_words(kernel)}."


def operators_in_words(kernel: LoweredKernel) -> str:
    """The operators that a kernel stands for."""
    if kernel.splits:
        named = ", ".join(o for o in kernel.operators if o not in UNNAMED_OPERATORS)
        return f"an operand of {named}, as a high and a low part"
    names = [o.strip("_") for o in kernel.operators if o.strip("_") not in UNNAMED_OPERATORS]
    telling = [n for n in names if n not in AUXILIARY_OPERATORS] or names or ["copy"]
    listed = list(dict.fromkeys(n.removeprefix("prims.") for n in telling))
    suffix = (
        f" and {len(listed) - MAX_NAMED_OPERATORS} more"
        if len(listed) > MAX_NAMED_OPERATORS + 1
        else ""
    )
    return ", ".join(listed[:MAX_NAMED_OPERATORS] if suffix else listed) + suffix
