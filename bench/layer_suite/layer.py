"""Describes one layer of an installed package, and writes it as a problem of Kernelwright."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from enum import StrEnum


class LayerSize(StrEnum):
    """The extents at which a layer is built."""

    TINY = "tiny"
    """Few channels, for Triton's interpreter on a CPU."""
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Layer:
    """A layer, its model's configuration and the extents of its inputs."""

    name: str
    package: str
    """Package that has to be installed."""
    imports: str
    """Import statements of the problem."""
    setup: str
    """Statements of the constructor, which set `self.layer`."""
    forward: str
    """Expression that calls the layer; its value is returned, or the first element of a tuple."""
    inputs: dict[str, str]
    """Shapes of the inputs by name, in names of sizes."""
    model: dict[str, int]
    """Configuration of a released model: arguments of the constructor."""
    tiny_model: dict[str, int]
    extents: dict[LayerSize, dict[str, int]]
    """Extents of the inputs that the constructor does not see, at each size."""
    dtype: str = "bfloat16"
    before: str = ""
    """Statements of forward before the call, such as a mask."""

    @property
    def installed(self) -> bool:
        """Whether the layer's package can be imported."""
        return importlib.util.find_spec(self.package) is not None

    def source(self, size: LayerSize) -> str:
        """Returns the text of the problem."""
        model = self.tiny_model if size is LayerSize.TINY else self.model
        constants = {**self.extents[size], **model}
        numbers = "".join(f"{name} = {value}\n" for name, value in constants.items())
        arguments = ", ".join(model)
        tensors = ", ".join(
            f"torch.randn({shape}, dtype=torch.{self.dtype})" for shape in self.inputs.values()
        )
        return (
            f"import torch\nimport torch.nn as nn\n{self.imports}\n\n{numbers}\n\n"
            f"class Model(nn.Module):\n    def __init__(self, {arguments}):\n        super().__init__()\n"
            f"{_indented(self.setup)}        self.to(torch.{self.dtype})\n        self.eval()\n\n"
            f"    def forward(self, {', '.join(self.inputs)}):\n{_indented(self.before)}"
            f"        out = {self.forward}\n        return out[0] if isinstance(out, tuple) else out\n\n\n"
            f"def get_inputs():\n    return [{tensors}]\n\n\n"
            f"def get_init_inputs():\n    return [{arguments}]\n"
        )  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Sizes that several layers share."""

    inputs: dict[str, str]
    model: dict[str, int]
    tiny_model: dict[str, int]
    tiny: dict[str, int]
    small: dict[str, int]
    large: dict[str, int]
    dtype: str = "bfloat16"

    def layer(
        self, name: str, imports: str, setup: str, forward: str, *, package: str = "transformers", before: str = "",
        dtype: str = "", model: dict[str, int] | None = None, tiny_model: dict[str, int] | None = None,
        inputs: dict[str, str] | None = None,
    ) -> Layer:  # fmt: skip
        """Returns a layer with the family's sizes, or with those given here."""
        extents = {
            LayerSize.TINY: self.tiny,
            LayerSize.SMALL: self.small,
            LayerSize.LARGE: self.large,
        }
        return Layer(
            name, package, imports, setup, forward, inputs or self.inputs, model or self.model,
            tiny_model or self.tiny_model, extents, dtype or self.dtype, before,
        )  # fmt: skip


def transformers_imports(module: str, *names: str) -> str:
    """Returns the import of classes of a model of transformers."""
    return f"from transformers.models.{module}.modeling_{module} import {', '.join(names)}"


def _indented(statements: str) -> str:
    return "".join(f"        {line}\n" for line in statements.strip().splitlines())
