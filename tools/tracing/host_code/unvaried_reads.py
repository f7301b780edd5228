"""Finds reads of host code beside its arguments, weights and constants that no verdict varies:
streams, hooks, threads, settings of libraries, names and times.

An answer may depend on such a value by arithmetic, without any choice. So the vocabulary of host
code is closed: tensors and their forms, layers, launches, properties of a GPU, and Python's pure
functions. Every other name is a read of the surroundings. Trusted: reads a source, and does not run
it.

Example: `scale = 1.0 / threading.active_count()` reads `threading.active_count`; `triton.cdiv(n,
BLOCK)` is vocabulary.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
import types
from collections.abc import Iterator, Mapping

from kernelwright.tools.tracing.host_code.own_objects import NAMING_CALLS, OwnObjects

PURE_MODULES = frozenset({
    "math", "typing", "typing_extensions", "collections", "dataclasses", "enum", "functools", "itertools", "operator",
    "abc", "numbers", "types", "copy", "contextlib", "packaging", "__future__",
})  # fmt: skip
"""Modules whose functions depend on their arguments alone."""
TORCH_ROOMS = (
    "torch.nn", "torch.autograd", "torch.linalg", "torch.fft", "torch.special", "torch.library", "torch.fx.wrap",
    "torch.nested", "torch.onnx.is_in_onnx_export",
)  # fmt: skip
"""Parts of torch without settings and states that an answer could follow."""
TORCH_NAMES = frozenset({
    "Tensor", "Size", "device", "dtype", "layout", "memory_format", "Generator", "finfo", "iinfo", "is_tensor",
    "no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "jit", "compile", "compiler", "manual_seed",
    "channels_last", "channels_last_3d", "contiguous_format", "preserve_format", "strided", "SymInt", "tensor", "pi",
    "inf", "nan", "e", "version", "__version__", "get_default_dtype", "ops", "_assert", "is_grad_enabled",
    "is_autocast_enabled", "get_autocast_dtype", "get_autocast_gpu_dtype", "broadcast_shapes", "amp", "dtypes",
})  # fmt: skip
"""Of torch itself, beside its operators and dtypes. Gradients and autocast are varied by a verdict."""
TORCH_CUDA_NAMES = frozenset({
    "device", "device_of", "is_available", "get_device_properties", "get_device_capability", "get_device_name",
    "is_bf16_supported", "synchronize", "current_device", "amp", "device_count", "FloatTensor", "HalfTensor", "Stream",
    "Event", "stream", "current_stream", "graph", "CUDAGraph", "wait_stream", "wait_event", "record_event",
})  # fmt: skip
"""Properties, synchronisation and ordering of a GPU."""
OTHER_PATHS = frozenset({
    "logging.getLogger", "logging.info", "logging.debug", "logging.warning", "warnings.warn",
})  # fmt: skip
"""Functions of other modules that tell a user something and give nothing back."""
VARIED_PATHS = frozenset({"time.time", "time.monotonic", "time.perf_counter"})
"""Readings of surroundings that a verdict varies (tools/tracing/surroundings)."""
TRITON_NAMES = frozenset({
    "jit", "autotune", "heuristics", "Config", "cdiv", "next_power_of_2", "language", "constexpr_function", "tools",
    "tensor_descriptor", "TensorDescriptor", "set_allocator", "runtime", "driver", "active", "utils", "JITFunction",
    "get_device_properties", "get_current_target", "get_active_torch_device", "get_current_device", "target", "backend",
    "arch", "warp_size", "__version__", "OutOfResources", "Autotuner", "Heuristics", "autotuner", "compiler", "errors",
    "experimental", "gluon", "mxfp", "MXFP4Tensor", "MXScaleTensor", "impl", "reinterpret", "TensorWrapper",
})  # fmt: skip
ABILITIES = frozenset({
    "multi_processor_count", "name", "major", "minor", "warp_size", "total_memory", "max_threads_per_multi_processor",
    "shared_memory_per_block_optin", "shared_memory_per_block", "regs_per_multiprocessor", "gcnArchName", "backend",
    "arch", "max_shared_mem", "multiprocessor_count", "index", "type", "max", "min", "tiny", "eps", "bits",
    "smallest_normal", "resolution",
})  # fmt: skip
"""Attributes of a GPU's properties, of a device and of the limits of a dtype."""
OF_KERNELS = frozenset({
    "run", "warmup", "kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook", "configs",
    "best_config", "cache", "arg_names", "apply", "save_for_backward", "saved_tensors", "mark_non_differentiable",
    "mark_dirty", "set_materialize_grads", "needs_input_grad", "block_shape", "base", "shape", "strides", "value",
    "from_tensor", "all_kwargs", "ir_override", "from_dict", "register_fake", "register_autograd", "register_kernel",
    "impl", "define", "default", "setup_context", "once_differentiable", "key", "from_default", "wait_stream",
    "wait_event", "record_event", "record", "replay", "info", "debug", "warning", "parametrizations", "original",
    "original0", "original1", "metadata", "shared", "num_regs", "n_regs", "n_spills",
})  # fmt: skip
"""Attributes of kernels, of their configurations and descriptors, of functions with a gradient, and of streams."""
PRIVATE_VOCABULARY = frozenset({
    "__class__", "__init__", "__name__", "__version__", "__getitem__", "__call__", "__len__", "_init_handles",
})  # fmt: skip
"""Names with an underscore that say nothing of the surroundings; `_init_handles` compiles a kernel."""
STATES_OF_TENSORS = frozenset({
    "grad_fn", "is_leaf", "retains_grad", "output_nr", "is_shared", "is_pinned", "register_hook", "storage",
    "untyped_storage", "get_device", "names", "has_names", "is_inference", "is_coalesced", "is_set_to", "share_memory_",
    "pin_memory",
})  # fmt: skip
"""States of tensors: their GPU and history."""
PURE_BUILTINS = frozenset({
    "abs", "all", "any", "bool", "bytes", "callable", "chr", "classmethod", "complex", "dict", "divmod", "enumerate",
    "filter", "float", "format", "frozenset", "int", "isinstance", "issubclass", "iter", "len",
    "list", "map", "max", "min", "next", "object", "ord", "pow", "print", "property", "range", "repr", "reversed",
    "round", "set", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "zip",
    "NotImplemented", "NotImplementedError", "Ellipsis", "bin", "hex", "oct", "bytearray",
})  # fmt: skip


