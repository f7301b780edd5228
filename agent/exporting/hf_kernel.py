"""Writes a repository for Hugging Face's `kernels`.

NAME/build.toml, CARD.md, README.md
NAME/build/torch-universal/__init__.py, _runtime.py, metadata.json, KERNEL/...
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kernelwright.agent.exporting.package import (
    module_files,
    namespace_of,
    readme,
    require_new_folder,
    write_file,
)
from kernelwright.agent.exporting.packaged_kernel import PackagedKernel

VARIANT = "build/torch-universal"
"""Build variant of kernels without compiled code, which run with every version of torch."""
CARD_HEAD = """---
library_name: kernels
license: other
tags:
- kernel
- triton
---

"""


def write_hf_kernel(folder: Path, name: str, kernels: Sequence[PackagedKernel]) -> None:
    """Writes the repository into a new folder. Raises InputError if the folder is not empty."""
    require_new_folder(folder)
    for path, text in hf_kernel_files(name, kernels).items():
        write_file(folder / path, text)


def hf_kernel_files(name: str, kernels: Sequence[PackagedKernel]) -> dict[str, str]:
    """Returns the texts of the repository by path."""
    files = {f"{VARIANT}/{path}": text for path, text in module_files(name, kernels).items()}
    files[f"{VARIANT}/metadata.json"] = _metadata(name, kernels)
    files["build.toml"] = _build_file(name)
    card = CARD_HEAD + _loading(name) + readme(name, kernels)
    files["CARD.md"] = card
    files["README.md"] = card
    return files


def _metadata(name: str, kernels: Sequence[PackagedKernel]) -> str:
    # `kernels` imports the package under the name of `id`, so it is a Python name.
    metadata = {
        "id": namespace_of(name, kernels),
        "name": name.replace("_", "-"),
        "version": 1,
        "license": "other",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    return json.dumps(metadata, indent=2) + "\n"


def _build_file(name: str) -> str:
    lines = ["[general]", f'name = "{name.replace("_", "-")}"', "version = 1", "edition = 5"]
    lines += ['license = "other"', 'backends = ["cuda"]', "", "[torch-noarch]"]
    return "\n".join(lines) + "\n"


def _loading(name: str) -> str:
    return (
        "```python\nfrom pathlib import Path\n\nfrom kernels import get_local_kernel\n\n"
        f'{name} = get_local_kernel(Path("{name}/build"))\n```\n\n'
    )
