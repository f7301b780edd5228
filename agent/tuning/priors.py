"""What won before for this kind of kernel on this GPU, read from the store: configurations to try first.

A tuned candidate is a row with the action `tune`; its numbers are read from its text again, so that nothing has to be
kept beside it. Parameters are matched by their role and by the place of the tile in its kernel, not by their names.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from kernelwright.agent.tuning.journal import Journal
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import CandidateFilter, Turn
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report
from kernelwright.tools.tuning.kernel_text.parameters import (
    Parameter,
    ParameterRole,
    ParameterSpace,
    Setting,
)
from kernelwright.tools.tuning.kernel_text.reading import read_file

MAX_CANDIDATES_READ = 200
"""Tuned candidates that are looked at, the latest first."""
MAX_PRIORS = 4

Priors = Callable[[], list[dict[str, Setting]]]
PRIORS_KIND = "priors"
"""The kind of the journal's row that holds them."""

Shape = tuple[tuple[str, bool, int], ...]
"""What kind of kernel: its parameters' roles, whether they place programs, and their number."""


def kind_of(parameters: Sequence[Parameter]) -> Shape:
    """Two kernels of one kind have the same tiles and options, whatever their names."""
    counts = Counter(
        (p.role.value, p.places_programs) for p in parameters if p.role is not ParameterRole.CTAS
    )
    return tuple(sorted((role, placed, count) for (role, placed), count in counts.items()))


def no_priors() -> list[dict[str, Setting]]:
    """Returns nothing: there is no store to read."""
    return []


def priors_of_journal(journal: Journal, priors: Priors) -> list[dict[str, Setting]]:
    """Asked for once: a tuning that goes on begins where it began, whatever the store has learnt since."""
    known = journal.find(PRIORS_KIND, "")
    if known is None:
        known = priors()
        journal.add(PRIORS_KIND, "", known)
    return [dict(one) for one in known]


def priors_for(
    store: Store, problem: Problem, device: str, source: str
) -> list[dict[str, Setting]]:
    """Configurations of this file, the most frequent winner first; those of the same problem before others.

    device: the GPU's name; cpu: the winners of any GPU, as only the compiler decides there.
    """
    try:
        space = read_file(source).space
    except (SyntaxError, ValueError, RecursionError):
        return []
    turns = [t for t in _tuned(store) if t.report is not None and _won_on(t.report, device)]
    same = [t for t in turns if t.report is not None and t.report.problem_hash == problem.hash]
    return priors_from([t.source or "" for t in (*same, *turns)], space)


def _won_on(report: Report, device: str) -> bool:
    measured = report.profile is not None
    return measured and device in ("cpu", report.judged_on, report.environment.gpu)


def priors_from(winners: Iterable[str], space: ParameterSpace) -> list[dict[str, Setting]]:
    """winners: texts of tuned kernels."""
    own = _by_kernel(space)
    found: Counter[tuple[tuple[str, Setting], ...]] = Counter()
    for text in winners:
        try:
            others = _by_kernel(read_file(text).space)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for parameters in own.values():
            for theirs in others.values():
                if kind_of(theirs) == kind_of(parameters):
                    found[tuple(sorted(_carried(parameters, theirs).items()))] += 1
    return [dict(one) for one, _ in found.most_common(MAX_PRIORS) if one]


def _carried(own: Sequence[Parameter], theirs: Sequence[Parameter]) -> dict[str, Setting]:
    """Their values for our parameters of the same role and place, in the order of the text, where they are legal."""
    carried: dict[str, Setting] = {}
    for role in ParameterRole:
        for placed in (True, False):
            pairs = zip(
                [p for p in own if p.role is role and p.places_programs is placed],
                [p for p in theirs if p.role is role and p.places_programs is placed],
                strict=False,
            )
            carried |= {a.name: b.start for a, b in pairs if b.start in a.values}
    return carried


def _by_kernel(space: ParameterSpace) -> dict[str, list[Parameter]]:
    groups: dict[str, list[Parameter]] = {}
    for parameter in space.parameters:
        groups.setdefault(parameter.kernels[0], []).append(parameter)
    return groups


def _tuned(store: Store) -> list[Turn]:
    """Returns what was tuned, the latest first."""
    found = deque(
        store.samples(CandidateFilter(action=Action.TUNE, correct=True)), maxlen=MAX_CANDIDATES_READ
    )
    return list(reversed(found))
