"""An evaluation as Markdown and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.agent.reporting.figures import Estimate
from kernelwright.agent.reporting.files import write_text
from kernelwright.rl.evaluating.comparing import EvaluationComparison, PassDifference, ProblemChange
from kernelwright.rl.evaluating.measures import Evaluation
from kernelwright.rl.evaluating.text_checks import PATTERNS, TextCheckFigures

BY_TURN, BY_FAMILY = "solved.png", "families.png"


def write_evaluation(
    found: Evaluation, folder: Path, command: str, machine: str, date: str
) -> list[Path]:
    """evaluation.md, evaluation.json and two pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    _draw_turns(found, folder / BY_TURN)
    _draw_families(found, folder / BY_FAMILY)
    page = "\n".join(
        [
            f"# {found.policy} on {found.suite}",
            "",
            format_page(found, command, machine, date),
            "",
            *_pictures(),
        ]
    )
    return [
        write_text(folder / "evaluation.md", page + "\n"),
        write_text(folder / "evaluation.json", found.model_dump_json(indent=2) + "\n"),
        folder / BY_TURN,
        folder / BY_FAMILY,
    ]


def write_comparison(
    compared: EvaluationComparison, folder: Path, command: str, date: str
) -> list[Path]:
    """Writes comparison.md and comparison.json."""
    title = f"# {compared.after_policy} against {compared.before_policy}"
    page = "\n".join([title, "", *format_comparison(compared), "", f"`{command}`, {date}."])
    return [
        write_text(folder / "comparison.md", page + "\n"),
        write_text(folder / "comparison.json", compared.model_dump_json(indent=2) + "\n"),
    ]


def format_comparison(compared: EvaluationComparison) -> list[str]:
    """Writes a comparison as lines of Markdown: the differences, then the problems won and lost."""
    rows = [
        [
            str(figure.turns),
            f"pass@{figure.k}",
            f"{figure.before:.1%}",
            f"{figure.after:.1%}",
            difference_text(figure),
        ]
        for figure in compared.passes
    ]
    lines = [
        f"{shared_text(compared)} Intervals: 95 % of the paired difference, bootstrapped over problems.",
        "",
        *table(["turns", "figure", "before", "after", "difference"], rows),
    ]
    for title, changes in (("Won", compared.won), ("Lost", compared.lost)):
        lines += ["", f"{title}: {changes_text(changes, len(changes))}."]
    if compared.remarks:
        lines += ["", f"Note: {'; '.join(compared.remarks)}."]
    return lines


def difference_text(figure: PassDifference) -> str:
    """Formats a difference with its interval: `+3.1 % (-1.0 to +7.2)`."""
    return f"{100 * figure.difference:+.1f} % ({100 * figure.low:+.1f} to {100 * figure.high:+.1f})"


def shared_text(compared: EvaluationComparison) -> str:
    """Says how many problems both evaluations met, and how many are left out because only one did."""
    text = f"Compared on {compared.shared} shared problems"
    if compared.only_before or compared.only_after:
        text += f" ({compared.only_before} only before and {compared.only_after} only after are left out)"
    return f"{text}."


def changes_text(changes: Sequence[ProblemChange], most: int) -> str:
    """Lists problems with the shares of their rollouts that were right before and after, at most so many."""
    shown = [
        f"{change.problem} {change.before:.0%} -> {change.after:.0%}" for change in changes[:most]
    ]
    more = [f"and {len(changes) - most} more"] if len(changes) > most else []
    return ", ".join([*shown, *more]) or "none"


def format_page(found: Evaluation, command: str, machine: str, date: str) -> str:
    """Writes the page without a title and without the pictures: what a model's card takes."""
    temperature = (
        "greedy first, then 0.8" if found.temperature is None else f"{found.temperature:g}"
    )
    judged = (
        "on a CPU, interpreted, at small shapes"
        if found.device == "cpu"
        else f"on {found.device} at full shapes"
    )
    faults = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found.faults.items())
    return "\n".join(
        [
            f"{found.suite}: {found.problems} problems, {found.samples} samples each, up to {found.turns} "
            f"turns, temperature {temperature}, seed "
            f"{found.seed}; judged {judged}. {_unfinished(found)}Intervals: 95 %, bootstrapped over problems.",
            "",
            *_within_table(found),
            "",
            *_family_table(found),
            "",
            f"Drafts: {faults}.",
            "",
            f"Tokens: {found.tokens.prompt:.0f} a prompt, {found.tokens.completion:.0f} an answer, "
            f"{found.tokens.a_rollout:.0f} a "
            "rollout"
            + (
                f", {found.tokens.a_solved_problem:.0f} a solved problem"
                if found.tokens.a_solved_problem
                else ""
            )
            + f". A draft waits {found.policy_seconds:.2f} s for its answer (median; many are drawn together).",
            "",
            *_fast(found),
            *_light(found.light),
            f"`{command}`, {machine}, {date}.",
        ]
    )


