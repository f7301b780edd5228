"""The candidate's file: imports, helpers, kernels, and `ModelNew` with the constructor of the problem's own `Model`."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.policies.inductor.draft import SPLIT_MARK
from kernelwright.policies.inductor.functions.operators.attention import uses_library
from kernelwright.policies.inductor.lowering.generating import GeneratedCode
from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.syntax import argument_names
from kernelwright.policies.inductor.tracing.graph import TracedModel
from kernelwright.policies.inductor.values.complex_numbers import (
    COMPLEX,
    rank_in_forward,
    unwrapped_path,
)
from kernelwright.policies.inductor.writing.expressions.host_numbers import move_numbers_to_host
from kernelwright.policies.inductor.writing.helpers import BODIES, helpers_for
from kernelwright.policies.inductor.writing.kept_definitions import model_and_what_it_needs
from kernelwright.policies.inductor.writing.kernel_text import WrittenKernel, write_kernel
from kernelwright.policies.inductor.writing.kernels import LoweredKernel, kernels_of
from kernelwright.policies.inductor.writing.launch import Host, WrittenLaunch
from kernelwright.policies.inductor.writing.launches import (
    keep_channels_last,
    name_buffers,
    read_call,
)
from kernelwright.policies.inductor.writing.lines import break_line, break_long_lines
from kernelwright.policies.inductor.writing.loops import LoopReading, host_lines
from kernelwright.policies.inductor.writing.nested_inputs import (
    is_mentioned,
    names_of_nested,
    rename_paths,
)
from kernelwright.policies.inductor.writing.products.attention import (
    FLASH,
    FLASH_TEXT,
    is_attention,
)
from kernelwright.policies.inductor.writing.products.descriptors import (
    DESCRIPTOR_HELPERS,
)
from kernelwright.policies.inductor.writing.products.index_type import INDEX_TYPE
from kernelwright.policies.inductor.writing.products.tiles import note_extents
from kernelwright.policies.inductor.writing.repeats.blocks_of_forward import with_functions
from kernelwright.policies.inductor.writing.repeats.merging import merge_kernels
from kernelwright.policies.inductor.writing.tensor_forms import (
    forms_of_arguments,
    forms_of_buffers,
    input_layouts,
    matrices_of,
)
from kernelwright.policies.inductor.writing.words.docstrings import docstring

SPLIT_HELPER = '''def split(blocks):
    """Blocks over two axes of a grid, of which neither may be over 65,535."""
    more = max(1, triton.cdiv(blocks, 65535))
    return triton.cdiv(blocks, more), more'''
BLOCK_FOR = '''def block_for(extent, most):
    """Of most, an eighth of it and so on the smallest that holds the extent."""
    while most // 8 >= max(extent, 1):
        most //= 8
    return most'''
TILE_FOR = '''def tile_for(extent, most):
    """A power of two that holds the extent, between 16 and most."""
    return min(most, max(16, triton.next_power_of_2(extent)))'''
RESERVED_NAMES = {
    "allocate", "persistent_grid", "is_aligned", "fit_head", "flash_attention", "flash_attention_kernel",
    "device", "self", "block", "split", "block_for", "tile_for", "index_type", "torch", "nn", "triton", "tl",
    "libdevice", "math", "inf", "nan", "range"}  # fmt: skip
"""Reserved names in forward."""
IMPORTS = {
    "import math": r"(?<!\.)\bmath\.", "import torch": r"\btorch\.",
    "import torch.nn as nn": r"\bnn\.", "import triton": r"\btriton\.",
    "import triton.language as tl": r"\btl\.",
    "from triton.language.extra import libdevice": r"\blibdevice\.",
    "from math import inf, nan": r"(?<![\w\"'.-])(inf|nan)\b(?![\"'])",
}  # fmt: skip
"""Import -> pattern of the code that needs the import."""


@dataclass(frozen=True)
class WrittenDraft:
    """Text of a draft with its number of kernels and library calls."""

    source: str
    kernels: int
    library_calls: tuple[str, ...]


def write_candidate(
    traced: TracedModel, generated: GeneratedCode, tf32: bool = False
) -> WrittenDraft:
    """Writes the candidate's file. Raises DraftRefused if Inductor's text has no plain form.

    tf32: fp32 convolutions multiply in tf32, as the library's do by default.
    """
    kernels = kernels_of("\n".join([generated.text, *generated.bodies]))
    if not kernels and (uses_library() or not is_attention(generated.text)):
        raise DraftRefused(
            f"nothing is left for a kernel: it is {_remaining_statements(generated.text)}"
        )
    names = _symbol_names(traced)
    used_names = {*names.values(), *RESERVED_NAMES, *traced.contiguous} | argument_names(
        traced.text.forward
    )
    # 1. Read Inductor's host code: launches, loops and library calls.
    looped = LoopReading(traced, generated, kernels, names, used_names)
    host = read_call(
        generated.text, kernels, traced.arguments, names, looped, input_layouts(traced, names)
    )
    # 2. Merge equal kernels, and name the buffers after their kernels.
    merge_kernels(kernels, host)
    for launch in host.launches():
        if launch.kernel.dot:
            note_extents(launch, traced, names)
    if generated.channels_last:
        keep_channels_last(host)
    name_buffers(host, used_names, matrices_of(traced))
    # 3. Write each launched kernel with the names of its launches.
    written = _written_kernels(traced, kernels, host, names, tf32)
    # 4. Write forward, with repeated blocks as functions.
    lines, functions = _forward_lines(traced, host, written, names)
    lines = [part for line in lines for part in break_line(line, 8)]
    lines, constants = _constants(lines, generated)
    # 5. Keep the problem's constructor, and the definitions that it needs.
    needed, model = model_and_what_it_needs(traced, lines, constants)
    needed = [break_long_lines(n) for n in needed]
    head, between, forward = model.partition("\n\n    def forward(")
    model = break_long_lines(head) + between + forward
    helper_functions = dict.fromkeys(
        f"@triton.jit\n{ast.unparse(f)}"
        for k in written
        for f in map(_without_decorators, kernels[k].helpers)
    )
    # 6. Assemble the file: helpers, kernels, host functions, ModelNew.
    functions = [break_long_lines(f) for f in functions]
    called = "\n".join([*functions, model])
    flash = [FLASH_TEXT.rstrip()] * (f"{FLASH}(" in called)
    bodies = [kernel.text for kernel in written.values()]
    texts = [
        *helpers_for("\n".join([*helper_functions, *bodies])),
        *helper_functions,
        *bodies,
        *flash,
        *_host_helpers(called),
        *functions,
        *(n for n in needed if not _is_import(n)),
        model,
    ]
    whole = "\n\n\n".join(texts)
    imports = [i for i, used in IMPORTS.items() if re.search(used, whole)]
    imports += [n for n in needed if _is_import(n) and n not in imports and "__future__" not in n]
    return WrittenDraft(
        _head(traced, host) + "\n".join(imports) + "\n\n\n" + whole + "\n",
        len(written) + len(flash),
        tuple(host.library),
    )


def _written_kernels(
    traced: TracedModel,
    kernels: dict[str, LoweredKernel],
    host: Host,
    names: dict[str, str],
    tf32: bool,
) -> dict[str, WrittenKernel]:
    """Writes the launched kernels, with the names of their launches."""
    launches: dict[str, list[WrittenLaunch]] = {name: [] for name in kernels}
    for launch in host.launches():
        for name, kernel in kernels.items():
            if launch.kernel is kernel:
                launches[name].append(launch)
    for kernel in kernels.values():
        kernel.single, kernel.library_tf32 = _is_single(traced), tf32 and _library_tf32()
    launched = [name for name in kernels if launches[name]]
    forms = forms_of_arguments(traced, names) | forms_of_buffers(host)
    written: dict[str, WrittenKernel] = {}
    for name in launched:
        move_numbers_to_host(kernels[name], launches[name])
        text = docstring(kernels[name], launches[name], forms)
        written[name] = write_kernel(kernels[name], launches[name], text, len(launched))
    return written


def _host_helpers(called: str) -> list[str]:
    """Returns the host functions a text calls."""
    helpers = {
        "*split(": SPLIT_HELPER,
        "block_for(": BLOCK_FOR,
        "tile_for(": TILE_FOR,
        "index_type(": INDEX_TYPE,
        **DESCRIPTOR_HELPERS,
    }
    return [text for call, text in helpers.items() if call in called]


def _head(traced: TracedModel, host: Host) -> str:
    lines = ["# Drafted by torch's compiler (Inductor), and rewritten. Block sizes are not tuned."]
    if any(launch.kernel.in_parts for launch in host.launches()):
        lines.append(SPLIT_MARK)
    if traced.fixed:
        lines.append(f"# Right at the problem's own size only of: {', '.join(traced.fixed)}.")
    if traced.equalities:
        lines.append(
            f"# Right only where {' and '.join(f'{a} equals {b}' for a, b in traced.equalities)}."
        )
    if host.library:
        lines.append(f"# Left to torch: {', '.join(dict.fromkeys(host.library))}.")
    return "\n".join(lines) + "\n"


def _is_single(traced: TracedModel) -> bool:
    """True if every floating-point input is fp32."""
    tensors = [value for value in traced.flat if hasattr(value, "is_floating_point")]
    return all(
        str(value.dtype) == "torch.float32" for value in tensors if value.is_floating_point()
    )


def _library_tf32() -> bool:
    """Whether cuDNN may convolve fp32 by tf32, which is torch's default: the problem's file has been executed here."""
    import torch

    return bool(torch.backends.cudnn.allow_tf32)


def _without_decorators(function: ast.FunctionDef) -> ast.FunctionDef:
    function.decorator_list = []
    return function


def _is_import(text: str) -> bool:
    return bool(re.match(r"(from \S+ )?import ", text))


def _remaining_statements(text: str) -> str:
    called = dict.fromkeys(re.findall(r"(?:extern_kernels|torch\.ops\.aten)\.(\w+)", text))
    return ", ".join(called) or "views alone"


def _symbol_names(traced: TracedModel) -> dict[str, str]:
    """Returns the name of each symbol in forward; no two places have the same name, and none has an input's."""
    name_of_symbol: dict[str, str] = {}
    used_names = set(traced.contiguous) | RESERVED_NAMES | argument_names(traced.text.forward)
    by_place: dict[str, str] = {}
    for symbol, expression in traced.symbols.items():
        if expression in by_place or not re.search(r"[a-zA-Z]", expression):
            name_of_symbol[symbol] = by_place.get(expression, expression)
            continue
        base = traced.names.get(symbol) or next(
            (n for s, n in traced.names.items() if traced.symbols[s] == expression), ""
        )
        name, number = base or "size", 2
        while name in used_names:
            name, number = f"{base or 'size'}_{number}", number + 1
        used_names.add(name)
        name_of_symbol[symbol] = by_place[expression] = name
    return name_of_symbol | _window_names(traced, name_of_symbol, used_names)


