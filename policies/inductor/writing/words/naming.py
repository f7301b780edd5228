"""Readable names for a kernel's parameters and variables."""

from __future__ import annotations

import ast
import re

from kernelwright.policies.inductor.syntax import unique_name
from kernelwright.policies.inductor.tracing.execution import simple_path
from kernelwright.policies.inductor.writing.helpers import BODIES
from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.plain import assignments
from kernelwright.policies.inductor.writing.words.computed_sizes import COMPOUND
from kernelwright.policies.inductor.writing.words.evidence import COPY

ROLES = {
    "element": {"x": "element"},
    "grid": {"x": "column", "y": "row", "z": "plane"},
    "rows": {"x": "row", "y": "plane", "z": "block", "r0_": "column", "r1_": "inner"},
    "product": {"x": "column", "y": "row", "z": "matrix", "r0_": "step", "r1_": "inner"},
}
"""Kind of kernel -> readable names of Inductor's sides."""
PLURAL = {"matrix": "matrices", "step": "depth", "inner": "inner_size"}
RESERVED_WORDS = {
    "tl",
    "triton",
    "libdevice",
    "float",
    "inf",
    "nan",
    "range",
    "min",
    "max",
    *BODIES,
}
RESULTS = (
    ("tl.load", "value"), ("tl.dot", "product"), ("row_maximum_with_index", "best"), ("row_minimum_with_index", "best"),
    ("row_maximum", "largest"), ("row_minimum", "smallest"), ("row_product", "product"), ("tl.max", "largest"),
    ("tl.min", "smallest"),
    ("tl.sum", "total"), ("any_of", "found"), ("exp2", "power"), ("exp", "exponential"), ("rsqrt", "inverse_root"),
    ("sqrt", "root"),
    ("tanh", "hyperbolic"), ("erf", "error_function"), ("log", "logarithm"), ("sin", "sine"), ("cos", "cosine"),
    ("associative_scan", "running"), ("cumsum", "running"), ("tl.where", "chosen"),
    ("maximum", "larger"), ("minimum", "smaller"),
    ("sigmoid", "gate"),
    ("tl.reshape", "tile"), ("tl.trans", "tile"), ("tl.broadcast_to", "wide"), ("tl.full", "constant"),
    ("place_in_sorted", "place"), ("greatest_common_divisor", "divisor"),
    (".to", "converted"),
)  # fmt: skip
"""Function -> name of its result."""
RESULTS_OF_TUPLES = {
    "welford_step": ("next_mean", "next_squares", "next_count"), "welford": ("mean", "squares", "count"),
    "welford_combine": ("next_mean", "next_squares", "next_count"),
    "running_softmax": ("next_largest", "next_total"), "joined_softmax": ("next_largest", "next_total"),
    "row_softmax": ("largest", "total"),
    "larger_with_index": ("larger", "place"), "smaller_with_index": ("smaller", "place"),
    "row_maximum_with_index": ("best", "place"), "row_minimum_with_index": ("best", "place"),
}  # fmt: skip
"""Function with several results -> their names."""
STATES = {"_mean": "mean_so_far", "_m2": "squares_so_far", "_weight": "count_so_far"}
"""Suffix of Inductor's names for running moments -> readable name."""
OPERATOR_WORDS = {ast.Add: "sum_of", ast.Sub: "difference", ast.Mult: "scaled", ast.Div: "quotient", ast.BitAnd: "both",
    ast.BitOr: "either"}  # fmt: skip


def roles_of(kernel: LoweredKernel) -> dict[str, str]:
    """Returns the readable name of an element of each side, by Inductor's letter."""
    if kernel.dot:
        return ROLES["product"]
    if kernel.kind != "pointwise":
        return ROLES["rows"]
    return ROLES["element" if len(kernel.blocks) == 1 else "grid"]


def plural(role: str) -> str:
    """Returns the plural the text uses for a role of an axis, such as `rows`."""
    return PLURAL.get(role, f"{role}s")


def result_name(words: str, kernel: LoweredKernel, sources: list[str]) -> str:
    """Returns the name of a kernel's result: after the kernel, or after the copied tensor.
    sources: tensors read.
    """
    if kernel.operators == COPY and len(sources) == 1 and re.fullmatch(r"[\w.\[\]]+", sources[0]):
        return f"{re.sub(r'(_reordered)+$', '', simple_path(sources[0]))}_reordered"
    return f"{words}_result" if words in ("sum", "copy") else words