def percent(estimate: Estimate) -> str:
    """Formats an estimate with its interval: `63 % (55 to 71)`."""
    if estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.0%}"
    return f"{estimate.value:.0%} ({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"


def _unfinished(found: Evaluation) -> str:
    missing = found.problems * found.samples - found.rollouts + found.unfinished
    return f"{missing} rollouts are not finished and count as failed. " if missing else ""


def _within_table(found: Evaluation) -> list[str]:
    ks = [k for k in found.within[0].at if k > 1]
    rows = [
        [str(w.turns), percent(w.compiled), percent(w.solved), *(percent(w.at[k]) for k in ks)]
        for w in found.within
    ]
    return table(["turns", "compiled", "solved (pass@1)", *(f"pass@{k}" for k in ks)], rows)


def _family_table(found: Evaluation) -> list[str]:
    rows = [
        [
            name or "(none)",
            str(own.problems),
            percent(own.compiled),
            percent(own.drafted),
            percent(own.solved),
            f"{own.any_solved} of {own.problems}",
        ]
        for name, own in found.families.items()
    ]
    return table(
        [
            "family",
            "problems",
            "drafts compile",
            "drafts right",
            f"within {found.turns}",
            "ever solved",
        ],
        rows,
    )


def _fast(found: Evaluation) -> list[str]:
    if found.device == "cpu" or not found.fast:
        return ["No speed is measured on a CPU, so there is no fast_p.", ""]
    said = ", ".join(f"fast_{p:g} {percent(e)}" for p, e in found.fast.items())
    median = found.median_speedup.value
    return [
        f"{said}." + (f" Median speedup of what is right: {median:.2f}." if median else ""),
        "",
    ]


def _light(light: TextCheckFigures | None) -> list[str]:
    """Writes the section on how far the text checks mislead."""
    if light is None:
        return []
    shown = [
        ["drafts with code", str(light.candidates)],
        [
            f"have all patterns ({', '.join(f'`{p.strip()}`' for p in PATTERNS)})",
            _share(light.passed),
        ],
        ["of these, compile", _share(light.compiled_of_passed)],
        ["of these, are right", _share(light.correct_of_passed)],
        ["of the wrong ones, have all patterns all the same", _share(light.passed_of_wrong)],
    ]
    if light.overlap_correct is not None or light.overlap_wrong is not None:
        shown += [
            ["overlap with a known answer, right drafts", _share(light.overlap_correct)],
            ["overlap with a known answer, wrong drafts", _share(light.overlap_wrong)],
            ["a right one overlaps more than a wrong one (0.5: chance)", _number(light.separation)],
        ]
    return [
        "Light checks (text only, nothing is run) beside the tools:",
        "",
        *table(["check", ""], shown),
        "",
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Writes a table as lines of Markdown."""
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _pictures() -> list[str]:
    return [f"![Solved by turns and samples]({BY_TURN})", "", f"![By family]({BY_FAMILY})"]


def _draw_turns(found: Evaluation, path: Path) -> None:
    """Share solved over turns, a line for each number of samples."""
    figure, axes = _figure((5.4, 3.4))
    for k in found.within[0].at:
        points = [(w.turns, 100 * (w.at[k].value or 0.0)) for w in found.within if k in w.at]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            "o-",
            markersize=4,
            label=f"{k} sample{'s'[: k > 1]}",
        )
    axes.set_xlabel("turns")
    axes.set_ylabel("solved, % of problems")
    axes.set_ylim(-3, 103)
    axes.grid(alpha=0.25)
    if found.within[0].at:
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _draw_families(found: Evaluation, path: Path) -> None:
    names = list(found.families)[::-1]
    figure, axes = _figure((6.2, 0.9 + 0.32 * len(names)))
    places = range(len(names))
    solved = [100 * (found.families[name].solved.value or 0.0) for name in names]
    drafted = [100 * (found.families[name].drafted.value or 0.0) for name in names]
    axes.barh(places, solved, height=0.7, color="#9ecae1", label=f"within {found.turns} turns")
    axes.barh(places, drafted, height=0.4, color="#2171b5", label="draft")
    axes.set_yticks(list(places), [name or "(none)" for name in names])
    axes.set_xlim(0, 100)
    axes.set_xlabel("right, % of samples")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _figure(size: tuple[float, float]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()
