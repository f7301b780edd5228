"""Tools for a coding agent. The docstring of a tool is the description read by the agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Literal

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from kernelwright.agent.mcp_server.answers import (
    AnswerState,
    HistoryAnswer,
    ProblemAnswer,
    ProblemLine,
    ProblemsAnswer,
    Question,
    ToolAnswer,
    VerdictAnswer,
)
from kernelwright.agent.mcp_server.judging import JudgeRequest, ServerJudge
from kernelwright.agent.mcp_server.requests import MAX_QUERY_CHARACTERS, find_problem
from kernelwright.errors import InputError
from kernelwright.tools.options import DEFAULT_SIZES
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.report import InfrastructureError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

PROGRESS: ContextVar[Callable[[float, str], Awaitable[None]] | None] = ContextVar(
    "progress", default=None
)
"""Sends the client of the current call the seconds since its start, and the current step of its
verdict.
"""
MAX_SIZES = 64
"""Largest number of further sizes that a client may request."""
TOOL_ANSWER_SECONDS = 45.0
"""Seconds a tool waits for its verdict before the answer `running`; clients give up after 60
seconds.
"""

ProblemArgument = Annotated[
    str,
    Field(
        description='A name ("fused softmax"), kernelbench:LEVEL/NUMBER, or on a local server a .py file or a text.'
    ),
]
SourceArgument = Annotated[
    str,
    Field(
        description="The candidate's whole Python text with `class ModelNew`; on a local server also a .py file."
    ),
]
TargetsArgument = Annotated[
    list[str] | None,
    Field(description="sm_80, sm_86, sm_89, sm_90, sm_100, sm_120 or gfx942. The first decides."),
]
SeedArgument = Annotated[
    int | None, Field(ge=0, description="Repeats the verdict that told this seed.")
]
SizesArgument = Annotated[
    int, Field(ge=0, le=MAX_SIZES, description="Sizes to check beside the problem's own.")
]
OwnWorkArgument = Annotated[
    str,
    Field(
        max_length=40,
        description="strict; share:P allows torch the rest of the work; report only tells of it.",
    ),
]
BaselineArgument = Annotated[
    Literal["eager", "compile"], Field(description="PyTorch eager or torch.compile.")
]
VerdictId = Annotated[
    str, Field(max_length=MAX_QUERY_CHARACTERS, description="As an earlier answer named it.")
]

PROGRESS_SECONDS = 1.0
"""Seconds between two progress messages."""
TOOL_TITLES = {
    "problem_list": "List problems",
    "problem_show": "Show a problem",
    "compile": "Compile a kernel",
    "interpret": "Interpret a kernel",
    "check": "Check a kernel",
    "bench": "Time a kernel",
    "profile": "Profile a kernel",
    "submit": "Begin a verdict",
    "result": "Fetch a verdict",
    "cancel": "Cancel a verdict",
    "history": "List verdicts",
}
"""Titles of the tools in a client's user interface."""
CANDIDATE_CONTRACT = (
    "One Python file. `class ModelNew(torch.nn.Module)` takes the arguments of `Model.__init__` (get_init_inputs) and "
    "its forward those of `Model.forward`, and returns a new tensor of the same shape and dtype. Every computation is "
    "done by @triton.jit kernels of the file: torch only allocates, views and copies. It must be right at other sizes "
    "than its own and on unusual values (large, special, constant rows); host code may not depend on what tensors hold."
)
"""Rules for candidates, as part of the answer of `problem_show`."""


def tool_result(answer: ToolAnswer, failed: bool = False) -> CallToolResult:
    """Returns an answer in MCP's form: structured, and as compact JSON text for clients without
    structured content.

    Fields with default values are left out of both; answers.py holds the models.
    """
    text = answer.model_dump_json(exclude_defaults=True)
    structured = answer.model_dump(mode="json", exclude_defaults=True)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=structured,
        is_error=failed,
    )


