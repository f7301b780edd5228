"""Kernels of a layer's gradients in a package, which stands beside the kernel of the layer."""

from __future__ import annotations

from kernelwright.agent.contracts.guarded import guarded_kernel
from kernelwright.agent.gradients.gradient_facts import GradientFacts, gradient_facts
from kernelwright.agent.gradients.gradient_problem import NAME_MARK, gradient_problem
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter, Order
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Report, Value


class PackagedGradients(Value):
    """Judged kernels of a layer's gradients."""

    problem: Problem
    text: str
    """The kernels with the checks of their contract."""
    lines: tuple[str, ...]
    """The contract as comments."""
    report: Report
    facts: GradientFacts

    def wanted(self, tensors: list[str]) -> tuple[int, ...]:
        """Returns the positions of the gradients among the tensors of the inputs and then the weights."""
        inputs = [tensors.index(name) for name in self.facts.inputs]
        return (*inputs, *(len(tensors) + position for position in self.facts.weight_positions))


def stored_gradients(store: Store, problem: Problem) -> PackagedGradients | None:
    """Returns the fastest correct kernels of a problem's gradients, or the first; None if the database has none."""
    named = CandidateFilter(problem=problem.name + NAME_MARK, correct=True)
    entries = store.candidates(named, order=Order.FASTEST, limit=None)
    entries = entries or store.candidates(named, order=Order.OLDEST, limit=None)
    if not entries:
        return None
    try:
        facts = gradient_facts(problem)
        gradients = gradient_problem(problem, facts)
    except ProblemError:
        return None
    for entry in entries:
        turn = store.turn(entry.candidate.id)
        # Another text of that name has other gradients.
        if (
            turn.problem_hash == gradients.hash
            and turn.source is not None
            and turn.report is not None
        ):
            kernel = guarded_kernel(gradients, turn.source, turn.report)
            return PackagedGradients(
                problem=gradients,
                text=kernel.text,
                lines=kernel.lines,
                report=turn.report,
                facts=facts,
            )
    return None
