"""Checks the requests of clients before any judging. A refusal is one line with the remedy."""

from __future__ import annotations

import stat
from pathlib import Path

from kernelwright.agent.problems.forms_of_users.forms import complete_reference
from kernelwright.errors import InputError
from kernelwright.tools.markdown.fenced_code import extract_code, fenced_blocks
from kernelwright.tools.problem import Problem, check_form
from kernelwright.tools.report import Value

MAX_SOURCE_BYTES = 2 * 2**20
"""Maximum size of a candidate or a reference, in bytes."""
MAX_QUERY_CHARACTERS = 1000
"""Maximum length of a problem's name, a path or a search text, in characters."""
BASELINES = ("eager", "compile")


class Access(Value):
    """Rights of a server's clients: naming files, and sending references."""

    local: bool = False
    """Whether clients may name files of this machine and send references. The judge runs references
    as trusted code. True over stdio, with the user's own agent as client.
    """
    kernelbench: Path | None = None
    tritonbench: Path | None = None


def find_problem(name_or_text: str, access: Access) -> Problem:
    """Returns a problem by its name, or for local clients by a file or the text of a reference.

    Raises InputError or ProblemError.
    """
    from kernelwright.agent.problems.entry_points.installed_objects import is_dotted
    from kernelwright.agent.problems.finding import CODE_FILES, find_by_name, split_entry

    if "\n" in name_or_text:
        _need_local(access, "the text of a reference")
        _need_size(name_or_text, "the reference")
        source = complete_reference(name_or_text)
        check_form(source)
        return Problem(name="given", source=source)
    if len(name_or_text) > MAX_QUERY_CHARACTERS:
        raise InputError(
            f"a problem's name has {MAX_QUERY_CHARACTERS} characters at most: a reference's text has several lines"
        )
    file, _ = split_entry(name_or_text.strip())
    if (
        file.endswith(CODE_FILES)
        or "/" in file.removeprefix("kernelbench:")
        or Path(file).is_file()
    ):
        _need_local(access, "a file")
        _need_text_file(Path(file).expanduser())
    elif is_dotted(name_or_text.strip()):
        _need_local(access, "a class of an installed package")
    return find_by_name(
        name_or_text, kernelbench=access.kernelbench, tritonbench=access.tritonbench
    )


def read_source(text_or_path: str, access: Access) -> str:
    """Returns a candidate's text: the argument itself, the program in its fenced blocks, or for
    local clients the content of the named file. Raises InputError.
    """
    from kernelwright.agent.candidates.candidate_files import read_candidate

    if (
        "\n" not in text_or_path
        and text_or_path.strip().endswith(".py")
        and len(text_or_path) <= MAX_QUERY_CHARACTERS
    ):
        _need_local(access, "a file")
        file = Path(text_or_path.strip()).expanduser()
        _need_text_file(file)
        return read_candidate(file)
    _need_size(text_or_path, "the candidate")
    if "\0" in text_or_path:
        raise InputError("the candidate is not Python: it holds null bytes")
    # A coding agent may hand in what it writes into its chat.
    return (extract_code(text_or_path) if fenced_blocks(text_or_path) else "") or text_or_path


def _need_size(text: str, description: str) -> None:
    if len(text.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise InputError(
            f"{description} has more than {MAX_SOURCE_BYTES:,} bytes: hand in one Python file of source text"
        )


def _need_text_file(path: Path) -> None:
    """Raises InputError for a device or a pipe, which may be endless, and for a large file. A
    missing file is reported later, by its reader.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is no file of text: name a .py file")
    if status.st_size > MAX_SOURCE_BYTES:
        raise InputError(
            f"{path} has more than {MAX_SOURCE_BYTES:,} bytes: name one Python file of source text"
        )


def _need_local(access: Access, description: str) -> None:
    if not access.local:
        noun = description.removeprefix("a ").removeprefix("the ")
        raise InputError(
            f"this server takes no {noun} from its clients: name a problem of problem_list and "
            "hand in the candidate's text (agent mcp --trust-clients allows it)"
        )
