"""Reads properties from a candidate's text without running it.

Only syntax decides a verdict; everything else about the text is advice.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from kernelwright.tools.markdown.fenced_code import ENTRY_POINT
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.problem import source_hash
from kernelwright.tools.report import Failure, Fault, SourceLine, clean_text

MAX_SOURCE_CHARACTERS = 512 * 1024
"""Characters of a candidate that are read."""

MAX_WORD_CHARACTERS = 200
"""Characters of a name or a number that are looked at."""
_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    | {kind for name in ("FSTRING_MIDDLE",) if (kind := getattr(tokenize, name, None)) is not None}
)
_CODE_LINE = re.compile(
    r"^\s*(?:import \w|from [\w.]+ import|def \w+\s*\(|class \w+\s*[(:]|@\w|\w+ ?= ?\S|\w+(?:\.\w+)*\()",
    re.MULTILINE,
)
"""Pattern which marks a text that does not parse as broken code; without a match it is prose."""


def read_source(text: str, allow_import: tuple[str, ...] = ()) -> Failure | None:
    """Returns why the text cannot be a candidate: no code, not Python, no `class ModelNew`, no
    forward, no Triton kernel.

    None if it can. allow_import: packages whose kernels count as the candidate's own; a text
    which uses them need not define a kernel, nor import triton.
    """
    if not text.strip():
        return Failure(fault=Fault.NO_CODE, message="there is no code")
    if len(text) > MAX_SOURCE_CHARACTERS:
        return Failure(
            fault=Fault.NO_CODE,
            message=f"the code is {len(text)} characters long; at most {MAX_SOURCE_CHARACTERS} are read",
        )
    try:
        tree = parse_module(text)
    except SyntaxError as error:
        if not _CODE_LINE.search(text):
            return Failure(
                fault=Fault.NO_CODE,
                message="there is no code: not one line that imports, defines or decorates",
            )
        return _syntax_failure(error)
    except (ValueError, RecursionError, MemoryError) as error:
        return Failure(fault=Fault.SYNTAX, message=f"not Python: {clean_text(error, 200)}")
    if ENTRY_POINT not in _module_names(tree):
        return Failure(
            fault=Fault.ENTRY_POINT,
            message=f"no `class {ENTRY_POINT}`: a candidate defines `class {ENTRY_POINT}(nn.Module)`",
        )
    if not allow_import and not _kernel_functions(tree) and not _imports_triton(tree):
        return Failure(
            fault=Fault.NO_KERNEL,
            message="no Triton kernel: triton is not even imported, and no function is decorated with @triton.jit",
        )
    return None


def kernels(text: str) -> tuple[str, ...]:
    """Returns the names of functions under @triton.jit (also with autotune and heuristics), in
    order.

    Empty if the text does not parse.
    """
    try:
        return tuple(f.name for f in _kernel_functions(parse_module(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def candidate_hash(text: str) -> str:
    """Returns SHA-256 over the syntax tree, 64 hex digits: independent of layout, comments and
    docstrings."""
    return source_hash(text)


def _syntax_failure(error: SyntaxError) -> Failure:
    text = (error.text or "").rstrip("\n")
    column = None if error.offset is None else max(error.offset - 1, 0)
    location = (
        None
        if error.lineno is None
        else SourceLine(line=error.lineno, column=column, text=clean_text(text, 400))
    )
    at = f" at line {error.lineno}" if error.lineno else ""
    return Failure(
        fault=Fault.SYNTAX,
        message=f"syntax error{at}: {clean_text(error.msg, 300)}",
        where=location,
    )


def _module_names(tree: ast.Module) -> set[str]:
    """Names that a module binds at its top level, also inside `if` and `try`."""
    names: set[str] = set()
    for node in _top_level(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _top_level(getattr(node, field, []))


def _kernel_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions with a decorator that ends in `jit` of triton or gluon, whatever the import is
    called; nested ones too.
    """
    nodes = list(ast.walk(tree))
    names = _jit_names(nodes)
    messages = [
        n
        for n in nodes
        if isinstance(n, ast.FunctionDef) and any(_is_jit(d, names) for d in n.decorator_list)
    ]
    calls = [n for n in nodes if isinstance(n, ast.Call) and _is_jit(n.func, names)]
    wrapped = {a.id for n in calls for a in n.args if isinstance(a, ast.Name)}
    messages += [
        n
        for n in nodes
        if isinstance(n, ast.FunctionDef) and n.name in wrapped and n not in messages
    ]
    return sorted(messages, key=lambda n: n.lineno)