LOOKING_UP = frozenset({"getattr", "hasattr", "setattr", "delattr"})
"""Functions of Python that look an attribute up by its name; as values they could look up any."""
PUBLIC_WITH_UNDERSCORE = ("__version__", "_assert", "__name__")
TEXTS_OF_VALUES = frozenset(
    {"str", "repr", "format", "ascii", "bin", "hex", "chr", "bytes", "bytearray"}
)
"""Functions of Python that write a value as text, whose digits and names arithmetic may count."""
NAMES_OF_TYPES = frozenset({"__name__", "__class__"})
TELLING_CALLS = frozenset({
    "print", "warn", "info", "debug", "warning", "error", "isinstance", "issubclass", "_assert", "_check",
    "record_function", *NAMING_CALLS,
})  # fmt: skip
"""Calls whose arguments are told to a user, or name a tensor."""
TELLING_METHODS = frozenset({"extra_repr", "__repr__", "__str__"})
"""Methods that a text may define for a user, and not call."""
TABLES_OF_ADDRESSES = frozenset({"torch.tensor", "torch.as_tensor"})
OF_ADDRESSES = ast.Mod | ast.BitAnd
"""Operators that ask an address for its alignment; a result that never varied is told as a choice."""
DYNAMIC_PATHS = frozenset({"operator.attrgetter", "operator.methodcaller"})


