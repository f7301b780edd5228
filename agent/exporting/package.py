"""Writes an installable Python package with operators of torch for judged kernels.

NAME/pyproject.toml, README.md
NAME/src/NAME/__init__.py, _runtime.py
NAME/src/NAME/KERNEL/__init__.py, kernel.py, reference.py, verdict.json
NAME/tests/test_kernels.py, conftest.py, small/KERNEL.py
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from kernelwright.agent.contracts.comments import wrap_comments
from kernelwright.agent.contracts.contract_lines import largest_error
from kernelwright.agent.export.kernel_file import (
    HEADER_MARK,
    author_line,
    check_path,
    verdict_lines,
    verification_line,
)
from kernelwright.agent.exporting.call_text import (
    call_text,
    is_training,
    only_half_dtype,
    sizes_condition,
    writes_inputs,
)
from kernelwright.agent.exporting.packaged_gradients import PackagedGradients
from kernelwright.agent.exporting.packaged_kernel import PackagedKernel
from kernelwright.agent.reporting.files import write_text
from kernelwright.errors import InputError
from kernelwright.tools.hardware.machine_info import version
from kernelwright.tools.report import clean_text

GRADIENTS = "gradients"
"""Module of a layer's gradients in a package, and its key among the kernels of an operator."""
TEXTS_FOLDER = Path(__file__).with_name("texts")


def write_package(folder: Path, package: str, kernels: Sequence[PackagedKernel]) -> None:
    """Writes the package into a new folder. Raises InputError if the folder is not empty."""
    require_new_folder(folder)
    if not package.isidentifier():
        raise InputError(f"--name {package!r}: a package needs a Python name, such as my_kernels")
    for path, text in package_files(package, kernels).items():
        write_file(folder / path, text)


def write_kernel_file(path: Path, kernel: PackagedKernel) -> None:
    """Writes a single kernel, with its origin and its contract."""
    write_text(check_path(path), kernel_file_text(kernel, kernel.text))


def package_files(package: str, kernels: Sequence[PackagedKernel]) -> dict[str, str]:
    """Returns the texts of the package by path."""
    files = {"pyproject.toml": rendered("pyproject.toml.j2", **_facts(package, kernels))}
    files["README.md"] = readme(package, kernels)
    for path, text in module_files(package, kernels).items():
        files[f"src/{package}/{path}"] = text
    files["tests/conftest.py"] = copied("conftest.py")
    files["tests/test_kernels.py"] = copied("test_kernels.py")
    cases: list[dict[str, str]] = []
    for kernel in kernels:
        for number, small in enumerate(kernel.small_problems):
            file = f"{kernel.name}_{number}.py" if number else f"{kernel.name}.py"
            files[f"tests/small/{file}"] = small.source
            module = {"module": kernel.name, "class": kernel.class_name}
            cases.append({**module, "file": file, "shape": small.shape, "dtype": small.dtype})
    files["tests/small/package.json"] = _json({"package": package, "cases": cases})
    return files


def module_files(package: str, kernels: Sequence[PackagedKernel]) -> dict[str, str]:
    """Returns the texts of the importable package by path."""
    files = {"__init__.py": rendered("init.py.j2", **_facts(package, kernels))}
    files["_runtime.py"] = copied("_runtime.py")
    for kernel in kernels:
        for path, text in _kernel_files(namespace_of(package, kernels), kernel).items():
            files[f"{kernel.name}/{path}"] = text
    return files


def readme(package: str, kernels: Sequence[PackagedKernel]) -> str:
    """Returns the README, with the figures of the verdicts."""
    rows = []
    for kernel in kernels:
        error = largest_error(kernel.report)
        rows.append(
            {
                "module": kernel.class_name,
                "name": kernel.name,
                "problem": _cell(kernel.problem.name),
                "verified": _cell(verification_line(kernel.report)),
                "error": f"{error:.3g} times" if error is not None else "not measured",
            }
        )
    halves = {kernel.class_name: only_half_dtype(kernel.contract) for kernel in kernels}
    cards = sorted({card for kernel in kernels for card in _cards(kernel)})
    return rendered(
        "README.md.j2",
        rows=rows,
        autocast=_autocast(halves),
        cards=", ".join(cards) or "no GPU: block sizes are those that the kernel was written with",
        **_facts(package, kernels),
    )


def namespace_of(package: str, kernels: Sequence[PackagedKernel]) -> str:
    """Returns the namespace of the operators, which differs between versions of a package."""
    texts = "".join(kernel.text for kernel in kernels)
    return f"{package}_{hashlib.sha256(texts.encode()).hexdigest()[:8]}"


def write_file(path: Path, text: str) -> None:
    """Writes a text, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def require_new_folder(folder: Path) -> None:
    """Raises InputError if the folder exists and is not empty, or is a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists: name a new folder with --out")


