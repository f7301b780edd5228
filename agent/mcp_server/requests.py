"""The requests of clients, checked before anything is judged. Every refusal is one line that says what to do."""

from __future__ import annotations

import stat
from pathlib import Path

from kernelwright.agent.problems.forms_of_users.forms import complete_reference
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem, check_form
from kernelwright.tools.report import Value

MAX_SOURCE_BYTES = 2 * 2**20
"""Bytes of a candidate or of a reference."""
MAX_NAME_CHARACTERS = 1000
"""Characters of a problem's name, of a path, and of words to look for."""
BASELINES = ("eager", "compile")


class Access(Value):
    """What the clients of a server may do: name files, and hand in references."""

    local: bool = False
    """Whether clients may name files of this machine and hand in references of their own. A reference is trusted code:
    the judge runs it. True over stdio, where the client is the user's own agent."""
    kernelbench: Path | None = None
    tritonbench: Path | None = None


def find_problem(asked: str, access: Access) -> Problem:
    """A problem by its name, or, where clients are local, by a file or by the reference's text.

    Raises InputError or ProblemError.
    """
    from kernelwright.agent.problems.entry_points.installed_objects import is_dotted
    from kernelwright.agent.problems.finding import CODE_FILES, find_by_name, split_entry

    if "\n" in asked:
        _need_local(access, "the text of a reference")
        _need_size(asked, "the reference")
        source = complete_reference(asked)
        check_form(source)
        return Problem(name="given", source=source)
    if len(asked) > MAX_NAME_CHARACTERS:
        raise InputError(
            f"a problem's name has {MAX_NAME_CHARACTERS} characters at most: a reference's text has several lines"
        )
    file, _ = split_entry(asked.strip())
    if (
        file.endswith(CODE_FILES)
        or "/" in file.removeprefix("kernelbench:")
        or Path(file).is_file()
    ):
        _need_local(access, "a file")
        _need_text_file(Path(file).expanduser())
    elif is_dotted(asked.strip()):
        _need_local(access, "a class of an installed package")
    return find_by_name(asked, kernelbench=access.kernelbench, tritonbench=access.tritonbench)


def read_source(asked: str, access: Access) -> str:
    """Returns a candidate's text: as it was given, or, where clients are local, from the named file. Raises
    InputError.
    """
    from kernelwright.agent.candidates.candidate_files import read_candidate

    if "\n" not in asked and asked.strip().endswith(".py") and len(asked) <= MAX_NAME_CHARACTERS:
        _need_local(access, "a file")
        file = Path(asked.strip()).expanduser()
        _need_text_file(file)
        return read_candidate(file)
    _need_size(asked, "the candidate")
    if "\0" in asked:
        raise InputError("the candidate is not Python: it holds null bytes")
    return asked


def _need_size(text: str, what: str) -> None:
    if len(text.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise InputError(
            f"{what} has more than {MAX_SOURCE_BYTES:,} bytes: hand in one Python file of source text"
        )


def _need_text_file(path: Path) -> None:
    """Neither a device nor a pipe, which may have no end, nor a file of data. What is not there its reader tells."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise InputError(f"{path} is no file of text: name a .py file")
    if found.st_size > MAX_SOURCE_BYTES:
        raise InputError(
            f"{path} has more than {MAX_SOURCE_BYTES:,} bytes: name one Python file of source text"
        )


def _need_local(access: Access, what: str) -> None:
    if not access.local:
        raise InputError(
            f"this server takes no {what.removeprefix('a ').removeprefix('the ')} from its clients: name a problem of "
            "problem_list and hand in the candidate's text (agent mcp --trust-clients allows it)"
        )
