"""Formats an evaluation as Markdown and pictures."""

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
    evaluation: Evaluation, folder: Path, command: str, machine: str, date: str
) -> list[Path]:
    """Writes evaluation.md, evaluation.json and two pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    _draw_turns(evaluation, folder / BY_TURN)
    _draw_families(evaluation, folder / BY_FAMILY)
    page = "\n".join(
        [
            f"# {evaluation.policy} on {evaluation.suite}",
            "",
            format_page(evaluation, command, machine, date),
            "",
            *_pictures(),
        ]
    )
    return [
        write_text(folder / "evaluation.md", page + "\n"),
        write_text(folder / "evaluation.json", evaluation.model_dump_json(indent=2) + "\n"),
        folder / BY_TURN,
        folder / BY_FAMILY,
    ]


def write_comparison(
    compared: EvaluationComparison, folder: Path, command: str, date: str
) -> list[Path]:
    """Writes comparison.md and comparison.json, and returns their paths."""
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
    """Returns a sentence with the number of common problems, and of problems left out."""
    text = f"Compared on {compared.shared} shared problems"
    if compared.only_before or compared.only_after:
        text += f" ({compared.only_before} only before and {compared.only_after} only after are left out)"
    return f"{text}."


def changes_text(changes: Sequence[ProblemChange], most: int) -> str:
    """Lists at most `most` problems with the shares of correct rollouts before and after."""
    shown = [
        f"{change.problem} {change.before:.0%} -> {change.after:.0%}" for change in changes[:most]
    ]
    omitted = [f"and {len(changes) - most} more"] if len(changes) > most else []
    return ", ".join([*shown, *omitted]) or "none"


def format_page(evaluation: Evaluation, command: str, machine: str, date: str) -> str:
    """Returns the page without title and pictures, for a model's card."""
    faults = ", ".join(
        f"{name.replace('_', ' ')} {count}" for name, count in evaluation.faults.items()
    )
    return "\n".join(
        [
            _settings_text(evaluation),
            "",
            *_within_table(evaluation),
            "",
            *_family_table(evaluation),
            "",
            f"Drafts: {faults}.",
            "",
            _tokens_text(evaluation),
            "",
            *_fast(evaluation),
            *_light(evaluation.light),
            f"`{command}`, {machine}, {date}.",
        ]
    )


def _settings_text(evaluation: Evaluation) -> str:
    temperature = "greedy first, then 0.8"
    if evaluation.temperature is not None:
        temperature = f"{evaluation.temperature:g}"
    judged = f"on {evaluation.device} at full shapes"
    if evaluation.device == "cpu":
        judged = "on a CPU, interpreted, at small shapes"
    return (
        f"{evaluation.suite}: {evaluation.problems} problems, {evaluation.samples} samples each, "
        f"up to {evaluation.turns} turns, temperature {temperature}, seed {evaluation.seed}; "
        f"judged {judged}. {_unfinished(evaluation)}Intervals: 95 %, bootstrapped over problems."
    )


def _tokens_text(evaluation: Evaluation) -> str:
    tokens = evaluation.tokens
    text = (
        f"Tokens: {tokens.prompt:.0f} a prompt, {tokens.completion:.0f} an answer, "
        f"{tokens.a_rollout:.0f} a rollout"
    )
    if tokens.a_solved_problem:
        text += f", {tokens.a_solved_problem:.0f} a solved problem"
    wait = f"{evaluation.policy_seconds:.2f}"
    return f"{text}. A draft waits {wait} s for its answer (median; many are drawn together)."


def percent(estimate: Estimate) -> str:
    """Formats an estimate with its interval: `63 % (55 to 71)`."""
    if estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.0%}"
    return f"{estimate.value:.0%} ({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"


def _unfinished(evaluation: Evaluation) -> str:
    missing = evaluation.problems * evaluation.samples - evaluation.rollouts + evaluation.unfinished
    return f"{missing} rollouts are not finished and count as failed. " if missing else ""


def _within_table(evaluation: Evaluation) -> list[str]:
    ks = [k for k in evaluation.within[0].at if k > 1]
    rows = [
        [str(w.turns), percent(w.compiled), percent(w.solved), *(percent(w.at[k]) for k in ks)]
        for w in evaluation.within
    ]
    return table(["turns", "compiled", "solved (pass@1)", *(f"pass@{k}" for k in ks)], rows)


def _family_table(evaluation: Evaluation) -> list[str]:
    rows = [
        [
            name or "(none)",
            str(measures.problems),
            percent(measures.compiled),
            percent(measures.drafted),
            percent(measures.solved),
            f"{measures.any_solved} of {measures.problems}",
        ]
        for name, measures in evaluation.families.items()
    ]
    return table(
        [
            "family",
            "problems",
            "drafts compile",
            "drafts right",
            f"within {evaluation.turns}",
            "ever solved",
        ],
        rows,
    )


def _fast(evaluation: Evaluation) -> list[str]:
    if evaluation.device == "cpu" or not evaluation.fast:
        return ["No speed is measured on a CPU, so there is no fast_p.", ""]
    listed = ", ".join(f"fast_{p:g} {percent(e)}" for p, e in evaluation.fast.items())
    median = evaluation.median_speedup.value
    return [
        f"{listed}." + (f" Median speedup of what is right: {median:.2f}." if median else ""),
        "",
    ]


def _light(light: TextCheckFigures | None) -> list[str]:
    """Returns the section on how far the text checks mislead."""
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
    """Returns the lines of a Markdown table."""
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _pictures() -> list[str]:
    return [f"![Solved by turns and samples]({BY_TURN})", "", f"![By family]({BY_FAMILY})"]


def _draw_turns(evaluation: Evaluation, path: Path) -> None:
    """Draws the solved share over turns, with a line for each number of samples."""
    figure, axes = _figure((5.4, 3.4))
    for k in evaluation.within[0].at:
        points = [(w.turns, 100 * (w.at[k].value or 0.0)) for w in evaluation.within if k in w.at]
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
    if evaluation.within[0].at:
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _draw_families(evaluation: Evaluation, path: Path) -> None:
    names = list(evaluation.families)[::-1]
    figure, axes = _figure((6.2, 0.9 + 0.32 * len(names)))
    positions = range(len(names))
    solved = [100 * (evaluation.families[name].solved.value or 0.0) for name in names]
    drafted = [100 * (evaluation.families[name].drafted.value or 0.0) for name in names]
    axes.barh(
        positions, solved, height=0.7, color="#9ecae1", label=f"within {evaluation.turns} turns"
    )
    axes.barh(positions, drafted, height=0.4, color="#2171b5", label="draft")
    axes.set_yticks(list(positions), [name or "(none)" for name in names])
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
