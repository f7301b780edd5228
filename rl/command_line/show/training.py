"""Renders a training: its plan, a live table of steps, and its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kernelwright.agent.viewing.show.progress import console
from kernelwright.agent.viewing.show.rendering import show

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from kernelwright.rl.training.plan import TrainingPlan
    from kernelwright.rl.training.report import TrainingResult

TABLE_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("reward", "reward", "{:.3f}"), ("pass_at_1", "pass@1", "{:.1%}"), ("compile_rate", "compiles", "{:.1%}"),
    ("repair_rate", "repairs", "{:.1%}"),
    ("loss", "loss", "{:.4f}"), ("drift/kl", "KL", "{:.4f}"), ("drift/effective_sample_size", "ESS", "{:.2f}"),
    ("entropy", "entropy", "{:.3f}"),
    ("clip_ratio/region_mean", "clipped", "{:.2%}"), ("completion_length", "length", "{:.0f}"),
    ("zero_variance", "flat", "{:.0%}"), ("rows", "rows", "{:.0f}"),
    ("tokens_a_second", "tok/s", "{:,.0f}"), ("gpu_busy", "GPU", "{:.0%}"), ("seconds", "s", "{:.1f}"),
)  # fmt: skip
REWARD_PREFIX = "reward/"
STEPS_SHOWN = 14
"""Number of the latest steps in the table."""


def plan_view(plan: TrainingPlan) -> Group:
    """Renders the plan of a training before its start."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    from kernelwright.agent.reporting.words import number_of
    from kernelwright.rl.command_line.show.stats import refusal_table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    ages = ", ".join(f"{age}: {turns:,}" for age, turns in plan.ages.items())
    drift = plan.drift
    lines = [
        ("method", f"{plan.method}: {plan.why}"),
        ("policy", f"{plan.policy} ({plan.revision or 'no revision'})"),
        ("reward", f"{plan.formula}, gamma {plan.gamma:g}; mean {plan.reward:.3f}"),
        (
            "turns",
            f"{plan.used:,} of {plan.turns:,} are trained on, {plan.correct:.1%} of them correct, "
            f"{plan.tokens:,} tokens, over {number_of(plan.problems, 'problem')}",
        ),
        (
            "groups",
            f"{plan.groups:,}, of which {plan.zero_variance:,} have no variance and are dropped",
        ),
        (
            "age",
            f"turns by revisions back: {ages or 'none'}; sampled at temperature {plan.temperature:g}",
        ),
    ]
    if drift is not None:
        lines.append(
            (
                "drift",
                f"effective sample size {drift.effective:.3f}, KL {drift.kl:.4f} nats a token, largest log "
                f"ratio {drift.largest:.3f} ({drift.rows:,} "
                "rows)",
            )
        )
    lines += [("note", warning) for warning in plan.warnings]
    for name, text in lines:
        table.add_row(f"[bold]{name}[/bold]", escape(text))
    return Group(table, *([refusal_table(plan.refused)] if plan.refused else []))


class LiveTraining:
    """The latest steps of a training with the parts of the reward, and the current activity."""

    seconds_between_lines = 10.0

    def __init__(self, from_log: bool = False) -> None:
        """Starts without steps. from_log: hides figures fixed by the log before the training."""
        self._steps: deque[tuple[int, dict[str, float]]] = deque(maxlen=STEPS_SHOWN)
        self._events: SimpleQueue[str] = SimpleQueue()
        self._of, self._doing, self._from_log = 0, "starting", from_log

    def watch(self, step: int, steps: int, figures: dict[str, float]) -> None:
        """Receives the figures of optimizer step `step` of `steps` for the next redraw of the
        live view.
        """
        from kernelwright.rl.training.report import is_of_log

        shown = {
            name: value
            for name, value in figures.items()
            if not (self._from_log and is_of_log(name))
        }
        self._steps.append((step, shown))
        self._of = steps
        self._events.put(plain_line(step, steps, shown))

    def say(self, doing: str) -> None:
        """Shows a line with the current activity."""
        self._doing = doing

    def line(self) -> str:
        """Returns the text of the current activity."""
        return self._doing

    def take_events(self) -> list[str]:
        """Returns the steps since the last call, one line each."""
        return [self._events.get() for _ in range(self._events.qsize())]

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        parts: list[Table | Text] = [step_table(list(self._steps), self._of)] if self._steps else []
        if self._steps:
            reward_parts = [
                f"{name.removeprefix(REWARD_PREFIX)} {value:+.3f}"
                for name, value in self._steps[-1][1].items()
                if name.startswith(REWARD_PREFIX)
            ]
            parts.append(Text("parts: " + ", ".join(reward_parts)) if reward_parts else Text(""))
        return Group(*parts, Text(self._doing, style="dim"))


def step_table(steps: list[tuple[int, dict[str, float]]], of: int) -> Table:
    """Renders the figures of the last steps; `of` is the number of all steps."""
    from rich.table import Table

    names = [
        column for column in TABLE_COLUMNS if any(column[0] in figures for _, figures in steps)
    ]
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column(f"step / {of}", justify="right")
    for _, title, _ in names:
        table.add_column(title, justify="right", no_wrap=True)
    for step, figures in steps:
        table.add_row(
            str(step),
            *(form.format(figures[name]) if name in figures else "" for name, _, form in names),
        )
    return table


def plain_line(step: int, steps: int, figures: dict[str, float]) -> str:
    """Returns a step as a line of text, for output outside a terminal."""
    texts = [
        f"{title} {form.format(figures[name])}"
        for name, title, form in TABLE_COLUMNS
        if name in figures
    ]
    return f"step {step}/{steps}: {', '.join(texts)}"


class ShownTraining:
    """A training rendered on stderr while running; a result can be printed on stdout meanwhile."""

    def __init__(self, activity: LiveTraining, quiet: bool) -> None:
        self._activity, self._quiet = activity, quiet
        self._view = ExitStack()
        self.watch, self.say = activity.watch, activity.say

    def open(self) -> None:
        """Starts showing the activity."""
        self._view.enter_context(show(self._activity, self._quiet))

    def close(self) -> None:
        """Removes the live view from the terminal."""
        self._view.close()

    def print(self, result: RenderableType) -> None:
        """Prints a result on stdout; the live view moves aside, since both share the terminal."""
        self.close()
        console().print(result)
        self.open()


@contextmanager
def live_training(quiet: bool = False, from_log: bool = False) -> Iterator[ShownTraining]:
    """Shows a live table in a terminal, else a line for each step and activity; nothing if
    `quiet`.

    All output goes to stderr.
    """
    shown = ShownTraining(LiveTraining(from_log), quiet)
    shown.open()
    try:
        yield shown
    finally:
        shown.close()


def trained_view(trained: TrainingResult) -> str:
    """Renders the result of a training and its use."""
    loss = "" if trained.loss is None else f", last loss {trained.loss:.4f}"
    named = f"--policy transformers:{trained.base or trained.output}"
    if trained.base:
        named += f" --adapter {trained.output}"
    if trained.paused:
        return (
            f"paused after {trained.steps} steps: the same command goes on; so far the policy is "
            f"{trained.output} "
            f"({named})"
        )
    return (
        f"{trained.steps} steps of {trained.method} on {trained.rows:,} rows in {trained.seconds:.0f} s{loss}\n"
        f"the policy is in {trained.output} (agent solve ... {named}); its curves in report.html and curves.png there"
    )
