"""Kernels of public libraries as honest candidates: each is judged with `--allow-import`, against a reference of ours
(tests/library_kernels).

    python -m bench.library_kernels --list [--left-out] [--device cpu|cuda:0] [--only NAME ...]
    python -m bench.library_kernels --show NAME

Needs the `bench` extra: flag-gems, liger-kernel, fla-core and conch-triton-kernels without their dependencies, and
einops. A name is a library (`fla`), a kernel (`rms_norm`) or both (`fla.rms_norm`). bench/trust.py takes its candidates
from `pairs`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from tests.library_kernels.left_out import NEVER_TRIED
from tests.library_kernels.library import LIBRARIES, all_rows
from tests.library_kernels.table import LibraryKernel


def pairs(only: Iterable[str] = (), device: str = "") -> Iterator[LibraryKernel]:
    """Every honest pair: `problem`, `source`, `own_work`, `needs` and `allow_import` say how it is judged.

    only: titles, names or libraries; all where empty. device: leaves out what cannot run there with this Triton. Raises
    ValueError for a name that no pair has.
    """
    wanted, found = set(only), all_rows()
    unknown = wanted - {word for kernel in found for word in _names(kernel)}
    if unknown:
        raise ValueError(f"no kernel or library of the table is named {', '.join(sorted(unknown))}")
    for kernel in found:
        if (not wanted or wanted & _names(kernel)) and (not device or runs_on(kernel, device)):
            yield kernel


def _names(kernel: LibraryKernel) -> set[str]:
    return {kernel.title, kernel.name, kernel.library.name}


def runs_on(kernel: LibraryKernel, device: str) -> bool:
    """Whether the kernel can be run on a device with the Triton that is installed."""
    newest = kernel.triton and tuple(map(int, kernel.triton.split(".")))
    installed = tuple(map(int, version("triton").split(".")[:2]))
    return (kernel.needs != "gpu" or device != "cpu") and not (newest and installed > newest)


def missing() -> list[str]:
    """What of the `bench` extra is not installed, or not in the version that the table was made for: one line each."""
    found = []
    for library in LIBRARIES:
        try:
            installed = version(library.distribution)
        except PackageNotFoundError:
            installed = "not installed"
        if installed != library.version:
            found.append(f"{library.distribution} {library.version} is needed: {installed}")
    return found


def listed(kernels: Iterable[LibraryKernel]) -> str:
    """A line for each kernel, and how many there are of each library."""
    rows = list(kernels)
    lines = [
        f"{k.title:<44} {k.own_work:<10} {k.needs:<4} {k.left_out or k.reference[:90]}"
        for k in rows
    ]
    counts = Counter(kernel.library.name for kernel in rows)
    return "\n".join(
        [
            *lines,
            f"{len(rows)} kernels: " + ", ".join(f"{n} of {name}" for name, n in counts.items()),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--left-out", action="store_true", help="what is left out, and why")
    parser.add_argument("--device", default="", help="only what runs there")
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument(
        "--show", metavar="NAME", help="the text of one problem and of its candidate"
    )
    given = parser.parse_args()
    if given.show:
        for kernel in pairs([given.show]):
            print(kernel.problem.source, kernel.source, sep="\n")
        return 0
    if given.left_out:
        print(listed(all_rows(left_out=True)))
        print("\n".join(f"{name}: {reason}" for name, reason in NEVER_TRIED.items()))
        return 0
    print(listed(pairs(given.only, given.device)))
    print("\n".join(missing()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