class Names:
    """Assigns unique readable names to the variables of a kernel."""

    def __init__(self, kernel: LoweredKernel, parameters: dict[str, str]) -> None:
        """Prepares the names. parameters: Inductor's name -> readable name, shared by parameters
        of equal value.
        """
        self._roles = roles_of(kernel)
        self._names: dict[str, str] = {}
        self._used_names: set[str] = set(RESERVED_WORDS)
        for old, new in parameters.items():
            self._names[old] = new
            self._used_names.add(new)
        for letter, role in self._roles.items():
            self._give_side(letter, role)

    def _give_side(self, letter: str, role: str) -> None:
        block = f"{letter.upper()}BLOCK"
        for old, new in (
            (block, f"{role.upper()}_BLOCK"), (f"{letter}index", role), (f"{letter}mask", f"{role}_exists"),
            (f"{letter}offset", f"first_{role}"), (f"{letter}base", f"{role}_in_block"),
            (f"{letter}numel", plural(role)),
        ):  # fmt: skip
            if old not in self._names:
                self._names[old] = self._unique(new)

    def _unique(self, name: str) -> str:
        return unique_name(name, self._used_names)

    def give(self, function: ast.FunctionDef) -> None:
        """Names all variables of the function by their values."""
        accumulators: dict[str, str] = {}
        for name, value in assignments(function):
            used = re.findall(r"\b_tmp\d+\b", ast.unparse(value))
            if not name.startswith("_tmp"):
                accumulators |= dict.fromkeys(used, name)
        for name, value in assignments(function):
            if name not in self._names and (
                state := STATES.get(re.sub(r"^tmp\d+(_next)?", "", name))
            ):
                self._names[name] = self._unique(state)
            elif name not in self._names and not name.startswith("_tmp"):
                self._names[name] = self._unique(self._word(name, value, function))
        self._give_several(function)
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and node.id not in self._names
            ):
                base = self._names.get(accumulators.get(node.id, ""), "")
                self._names[node.id] = self._unique(f"{base}_so_far" if base else "accumulator")

    def _give_several(self, function: ast.FunctionDef) -> None:
        """Names the results of functions with several results."""
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                called = node.value.func if isinstance(node.value, ast.Call) else node.value
                words = RESULTS_OF_TUPLES.get(ast.unparse(called), ())
                for target, word in zip(node.targets[0].elts, words, strict=False):
                    if isinstance(target, ast.Name) and target.id not in self._names:
                        self._names[target.id] = self._unique(word)

    def _word(self, name: str, value: ast.expr, function: ast.FunctionDef) -> str:
        text = ast.unparse(value)
        if re.match(r"[xyz]\d+$|r\d_\d+$", name):
            return self._index_word(value)
        if text.startswith("tl.load"):
            pointer = re.search(r"\b(?:in|out|in_out)_ptr\d+\b", text)
            return self._names[pointer[0]].removesuffix("_pointer") if pointer else "value"
        if re.fullmatch(r"_tmp\d+\[.*\]", text):
            return "product"
        if isinstance(value, ast.Call):
            called = ast.unparse(value.func)
            return next((word for part, word in RESULTS if part in called), "value")
        if isinstance(value, ast.Subscript):
            return next((word for part, word in RESULTS if part in text), "value")
        if isinstance(value, ast.BinOp):
            return OPERATOR_WORDS.get(type(value.op), "value")
        return "condition" if isinstance(value, ast.Compare) else "value"

    def _index_word(self, value: ast.expr) -> str:
        """Returns a name for an index: width_index for `column % width`, outer_index for a
        quotient.
        """
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod):
            size = ast.unparse(value.right)
            if size.isidentifier():
                size_name = self._names.get(size, "")
                return f"{'inner' if any(c in size_name for c in COMPOUND) else size_name}_index".lstrip(
                    "_"
                )
            return f"index_of_{size}" if size.isdigit() else "index"
        return "outer_index"

    def __call__(self, name: str) -> str:
        """Returns the readable name, or the name itself if there is none."""
        return self._names.get(name, name)
