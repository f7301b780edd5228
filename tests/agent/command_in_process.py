"""Commands of `agent` run in the process of the tests, which has torch and warm processes already."""

import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from kernelwright.agent.cli import main


def agent_here(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process and in a folder: its exit status and what it printed, as of a process.

    A process of its own takes seven seconds of a core where something is judged, and half a second where nothing is.
    """
    out, err = StringIO(), StringIO()
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        patch.setenv("NO_COLOR", "1")
        os.chdir(folder)
        try:
            with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
                main(list(arguments))
        finally:
            os.chdir(before)
    return subprocess.CompletedProcess(
        arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue()
    )
