"""Whether the candidate's own kernels do the work: strict, share:P or report (TRUST.md, check 9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.conversation import forged
from tools.results import Census, Cheat, Failed, Failure, Fault, OwnWork, clean_text

if TYPE_CHECKING:
    from tools.checks import Checks

MODES = ("strict", "share", "report")


@dataclass(frozen=True)
class Rule:
    mode: str = "strict"
    share: float = 0.0

    @property
    def text(self) -> str:
        return f"share:{self.share:g}" if self.mode == "share" else self.mode

    @classmethod
    def parse(cls, text: str) -> Rule:
        """strict, share:0.5 or report. Raises ValueError, one line."""
        mode, _, number = text.partition(":")
        if mode not in MODES or (mode == "share") != bool(number):
            raise ValueError(f"own-work is strict, share:P (such as share:0.5) or report, not {text!r}")
        share = float(number) if number else 0.0
        if not 0 <= share <= 1:
            raise ValueError(f"a share lies between 0 and 1, not {number}")
        return cls(mode, share)


def evidence(before: Census, reply: dict[str, Any]) -> Census:
    """The census of a call, the larger count kept for each name: a call that hides what another showed gains nothing."""
    try:
        told = reply["census"]
        census = Census(
            launches=_counts(reply["launches"]),
            compute_ops=_counts(told["compute_ops"]),
            layout_ops=_counts(told["layout_ops"]),
            host_reads=_counts(told["host_reads"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Failed(forged("a census has not the form of one")) from error
    merge = {
        name: dict(Counter(getattr(before, name)) | Counter(getattr(census, name)))
        for name in ("launches", "compute_ops", "layout_ops", "host_reads")
    }
    return before.with_(**merge)


def operations_told(reply: dict[str, Any]) -> int:
    """What torch computed beside the kernels in one call, by the census. Raises Failed."""
    told = reply["census"].get("operations")
    if not isinstance(told, int) or told < 0:
        raise Failed(forged("a census has not the form of one"))
    return told


def _counts(told: dict[str, Any]) -> dict[str, int]:
    return {clean_text(k, 120): int(v) for k, v in list(told.items())[:200]}


def judge_own_work(checks: Checks, rule: Rule) -> OwnWork:
    """Raises Failed where the rule is broken. `report` only reports, but a candidate without a launch is none."""
    census = checks.census
    work = checks.partial_work(rule)
    if not census.launches:
        raise Failed(Failure(fault=Fault.NO_KERNEL, message="no Triton kernel of its own is launched"))
    if rule.mode == "report":
        return work.with_(accepted=True)
    if checks.needed is False:
        raise Failed(
            Failure(
                fault=Fault.CHEAT,
                cheat=Cheat.DECOY,
                message="the output stays right with the candidate's kernels turned off: they are decoys",
            )
        )
    if rule.mode == "strict":
        _strict(census)
    if rule.mode == "share" and work.share is not None and work.share < rule.share:
        message = f"{work.share:.0%} of the problem's operations are left to the candidate's own kernels, {rule.share:.0%} was asked for: torch computes {_named(census.compute_ops)}"
        raise Failed(Failure(fault=Fault.FALLBACK, message=message))
    return work.with_(accepted=True)


LAYOUT_KERNELS = (
    "Memset",
    "Memcpy",
    "FillFunctor",
    "direct_copy_kernel",
    "CatArrayBatchedCopy",
    "copy_device_to_device",
    "CopyFunctor",
    "fill_",
)
"""GPU work that allocation and layout copies are made of, by a part of its name."""


def judge_share(census: Census, share: float | None, rule: Rule) -> None:
    """What the profiler saw on the GPU, whatever the host code said it did. Raises Failed."""
    if share is None or rule.mode == "report":
        return
    if share == 0:
        raise Failed(
            Failure(
                fault=Fault.CHEAT,
                cheat=Cheat.DECOY,
                message="none of the GPU's work is in the candidate's own kernels when the host is not watched",
            )
        )
    if rule.mode == "share" and share < rule.share:
        raise Failed(
            Failure(
                fault=Fault.FALLBACK,
                message=f"{share:.0%} of the GPU's time is in the candidate's own kernels, {rule.share:.0%} was asked for",
            )
        )
    foreign = {
        name: n for name, n in census.foreign_kernels.items() if not any(part in name for part in LAYOUT_KERNELS)
    }
    if rule.mode == "strict" and foreign:
        raise Failed(
            Failure(
                fault=Fault.FALLBACK, message=f"the GPU ran kernels that are not the candidate's own: {_named(foreign)}"
            )
        )


def _strict(census: Census) -> None:
    if census.compute_ops:
        raise Failed(
            Failure(
                fault=Fault.FALLBACK,
                message=f"torch computes beside the kernels: {_named(census.compute_ops)}; allowed are allocation, views and layout copies (or --own-work share:P)",
            )
        )
    if census.host_reads:
        raise Failed(
            Failure(fault=Fault.FALLBACK, message=f"the host reads tensor contents: {_named(census.host_reads)}")
        )


def _named(counts: dict[str, int]) -> str:
    return ", ".join(
        f"{name.removeprefix('aten.')} x{count}" for name, count in sorted(counts.items(), key=lambda kv: -kv[1])[:4]
    )
