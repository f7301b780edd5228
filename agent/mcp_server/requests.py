"""What a client asked for, checked before anything is judged. Every refusal is one line that says what to do."""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem, check_form
from kernelwright.tools.report import Value

MAX_SOURCE_BYTES = 2 * 2**20
"""Bytes of a candidate or of a reference."""
BASELINES = ("eager", "compile")


class Access(Value):
    """What the clients of a server may name."""

    local: bool = False
    """Whether clients may name files of this machine and hand in references of their own. A reference is trusted code:
    the judge runs it. True over stdio, where the client is the user's own agent."""
    kernelbench: Path | None = None
    tritonbench: Path | None = None


def find_problem(asked: str, access: Access) -> Problem:
    """A problem by its name, or, where clients are local, by a file or by the reference's text.

    Raises InputError or ProblemError.
    """
    from kernelwright.agent.problems.finding import find

    if "\n" in asked:
        _need_local(access, "the text of a reference")
        _need_size(asked, "the reference")
        check_form(asked)
        return Problem(name="given", source=asked)
    if asked.endswith(".py") or "/" in asked.removeprefix("kernelbench:") or Path(asked).is_file():
        _need_local(access, "a file")
    return find(asked, kernelbench=access.kernelbench, tritonbench=access.tritonbench)


def read_source(asked: str, access: Access) -> str:
    """A candidate's text: as it was given, or, where clients are local, of the file that was named.

    Raises InputError.
    """
    from kernelwright.agent.command_line.arguments import read_candidate

    if "\n" not in asked and asked.strip().endswith(".py"):
        _need_local(access, "a file")
        return read_candidate(Path(asked.strip()).expanduser())
    _need_size(asked, "the candidate")
    if "\0" in asked:
        raise InputError("the candidate is not Python: it holds null bytes")
    return asked


def _need_size(text: str, what: str) -> None:
    if len(text.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise InputError(f"{what} has more than {MAX_SOURCE_BYTES:,} bytes: hand in one Python file of source text")


def _need_local(access: Access, what: str) -> None:
    if not access.local:
        raise InputError(
            f"this server takes no {what.removeprefix('a ').removeprefix('the ')} from its clients: name a problem of "
            "problem_list and hand in the candidate's text (agent mcp --trust-clients allows it)"
        )