class Tools:
    """Tools of a server. No tool raises: a failed request has `error`, a broken kernel has
    `outcome`.
    """

    def __init__(self, judging: ServerJudge) -> None:
        self._judging = judging

    def add_to(self, server: MCPServer) -> None:
        """Registers every tool. Output schemas are not sent: they would be nine tenths of the tool
        list.
        """
        for tool in (
            self.problem_list, self.problem_show, self.compile, self.interpret, self.check, self.bench, self.profile,
            self.submit, self.result, self.cancel, self.history,
        ):  # fmt: skip
            title = TOOL_TITLES[tool.__name__]
            annotations = ToolAnnotations(
                title=title, read_only_hint=tool.__name__ != "cancel", destructive_hint=False,
                idempotent_hint=tool.__name__ != "submit", open_world_hint=False,
            )  # fmt: skip
            server.add_tool(tool, title=title, annotations=annotations, structured_output=False)

    # -------------------------------------------------------------- problems
    def problem_list(
        self,
        query: Annotated[
            str,
            Field(
                max_length=MAX_QUERY_CHARACTERS, description="Words to look for; all where empty."
            ),
        ] = "",
        limit: Annotated[int, Field(ge=1, le=500)] = 100,
    ) -> CallToolResult:
        """List the problems of the catalogue by name, title and family; with a query the nearest first."""
        from kernelwright.agent.problems.finding import catalogue, nearest_problems

        problems = nearest_problems(query, limit) if query.strip() else catalogue()[:limit]
        lines = tuple(
            ProblemLine(name=problem.name, title=problem.title, family=problem.family)
            for problem in problems
        )
        return tool_result(
            ProblemsAnswer(
                verdict_id=None,
                budget=self._judging.budget.remaining(),
                problems=lines,
                total=len(catalogue()),
            )
        )

    def problem_show(self, problem: ProblemArgument) -> CallToolResult:
        """Show a problem: its PyTorch reference and the rules for candidates."""
        budget = self._judging.budget.remaining()
        try:
            shown = find_problem(problem, self._judging.access)
        except (InputError, ProblemError, OSError) as error:
            return tool_result(
                ProblemAnswer(verdict_id=None, budget=budget, error=" ".join(str(error).split())),
                failed=True,
            )
        return tool_result(
            ProblemAnswer(
                verdict_id=None,
                budget=budget,
                name=shown.name,
                title=shown.title,
                family=shown.family,
                problem_hash=shown.hash,
                reference=shown.source,
                contract=CANDIDATE_CONTRACT,
            )
        )

    # -------------------------------------------------------------- verdicts
    async def compile(
        self, problem: ProblemArgument, source: SourceArgument, targets: TargetsArgument = None
    ) -> CallToolResult:
        """Compile every kernel of a candidate ahead of time, without a GPU: errors with line and
        caret, registers, spills, shared memory and occupancy. The fastest tool: use first.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.COMPILE,
                problem=problem,
                source=source,
                targets=tuple(targets or ()),
            )
        )

    async def interpret(
        self, problem: ProblemArgument, source: SourceArgument, seed: SeedArgument = None
    ) -> CallToolResult:
        """Run a candidate's kernels under Triton's interpreter at small sizes and compare with the reference, without
        a GPU and without compiling.
        """
        return await self._ask(
            JudgeRequest(question=Question.INTERPRET, problem=problem, source=source, seed=seed)
        )

    async def check(
        self, problem: ProblemArgument, source: SourceArgument, targets: TargetsArgument = None,
        seed: SeedArgument = None, sizes: SizesArgument = DEFAULT_SIZES, own_work: OwnWorkArgument = "strict",
    ) -> CallToolResult:  # fmt: skip
        """Judge a candidate: compilation, correctness at several sizes and on unusual values, and
        whether its own kernels do the work. Runs on the server's GPU, else under the interpreter.
        `correct` here is the verdict.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.CHECK,
                problem=problem,
                source=source,
                targets=tuple(targets or ()),
                seed=seed,
                sizes=sizes,
                own_work=own_work,
            )
        )

    async def bench(
        self, problem: ProblemArgument, source: SourceArgument,
        baseline: BaselineArgument = "eager",
        seed: SeedArgument = None,
    ) -> CallToolResult:  # fmt: skip
        """Judge a candidate and time it against PyTorch: faster, slower, inconclusive, incorrect or
        invalid; needs_gpu on a server without a GPU.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.BENCH,
                problem=problem,
                source=source,
                baseline=baseline,
                seed=seed,
            )
        )

    async def profile(
        self, problem: ProblemArgument, source: SourceArgument, targets: TargetsArgument = None
    ) -> CallToolResult:
        """Show the time of every launch of a correct candidate, with roofline, speed of light,
        registers and occupancy. Without a GPU: figures of the compiler only.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.PROFILE,
                problem=problem,
                source=source,
                targets=tuple(targets or ()),
            )
        )

    def submit(
        self, question: Annotated[Question, Field(description="The tool to ask.")], problem: ProblemArgument,
        source: SourceArgument, targets: TargetsArgument = None, seed: SeedArgument = None,
        baseline: BaselineArgument = "eager",
    ) -> CallToolResult:  # fmt: skip
        """Begin a verdict and return at once with its verdict_id for `result`. For several
        candidates in parallel.
        """
        request = JudgeRequest(
            question=question, problem=problem, source=source, targets=tuple(targets or ()), seed=seed,
            baseline=baseline,
        )  # fmt: skip
        return _verdict_result(self._judging.submit(request))

    async def result(
        self, verdict_id: VerdictId,
        wait_seconds: Annotated[float, Field(ge=0.0, le=TOOL_ANSWER_SECONDS, description="For a running one.")] = 20.0,
        report: Annotated[bool, Field(description="Answer the whole report as JSON too.")] = False,
        source: Annotated[bool, Field(description="Answer the candidate's text too.")] = False,
    ) -> CallToolResult:  # fmt: skip
        """Return the verdict with this id, of this or an earlier server. Waits for a running
        verdict, and returns its current step if still running.
        """
        await self._wait(verdict_id, wait_seconds)
        return _verdict_result(
            await asyncio.to_thread(self._judging.result, verdict_id, report, source)
        )

    def cancel(self, verdict_id: VerdictId) -> CallToolResult:
        """Stop a waiting or running verdict: at its next step, or after some seconds together with
        its processes. `result` shows the end.
        """
        return _verdict_result(self._judging.cancel(verdict_id))

    def history(
        self, problem: Annotated[str, Field(description="A problem's name; all where empty.")] = "",
        limit: Annotated[int, Field(ge=1, le=200)] = 20,
    ) -> CallToolResult:  # fmt: skip
        """List the newest verdicts, those of earlier servers included. `result` returns a verdict
        with its report and text.
        """
        budget = self._judging.budget.remaining()
        try:
            name = find_problem(problem, self._judging.access).name if problem.strip() else ""
            lines, total = self._judging.history.newest(name, limit)
        except (InputError, ProblemError, InfrastructureError, OSError) as error:
            return tool_result(
                HistoryAnswer(verdict_id=None, budget=budget, error=" ".join(str(error).split())),
                failed=True,
            )
        return tool_result(
            HistoryAnswer(verdict_id=None, budget=budget, verdicts=tuple(lines), total=total)
        )

    async def _ask(self, request: JudgeRequest) -> CallToolResult:
        begun = await asyncio.to_thread(self._judging.submit, request)
        if begun.state is not AnswerState.RUNNING or begun.verdict_id is None:
            return _verdict_result(begun)
        await self._wait(begun.verdict_id, TOOL_ANSWER_SECONDS)
        return _verdict_result(await asyncio.to_thread(self._judging.result, begun.verdict_id))

    async def _wait(self, verdict_id: str, seconds: float) -> None:
        """Waits for the end of a verdict, at most for this many seconds. A disconnected client ends
        no verdict.
        """
        running = self._judging.running(verdict_id)
        if running is None:
            return
        ending, began, report = asyncio.wrap_future(running), time.monotonic(), PROGRESS.get()
        while not ending.done() and (passed := time.monotonic() - began) < seconds:
            if report is not None:
                await report(passed, self._judging.step(verdict_id) or "waiting")
            await asyncio.wait([ending], timeout=min(PROGRESS_SECONDS, seconds - passed))


def _verdict_result(answer: VerdictAnswer) -> CallToolResult:
    return tool_result(answer, failed=answer.state in (AnswerState.REFUSED, AnswerState.FAILED))
