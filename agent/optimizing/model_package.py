"""Writes and loads the package of an optimized model: the kernels, and which modules they stand
for.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kernelwright.agent.exporting.package import (
    copied,
    package_files,
    rendered,
    require_new_folder,
    write_file,
)
from kernelwright.agent.exporting.packaged_kernel import PackagedKernel
from kernelwright.agent.exporting.texts import _patching
from kernelwright.agent.optimizing.region import Region
from kernelwright.errors import InputError

if TYPE_CHECKING:
    import torch

EXPORTS = """
from ._patching import restore
from .regions import load_optimized

__all__ += ["load_optimized", "restore"]
"""


def write_model_package(
    folder: Path, package: str, kernels: Sequence[PackagedKernel], regions: Sequence[Region]
) -> None:
    """Writes the package into a new folder. Raises InputError if the folder is not empty."""
    require_new_folder(folder)
    files = package_files(package, kernels)
    source = f"src/{package}"
    files[f"{source}/__init__.py"] += EXPORTS
    files[f"{source}/_patching.py"] = copied("_patching.py")
    files[f"{source}/regions.py"] = rendered("regions.py.j2", regions=regions)
    for path, text in files.items():
        write_file(folder / path, text)


def load_package(folder: Path) -> ModuleType:
    """Imports the package in a folder. Raises InputError if the folder holds none."""
    entries = sorted(folder.glob("src/*/__init__.py"))
    if len(entries) != 1:
        raise InputError(f"{folder} holds no package: agent optimize --out writes one")
    # The folder is part of the name: two packages of equal names may be loaded.
    name = f"{entries[0].parent.name}_{abs(hash(str(folder.absolute())))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, entries[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_optimized(model: torch.nn.Module, folder: str | Path) -> torch.nn.Module:
    """Replaces modules of a model by the kernels of a package, in place; returns the model.

    Raises InputError if the folder holds no such package, or the model has other modules.
    """
    package = load_package(Path(folder))
    if not hasattr(package, "load_optimized"):
        raise InputError(f"{folder} is a package of kernels, and not of a model")
    try:
        package.load_optimized(model)
    except (AttributeError, ValueError) as error:
        _patching.restore(model)
        raise InputError(f"the kernels of {folder} do not fit this model: {error}") from None
    return model


def restore(model: torch.nn.Module) -> torch.nn.Module:
    """Undoes `load_optimized`; returns the model."""
    _patching.restore(model)
    return model
