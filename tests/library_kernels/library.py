"""All rows of all libraries."""

from __future__ import annotations

from tests.library_kernels.conch import CONCH, conch
from tests.library_kernels.fla import FLA, fla
from tests.library_kernels.flag_gems_other import other
from tests.library_kernels.flag_gems_pointwise import FLAG_GEMS, pointwise
from tests.library_kernels.liger import LIGER, liger
from tests.library_kernels.table import LibraryKernel

LIBRARIES = (FLAG_GEMS, LIGER, FLA, CONCH)


def all_rows(*, left_out: bool = False) -> list[LibraryKernel]:
    """Every honest pair, or those that are left out, each with its reason.

    Raises ValueError where two have the same title.
    """
    found = [*pointwise(), *other(), *liger(), *fla(), *conch()]
    titles = [kernel.title for kernel in found]
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise ValueError(f"two rows of the same name: {', '.join(twice)}")
    return [kernel for kernel in found if bool(kernel.left_out) == left_out]
