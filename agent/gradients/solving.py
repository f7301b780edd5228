"""Solves a problem and its gradient problem, and joins both kernels in a file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernelwright.agent.contracts.guarded import without_header
from kernelwright.agent.gradients.autograd_file import autograd_text
from kernelwright.agent.gradients.gradient_facts import GradientFacts, gradient_facts
from kernelwright.agent.gradients.gradient_problem import gradient_problem
from kernelwright.agent.loop.run import Run
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.reporting.files import write_text
from kernelwright.agent.runtime.errors import Exit
from kernelwright.agent.solve.solving import Solved, solve_problem
from kernelwright.policies.base import Policy
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value

NO_GRADIENTS = re.compile(r"^# contract   gradients .*\n(?:#  +.*\n)*", re.MULTILINE)
"""Header lines of a kernel without backward."""
HAS_GRADIENTS = "# contract   gradients   of the differentiable outputs, once: by the kernels of the gradients below\n"


class SolvedGradients(Value):
    """Results of the runs of a problem and of its gradients."""

    forward: Solved
    gradients: Solved | None
    """None if there is no correct kernel of the problem itself."""
    facts: GradientFacts

    @property
    def exit(self) -> Exit:
        """The exit status of the command."""
        return self.forward.exit if self.gradients is None else self.gradients.exit


def solve_with_gradients(
    problem: Problem,
    open_policy: Callable[[], Policy],
    settings: Settings,
    *,
    db: str | None = None,
    output: Path,
    watch: Callable[[Run, str], None],
    say: Callable[[str], None],
) -> SolvedGradients:
    """Solves both problems, and writes a file. Without a kernel for the gradients the file has the
    forward pass only.

    Raises ProblemError if the reference fails, or has no gradients to be judged.
    """

    def solved_to(target: Problem, path: Path) -> Solved:
        policy = open_policy()
        try:
            return solve_problem(target, policy, settings, db=db, output=path, watch=watch, say=say)
        finally:
            policy.close()

    say("comparing the reference's gradients with differences")
    facts = gradient_facts(problem)
    forward = solved_to(problem, output)
    if not forward.correct:
        return SolvedGradients(forward=forward, gradients=None, facts=facts)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gradients_triton.py"
        gradients = solved_to(gradient_problem(problem, facts), file)
        if gradients.correct:
            write_text(output, _joined_file(output.read_text(), file.read_text(), facts))
            gradients = gradients.with_(output=str(output))
    return SolvedGradients(forward=forward, gradients=gradients, facts=facts)


def _joined_file(forward: str, gradients: str, facts: GradientFacts) -> str:
    """Returns the text of the file with both kernels, from the files of each."""
    header, kernels = _parts(forward)
    other_header, other_kernels = _parts(gradients)
    header = NO_GRADIENTS.sub(HAS_GRADIENTS, f"{header}\n")
    # The first line names the program and the time.
    origin = NO_GRADIENTS.sub("", other_header.partition("\n")[2] + "\n")
    return f"{header}#\n# The gradients:\n{origin}\n{autograd_text(kernels, other_kernels, facts)}"


def _parts(file: str) -> tuple[str, str]:
    """Returns the comments at the top of a kernel file, and the rest."""
    kernels = without_header(file)
    return file.removesuffix(kernels).rstrip(), kernels
