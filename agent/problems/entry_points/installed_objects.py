"""Resolves dotted names of classes and functions in installed packages: `torch.nn:GELU`,
`torch.softmax`.

The package is imported to inspect the object. The problem's text imports the package, too;
candidates never do.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import types
import warnings
from dataclasses import dataclass
from typing import Any

from kernelwright.tools.problem import ProblemError

DOTTED = re.compile(
    r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
)


@dataclass(frozen=True)
class InstalledObject:
    """Object that a dotted name refers to."""

    module: str
    """Module from which the object is imported."""
    name: str
    """Name of the object in its module."""
    value: Any

    @property
    def import_line(self) -> str:
        """Returns the statement that imports the object."""
        return f"from {self.module} import {self.name.partition('.')[0]}"

    @property
    def is_class(self) -> bool:
        """Returns whether the object is a class of modules."""
        return isinstance(self.value, type)


def is_dotted(name: str) -> bool:
    """Returns whether a name has the form `package.module:Class` or `package.module.Class`."""
    return bool(DOTTED.fullmatch(name))


def find_object(dotted: str) -> InstalledObject:
    """Imports the package and returns the object.

    Raises ProblemError with the missing part of the name.
    """
    path, colon, attribute = dotted.partition(":")
    root = path.partition(".")[0]
    if importlib.util.find_spec(root) is None:
        raise ProblemError(
            f"{dotted}: no package {root} is installed here: pip install it, or name a file"
        )
    parts = path.split(".")
    count = len(parts) if colon else len(parts) - 1
    module = _imported(dotted, parts[:count], must_exist=bool(colon))
    names = [*parts[len(module.__name__.split(".")) :], *([attribute] if colon else [])]
    value: Any = module
    for name in ".".join(names).split("."):
        if not hasattr(value, name):
            raise ProblemError(
                f"{dotted}: {getattr(value, '__name__', value)} has no {name}{_near(value, name)}"
            )
        value = getattr(value, name)
    _check_kind(dotted, value)
    return InstalledObject(module.__name__, ".".join(names), value)


def _imported(dotted: str, parts: list[str], *, must_exist: bool) -> types.ModuleType:
    """Imports the longest importable module of a dotted name."""
    while True:
        name = ".".join(parts)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return importlib.import_module(name)
        except ModuleNotFoundError as error:
            is_part = error.name is not None and (
                name == error.name or name.startswith(f"{error.name}.")
            )
            if must_exist or not is_part or len(parts) == 1:
                raise ProblemError(
                    f"{dotted}: there is no module {error.name or name} here: check its name"
                ) from None
        except Exception as error:
            line = (str(error).splitlines() or [""])[0][:200]
            raise ProblemError(
                f"{dotted}: {name} cannot be imported: {type(error).__name__}: {line}"
            ) from None
        parts = parts[:-1]


def _near(value: object, name: str) -> str:
    """Returns a hint with similar attribute names."""
    import difflib

    names = {n.lower(): n for n in dir(value) if not n.startswith("_")}
    near = [names[match] for match in difflib.get_close_matches(name.lower(), list(names), 3)]
    return f": near names are {', '.join(near)}" if near else ": check its name"


def _check_kind(dotted: str, value: object) -> None:
    """Raises ProblemError unless the object is a class of modules or callable."""
    import torch

    if isinstance(value, type):
        if not issubclass(value, torch.nn.Module):
            raise ProblemError(
                f"{dotted} is no torch.nn.Module: name a module, or a function of tensors"
            )
    elif not callable(value):
        raise ProblemError(
            f"{dotted} is a {type(value).__name__}: name a class of modules or a function of tensors"
        )


def signature_of_object(value: Any) -> inspect.Signature | None:
    """Returns the signature of a function, or of a method without `self`; None for functions
    written in C.
    """
    try:
        return inspect.signature(value)
    except (ValueError, TypeError):
        return None


def find_home(name: str, module: types.ModuleType) -> str:
    """Returns the module that exports a name used by the class's package; empty if there is none."""
    root = name.partition(".")[0]
    package = module.__name__.split(".")
    homes = [".".join(package[:count]) for count in range(len(package), 0, -1)]
    for home in [*homes, *_beside(module), "torch.nn", "torch"]:
        if hasattr(importlib.import_module(home), root):
            return home
    return ""


def _beside(module: types.ModuleType) -> list[str]:
    """Returns the configuration module of a transformers model: `configuration_llama` for
    `modeling_llama`.
    """
    package, _, last = module.__name__.rpartition(".")
    other = f"{package}.{last.replace('modeling_', 'configuration_')}"
    return [other] if other != module.__name__ and importlib.util.find_spec(other) else []