def _jit_names(nodes: list[ast.AST]) -> set[str]:
    """Returns the module's names of triton.jit, if imported by name."""
    imports = [
        n
        for n in nodes
        if isinstance(n, ast.ImportFrom) and (n.module or "").split(".")[0] == "triton"
    ]
    return {"jit"} | {
        a.asname or a.name for n in imports for a in n.names if a.name in ("jit", "gluon")
    }


def _imports_triton(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        names = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if any(name.split(".")[0] == "triton" for name in names):
            return True
    return False


def _is_jit(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        return node.attr == "jit" and owner not in ("torch", "numba", "jax")
    return isinstance(node, ast.Name) and node.id in names


_SUSPICIOUS: tuple[tuple[str, str], ...] = (
    (r"\b(?:gc\.get_objects|sys\._getframe|inspect\.stack|inspect\.currentframe|ctypes|__globals__|__closure__)\b",
    "reaches into the interpreter or the stack"),
    (r"\b(?:os\.fork|os\._exit|os\.kill|subprocess|socket|multiprocessing)\b",
    "starts or ends processes, or uses the network"),
    (r"\b(?:threading|ThreadPoolExecutor|asyncio)\b", "starts threads"),
    (r"\bsetattr\s*\(\s*(?:torch|triton|tl|F)\b|^\s*(?:torch|triton|tl)(?:\.\w+)+\s*=[^=]",
    "assigns into torch or triton"),
    (r"\b\w*(?:cache|memo)\w*\s*\[|lru_cache|functools\.cache",
    "keeps a cache: answers kept from other inputs are refused"),
    (r"\bdata_ptr\(\)\s*(?:==|in\b)|_version\b", "compares pointers or versions of tensors"),
    (r"\btorch\.cuda\.(?:Stream|CUDAGraph|graph)\b", "uses streams or CUDA graphs: the clock waits for all of them"),
    (r"\bperf_counter|time\.time\(|torch\.cuda\.Event|Event\.elapsed_time", "reads or touches clocks"),
)  # fmt: skip


def advice(text: str) -> tuple[str, ...]:
    """Returns remarks for a reader, without influence on the verdict, because a text can be
    written to look like anything.
    """
    if len(text) > MAX_SOURCE_CHARACTERS:
        return ()
    code = _without_text(text)
    messages = [
        message for pattern, message in _SUSPICIOUS if re.search(pattern, code, re.MULTILINE)
    ]
    return tuple(messages + _kernel_advice(text))


def _kernel_advice(text: str) -> list[str]:
    try:
        tree = parse_module(text)
        names = [f.name for f in _kernel_functions(tree)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if not names:
        return []
    nodes = list(ast.walk(tree))
    used = {n.id for n in nodes if isinstance(n, ast.Name)} | {
        n.attr for n in nodes if isinstance(n, ast.Attribute)
    }
    unused = [name for name in names if name not in used]
    messages = [f"kernel {name} is never used by name" for name in unused]
    if any(
        _calls_torch(handler) for n in nodes if isinstance(n, ast.Try) for handler in n.handlers
    ):
        messages.append("an except clause calls torch: a fallback is seen and refused")
    dots = [
        n
        for n in nodes
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "dot"
    ]
    if any(not {k.arg for k in n.keywords} & {"input_precision", "allow_tf32"} for n in dots):
        messages.append(
            'tl.dot on float32 is tf32 by default: input_precision="ieee" or "tf32x3" keeps float32'
        )
    return messages


def _calls_torch(node: ast.AST) -> bool:
    calls = [
        n.func
        for n in ast.walk(node)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    ]
    return any(_root(f) in ("torch", "F") for f in calls)


def _root(node: ast.AST) -> str:
    """Returns the first name of a chain of attributes; empty for other expressions."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _without_text(text: str) -> str:
    """Removes comments and string contents, so that words in prose are no evidence; cuts names at
    MAX_WORD_CHARACTERS, which bounds the time of patterns.
    """
    lines: list[list[str]] = [[]]
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NEWLINE, tokenize.NL):
                lines.append([])
            elif token.type not in _NO_CODE:
                lines[-1].append(
                    '""' if token.type == tokenize.STRING else token.string[:MAX_WORD_CHARACTERS]
                )
    except (tokenize.TokenError, SyntaxError, IndentationError, ValueError, RecursionError):
        pass
    return "\n".join(_joined(line) for line in lines)


def _joined(tokens: list[str]) -> str:
    """Joins tokens as a formatter would: no space around a dot, before a bracket or after an
    opening bracket.
    """
    return re.sub(r" ?([.\[\](){},:]) ?", r"\1", " ".join(tokens))
