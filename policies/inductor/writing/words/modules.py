"""Names of products by the modules whose weights they multiply: `reduce_matmul` for `self.reduce = nn.Linear(...)`."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from kernelwright.policies.inductor.tracing.execution import simple_path
from kernelwright.policies.inductor.values.complex_numbers import unwrapped_path
from kernelwright.policies.inductor.writing.kernels import LoweredKernel, unique_kernel_name
from kernelwright.policies.inductor.writing.launch import Host, WrittenLaunch

MAX_MODULES = 2
"""Maximum number of modules in a name, such as `gate_up_matmul`."""


def name_products(host: Host, matrices: AbstractSet[str]) -> dict[int, str]:
    """Returns a name for the result of each launch that multiplies weights, by id of the launch, and gives the
    kernel the same name if all its launches have it.

    matrices: expressions in forward of the weights with two axes and more.
    """
    modules_of_buffer: dict[str, list[str]] = {}
    names: dict[int, str] = {}
    names_of_kernel: dict[int, set[str]] = {}
    for launch in host.launches():
        modules = _modules_read(launch, matrices, modules_of_buffer)
        name = _product_name(launch.kernel, modules)
        names_of_kernel.setdefault(id(launch.kernel), set()).add(name)
        if name:
            names[id(launch)] = name
        elif len(modules) == 1 and not launch.kernel.dot:
            # A weight in another order of memory still stands for its module.
            modules_of_buffer |= dict.fromkeys(_buffers_written(launch), modules)
    _rename_kernels(host, names, names_of_kernel)
    return names


def _rename_kernels(
    host: Host, names: dict[int, str], names_of_kernel: dict[int, set[str]]
) -> None:
    used_names = {launch.kernel.name for launch in host.launches()}
    renamed: set[int] = set()
    for launch in host.launches():
        kernel = launch.kernel
        name = names.get(id(launch), "")
        if name and len(names_of_kernel[id(kernel)]) == 1 and id(kernel) not in renamed:
            kernel.name = unique_kernel_name(f"{name}_kernel", used_names)
        renamed.add(id(kernel))


def _modules_read(
    launch: WrittenLaunch, matrices: AbstractSet[str], modules_of_buffer: dict[str, list[str]]
) -> list[str]:
    """Returns the names of the modules whose weights a launch reads, in the order of its parameters."""
    modules: list[str] = []
    for parameter, value in launch.arguments.items():
        if not parameter.startswith("in_ptr"):
            continue
        read = modules_of_buffer.get(value, [])
        if value in matrices and (module := module_name(value)):
            read = [module]
        modules += [module for module in read if module not in modules]
    return modules


def module_name(path: str) -> str:
    """Returns the name of the module that owns a weight: `reduce` for `self.block.reduce.weight`, `net_0` for
    `self.net[0].weight`, and nothing for a weight of the whole model.
    """
    parts = [part for part in re.split(r"\W+", unwrapped_path(path).removeprefix("self.")) if part]
    owners = parts[:-1]
    first = len(owners) - 1
    while first > 0 and owners[first].isdigit():
        first -= 1
    name = simple_path("_".join(owners[max(first, 0) :]))
    return name if name.isidentifier() else ""


def _product_name(kernel: LoweredKernel, modules: list[str]) -> str:
    if not kernel.dot or not 0 < len(modules) <= MAX_MODULES:
        return ""
    if kernel.convolves:
        name = "_".join(modules)
        return name if "conv" in name else f"{name}_convolution"
    return "_".join([*modules, "matmul"])


def _buffers_written(launch: WrittenLaunch) -> list[str]:
    return [value for parameter, value in launch.arguments.items() if "out_ptr" in parameter]