def _window_names(
    traced: TracedModel, names: dict[str, str], used_names: set[str]
) -> dict[str, str]:
    """Names the sizes windows leave: `height_2` of a `height`."""
    bases, window_names = dict(names), {}
    for expression, symbol in traced.mode.windows.symbols.items():
        if str(symbol) in names:  # tracing found it equal to another one
            continue
        roots = {bases.get(str(s), "") for s in expression.free_symbols}
        base = next(iter(roots)) if len(roots) == 1 else ""
        bases[str(symbol)] = base = base if base.isidentifier() else "extent"
        number = 2
        while (name := f"{base}_{number}") in used_names:
            number += 1
        used_names.add(name)
        window_names[str(symbol)] = name
    return window_names


def _forward_lines(
    traced: TracedModel, host: Host, written: Mapping[str, WrittenKernel], names: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Returns the lines of forward, and the texts of functions for its repeated blocks."""
    body = host_lines(host, written)
    returned = iter(host.returned)
    body.append("return " + _returned(traced.form, returned))
    text = "\n".join(body)
    used = [path for path in traced.contiguous if is_mentioned(path, text)]
    of_nests = names_of_nested(used, {*names.values(), *traced.text.names, *RESERVED_NAMES}, text)
    lines = [f"{of_nests.get(path, path)} = {path}.contiguous()" for path in used]
    body = rename_paths(body, of_nests)
    if re.search(r"\bdevice=device\b", text):
        lines.append(f"device = {_device(traced)}")
    used_names = {*RESERVED_NAMES, *(launch.kernel.name for launch in host.launches()), *BODIES}
    used_names |= traced.text.names
    used_names |= {
        n.name for n in ast.walk(traced.text.tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)
    }
    body, functions = with_functions(body, used_names)
    sizes = rename_paths(_size_lines(traced, names, text), of_nests)
    return _required_lines(traced) + lines + sizes + body, functions


def _required_lines(traced: TracedModel) -> list[str]:
    """Refuses a call whose sizes the draft is not for."""
    if not traced.required:
        return []
    sizes, required_values = (
        ", ".join(map(unwrapped_path, column)) for column in zip(*traced.required, strict=True)
    )
    several = len(traced.required) > 1
    return [
        f"if ({sizes}) != ({required_values}):" if several else f"if {sizes} != {required_values}:",
        '    raise ValueError("a size is not the one that this kernel is for: see the first lines of its file")',
    ]


def _device(traced: TracedModel) -> str:
    tensors = [
        p for p, v in zip(traced.arguments, traced.flat, strict=True) if hasattr(v, "device")
    ]
    inputs = [p for p in tensors if not unwrapped_path(p).startswith("self.")]
    if not tensors:
        raise DraftRefused("there is no tensor to take the device from")
    return f"{unwrapped_path((inputs or tensors)[0])}.device"


def _size_lines(traced: TracedModel, names: dict[str, str], text: str) -> list[str]:
    """Returns the lines reading the sizes, a line per tensor."""
    windows = _window_lines(traced, names, text)
    text = "\n".join([text, *windows])
    used: dict[str, str] = {}
    for symbol, name in names.items():
        if symbol in traced.symbols and re.search(rf"(?<![\w.]){name}\b(?!\s*=)", text):
            used.setdefault(name, traced.symbols[symbol])
    ranks = {
        unwrapped_path(p): rank_in_forward(p, v)
        for p, v in zip(traced.arguments, traced.flat, strict=True)
        if hasattr(v, "dim")
    }
    by_tensor: dict[str, dict[int, str]] = {}
    lines = []
    for name, expression in used.items():
        if (shape_match := re.fullmatch(r"(.*)\.shape\[(\d+)\]", expression)) and shape_match[
            1
        ] in ranks:
            by_tensor.setdefault(shape_match[1], {})[int(shape_match[2])] = name
        elif name != expression:
            lines.append(f"{name} = {expression}")
    grouped = []
    for tensor, axis_names in by_tensor.items():
        if len(axis_names) == 1:
            [(axis, size)] = axis_names.items()
            grouped.append(f"{size} = {tensor}.shape[{axis}]")
        else:
            grouped.append(
                f"{', '.join(axis_names.get(i, '_') for i in range(ranks[tensor]))} = {tensor}.shape"
            )
    return grouped + lines + windows


def _window_lines(traced: TracedModel, names: dict[str, str], text: str) -> list[str]:
    """Returns lines such as `height_2 = (height + 1) // 2`, in order of dependence."""
    from torch.utils._sympy.printers import PythonPrinter

    lines: list[str] = []
    for expression, symbol in reversed(traced.mode.windows.symbols.items()):
        name = names[str(symbol)]
        if str(symbol) in traced.symbols or not re.search(
            rf"(?<![\w.]){name}\b", "\n".join([text, *lines])
        ):
            continue
        value = re.sub(
            r"\b[a-z]+\d+\b", lambda m: names.get(m[0], m[0]), PythonPrinter().doprint(expression)
        )
        lines.insert(0, f"{name} = {ast.unparse(ast.parse(value))}")
    return lines


def named_fields(form: object) -> tuple[str, ...]:
    """The fields of a dataclass or named tuple of the problem's own; none of anything else."""
    if type(form).__module__ != "problem":
        return ()
    if dataclasses.is_dataclass(form):
        return tuple(f.name for f in dataclasses.fields(form) if f.init)
    return tuple(getattr(form, "_fields", ()))


def _returned(form: object, tensors: object) -> str:
    """The outputs, in the form in which Model gives them."""
    if fields := named_fields(form):
        words = [f"{name}={_returned(getattr(form, name), tensors)}" for name in fields]
        return f"{type(form).__name__}({', '.join(words)})"
    if isinstance(form, dict):
        return "{" + ", ".join(f"{k!r}: {_returned(v, tensors)}" for k, v in form.items()) + "}"
    if isinstance(form, list | tuple):
        inner = [_returned(v, tensors) for v in form]
        return (
            f"[{', '.join(inner)}]"
            if isinstance(form, list)
            else f"({', '.join(inner)}{',' * (len(inner) == 1)})"
        )
    tensor = str(next(tensors))  # type: ignore[call-overload]
    return f"torch.view_as_complex({tensor})" if form == COMPLEX else tensor


def _constants(lines: list[str], generated: GeneratedCode) -> tuple[list[str], dict[str, str]]:
    """Tensors of numbers forward had written in it become buffers; their texts, by name."""
    constant_texts: dict[str, str] = {}
    for name, value in generated.constants.items():
        if any(re.search(rf"\b{name}\b", line) for line in lines):
            new = f"constant_{len(constant_texts) + 1}"
            constant_texts[new] = f"torch.tensor({value.tolist()}, dtype={value.dtype})"
            lines = [re.sub(rf"\b{name}\b", f"self.{new}", line) for line in lines]
    return lines, constant_texts