def unvaried_reads(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each reading of the surroundings in the host code of a text."""
    reader = _Reader(tree)
    reader.visit(tree)
    yield from dict.fromkeys(reader.found)


class _Reader(ast.NodeVisitor):
    """Walks through host code: kernels, which no host runs, and annotations are left out."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[int, str]] = []
        self._imports = _imports(tree)
        self._own = OwnObjects(tree, self._path)
        self._variables = _variables(tree)
        self._tells = 0
        """Constructs around the node whose texts decide nothing, or decide as a choice that is followed."""

    def _note(self, node: ast.expr) -> None:
        self.found.append((node.lineno, ast.unparse(node)))

    # -------------------------------------------------------------- what no host runs
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leaves kernels out; of other functions their decorators, defaults and bodies are looked at."""
        is_kernel = any(map(self._makes_kernel, node.decorator_list))
        parts: list[ast.AST] = [*node.decorator_list]
        if not is_kernel:
            defaults = [*node.args.defaults, *node.args.kw_defaults]
            parts += [*(d for d in defaults if d is not None), *node.body]
        self._tells += node.name in TELLING_METHODS
        for part in parts:
            self.visit(part)
        self._tells -= node.name in TELLING_METHODS

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Leaves the annotation out."""
        if node.value is not None:
            self.visit(node.value)

    def _makes_kernel(self, decorator: ast.expr) -> bool:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        path = self._path(function)
        return path.startswith("triton.") and path.endswith(".jit")

    # -------------------------------------------------------------- texts of values
    def _visit_telling(self, *nodes: ast.AST | None) -> None:
        self._tells += 1
        for node in nodes:
            if node is not None:
                self.visit(node)
        self._tells -= 1

    def visit_Raise(self, node: ast.Raise) -> None:
        """Allows texts in messages."""
        self._visit_telling(node.exc, node.cause)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Allows texts in messages."""
        self.visit(node.test)
        self._visit_telling(node.msg)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Allows texts that are compared: a comparison with a single outcome is told as a choice."""
        self._visit_telling(node.left, *node.comparators)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Allows texts as keys: a look-up with a single result is told as a choice."""
        self.visit(node.value)
        self._visit_telling(node.slice)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Notes a text that values are written into."""
        if not self._tells and any(isinstance(v, ast.FormattedValue) for v in node.values):
            self._note(node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Notes a text that values are written into, and allows an address that is asked for its alignment."""
        while True:  # down the left sides, which a long sum nests deeply
            is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
            if is_text and not self._tells:
                self._note(node)
            if isinstance(node.op, OF_ADDRESSES) and _is_address(node.left):
                self._visit_telling(node.left, node.right)
                return
            self.visit(node.right)
            if not isinstance(node.left, ast.BinOp):
                break
            node = node.left
        self.visit(node.left)

    # -------------------------------------------------------------- names and attributes
    def visit_Name(self, node: ast.Name) -> None:
        """Looks at a name by itself: an import, or a function of Python."""
        if not isinstance(node.ctx, ast.Load):
            return
        if node.id in self._imports:
            if not _is_vocabulary(self._imports[node.id]):
                self._note(node)
        elif node.id not in self._variables and _is_impure_builtin(node.id):
            self._note(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Looks at a path from an import as a whole, and at any other attribute by its name."""
        if path := self._path(node):
            if not _is_vocabulary(path):
                self._note(node)
            return
        if isinstance(node.ctx, ast.Load) and not self._is_known(node):
            self._note(node)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """Treats `getattr(x, "name")` as `x.name`, likewise for hasattr, setattr and delattr."""
        name_of_function = _last_name(node.func)
        if not self._tells and self._writes_text(node):
            self._note(node)
        is_exception = name_of_function.endswith(("Error", "Exception", "Warning"))
        makes_table = self._path(node.func) in TABLES_OF_ADDRESSES
        if is_exception or makes_table or name_of_function in TELLING_CALLS:
            self.visit(node.func)
            self._visit_telling(*node.args, *node.keywords)
            return
        is_look_up = isinstance(node.func, ast.Name) and node.func.id in LOOKING_UP
        if not is_look_up or len(node.args) < 2:
            self.generic_visit(node)
            return
        receiver, name, *further_arguments = node.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self.visit(ast.copy_location(ast.Attribute(receiver, name.value, ast.Load()), node))
        else:
            self._note(node)
            further_arguments = [receiver, name, *further_arguments]
        self._visit_telling(*further_arguments)

    def _writes_text(self, node: ast.Call) -> bool:
        """Returns True for a call that writes values as text."""
        match node.func:
            case ast.Name(id=name):
                is_mapped = name == "map" and any(
                    _last_name(argument) in TEXTS_OF_VALUES for argument in node.args[:1]
                )
                return (name in TEXTS_OF_VALUES and name not in self._variables) or is_mapped
            case ast.Attribute(value=ast.Constant(str()), attr="format"):
                return True
        return False

    def _is_known(self, node: ast.Attribute) -> bool:
        """Returns True for an attribute in the vocabulary, or one that the source gives to its own
        object."""
        name = node.attr
        if name in NAMES_OF_TYPES:
            return bool(self._tells) or self._own.has(node.value, "__init__")
        if name in TELLING_METHODS or name == "data_ptr":
            return bool(self._tells)
        if name in PRIVATE_VOCABULARY:
            return True
        if name.startswith("_"):
            if name in _names_of_machinery() or name.startswith("__"):
                return False
            return self._own.has(node.value, name)
        return name in _known_attributes() or self._own.has(node.value, name)

    def _path(self, node: ast.expr) -> str:
        """Returns the dotted path of an attribute of an import; empty for any other expression."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._imports:
            return ""
        return ".".join([self._imports[node.id], *reversed(names)])


def _last_name(function: ast.expr) -> str:
    """Returns the name of a function, without that of its module or object; empty for any other expression."""
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _is_address(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _last_name(value.func) == "data_ptr"


def _imports(tree: ast.Module) -> Mapping[str, str]:
    """Returns the dotted path behind each name that an import binds."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
    return bound


def _variables(tree: ast.Module) -> frozenset[str]:
    """Returns the names that the text assigns, defines, or takes as parameters."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return frozenset(names)


def _is_impure_builtin(name: str) -> bool:
    value = getattr(builtins, name, None)
    if value is None or name in PURE_BUILTINS or name.startswith("__"):
        return False
    return not (isinstance(value, type) and issubclass(value, BaseException))


def _is_vocabulary(path: str) -> bool:
    """Returns True if a dotted path from an import reads nothing of the surroundings."""
    root, *names = path.split(".")
    is_private = any(n.startswith("_") and n not in PUBLIC_WITH_UNDERSCORE for n in names)
    if is_private or path in DYNAMIC_PATHS:
        return False
    if root in PURE_MODULES:
        return not _leads_out(path)
    if path in OTHER_PATHS | VARIED_PATHS:
        return True
    if root == "triton":
        return names[:1] == ["language"] or (
            bool(names) and set(names) <= TRITON_NAMES | ABILITIES | OF_KERNELS
        )
    if root != "torch" or not names:
        return False
    if any(path == room or path.startswith(f"{room}.") for room in TORCH_ROOMS):
        return True
    if names[0] == "cuda":
        return len(names) > 1 and set(names[1:]) <= TORCH_CUDA_NAMES | ABILITIES
    return names[0] in TORCH_NAMES or names[0] in _operators_and_dtypes()


@functools.cache
def _leads_out(path: str) -> bool:
    """Returns True where a path goes through a pure module into another one, as `contextlib.os` does."""
    root, *names = path.split(".")
    value = sys.modules.get(root)
    for name in names:
        value = getattr(value, name, None)
        if isinstance(value, types.ModuleType):
            is_part = value.__name__.partition(".")[0] in PURE_MODULES
            if not is_part:
                return True
    return False


@functools.cache
def _operators_and_dtypes() -> frozenset[str]:
    """Returns the names of torch's functions of tensors and of its dtypes."""
    import torch

    dtypes = {name for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    return frozenset({*dir(torch._C._VariableFunctions), *dir(torch.functional), *dtypes})


@functools.cache
def _known_attributes() -> frozenset[str]:
    """Returns the attributes of tensors, layers, Python's types and kernels that read nothing of the surroundings."""
    import torch

    layers = [value for value in vars(torch.nn).values() if isinstance(value, type)]
    plain_types = [str, list, dict, tuple, set, int, float, BaseException]
    types = (torch.Tensor, torch.Size, *layers, *plain_types)
    names = {name for each_type in types for name in dir(each_type)}
    for layer in (base for each_layer in layers for base in each_layer.__mro__):
        names |= {*vars(layer).get("__annotations__", {}), *vars(layer).get("__constants__", ())}
    names |= {f"{kind}_{of}h_l{n}" for kind in ("weight", "bias") for of in "ih" for n in range(8)}
    names |= {"running_mean", "running_var", "num_batches_tracked"}
    return frozenset({*names, "weight", "bias", *ABILITIES, *OF_KERNELS} - STATES_OF_TENSORS)


@functools.cache
def _names_of_machinery() -> frozenset[str]:
    """Returns the private names of tensors and modules: hooks, versions, how a module is moved."""
    import torch

    names = (*dir(torch.Tensor), *dir(torch.nn.Module()))
    return frozenset(name for name in names if name.startswith("_"))