def _kernel_files(namespace: str, kernel: PackagedKernel) -> dict[str, str]:
    call = call_text(kernel.contract, kernel.form.parameters)
    files = {"": "kernel"}
    texts = {"kernel.py": kernel_file_text(kernel, kernel.text)}
    for card, text in kernel.by_card.items():
        files[card] = "kernel_" + re.sub(r"\W+", "_", card).strip("_").lower()
        texts[f"{files[card]}.py"] = kernel_file_text(kernel, text)
    gradients = kernel.gradients
    if gradients is not None:
        files[GRADIENTS] = GRADIENTS
        texts[f"{GRADIENTS}.py"] = gradients_file_text(gradients)
        texts["gradients_verdict.json"] = gradients.report.model_dump_json(indent=2) + "\n"
    writes = ["inputs"] if writes_inputs(kernel.contract) else []
    writes += ["weights"] if kernel.form.changes_buffers else []
    texts["__init__.py"] = rendered(
        "operator.py.j2",
        kernel=kernel,
        namespace=namespace,
        call=call,
        files=_literal(files),
        training=is_training(kernel.contract),
        forms=_forms(kernel),
        writes=_literal(tuple(writes)) if writes else "",
        half=only_half_dtype(kernel.contract),
        tuple_of=_tuple_of,
        gradients=gradients.wanted(call.tensors) if gradients is not None else (),
        gradients_of=gradients.facts.output_positions if gradients is not None else (),
    )
    texts["reference.py"] = kernel.problem.source
    texts["verdict.json"] = kernel.report.model_dump_json(indent=2) + "\n"
    return texts


def _forms(kernel: PackagedKernel) -> list[tuple[list[str], str]]:
    """Returns dtypes and shapes of the tensors, and the condition of the sizes, for each form of the judged calls."""
    forms: list[tuple[list[str], str]] = []
    for contract in (kernel.contract, *kernel.contract.others):
        call = call_text(contract, kernel.form.parameters)
        forms.append((call.shapes, sizes_condition(contract)))
    return forms


def gradients_file_text(gradients: PackagedGradients) -> str:
    """Returns the kernels of a layer's gradients with their origin and contract as comments."""
    header = [
        f"{HEADER_MARK} {version('kernelwright') or ''}",
        f"# problem    {clean_text(gradients.problem.name, 200)} ({gradients.problem.hash[:16]})",
        *verdict_lines(gradients.report),
        *gradients.lines,
    ]
    return wrap_comments(header) + "\n" + gradients.text.strip() + "\n"


def kernel_file_text(kernel: PackagedKernel, text: str) -> str:
    """Returns a kernel with its origin and contract as comments."""
    header = [
        f"{HEADER_MARK} {version('kernelwright') or ''}",
        f"# problem    {clean_text(kernel.problem.name, 200)} ({kernel.problem.hash[:16]})",
        *([author_line(kernel.author)] if kernel.author else []),
        *verdict_lines(kernel.report),
        *kernel.lines,
    ]
    return wrap_comments(header) + "\n" + text.strip() + "\n"


def _facts(package: str, kernels: Sequence[PackagedKernel]) -> dict[str, object]:
    names = ", ".join(kernel.name.replace("_", " ") for kernel in kernels[:3])
    more = f" and {len(kernels) - 3} more" if len(kernels) > 3 else ""
    return {
        "package": package,
        "kernels": list(kernels),
        "namespace": namespace_of(package, kernels),
        "version": version("kernelwright") or "0.1.0",
        "summary": f"Triton kernels for PyTorch: {names}{more}.",
    }


def _autocast(halves: dict[str, str]) -> str:
    texts: list[str] = []
    for name, dtype in halves.items():
        if dtype:
            texts.append(f"`{name}` casts its inputs to {dtype} and runs the kernel")
    texts.append("modules with float32 tensors run the reference, whose operators follow autocast")
    return "; ".join(texts) + "."


def _cards(kernel: PackagedKernel) -> list[str]:
    on_gpu = kernel.report.judged_on not in ("", "cpu")
    return [*([kernel.report.judged_on] if on_gpu else []), *kernel.by_card]


def _cell(text: str) -> str:
    return clean_text(text, 300).replace("|", "\\|")


def _tuple_of(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _literal(value: object) -> str:
    return repr(value).replace("'", '"')


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def copied(name: str) -> str:
    """Returns a text copied unchanged into packages."""
    return (TEXTS_FOLDER / name).read_text(encoding="utf-8")


def rendered(template: str, **values: object) -> str:
    """Returns a template with its values. Raises jinja2.UndefinedError if a value is missing."""
    environment = Environment(
        undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    return environment.from_string(copied(template)).render(**values)
