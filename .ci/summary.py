"""Sums up the JUnit files of a CI run: what passed in each, and which tests were skipped in all of them and why.

python3 .ci/summary.py FOLDER
"""

from __future__ import annotations

import ast
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """One test, or one module that was skipped as a whole, in one run."""

    test: str
    state: str
    reason: str


def outcomes(file: Path) -> list[Outcome]:
    """Reads the tests of one JUnit file."""
    cases = ElementTree.parse(file).iter("testcase")
    return [outcome(case) for case in cases]


def outcome(case: ElementTree.Element) -> Outcome:
    """Reads one test. A module that was skipped while it was collected has its own name and no class."""
    test = ".".join(filter(None, (case.get("classname"), case.get("name"))))
    for state in ("skipped", "failure", "error"):
        found = case.find(state)
        if found is not None:
            message = (
                found.get("message") if found.get("message") != "collection skipped" else found.text
            )
            return Outcome(test, state, reason(message or ""))
    return Outcome(test, "passed", "")


def reason(message: str) -> str:
    """Returns the reason of a skip without folders, which differ from run to run.

    pytest writes that of a module as a tuple: ("test_a.py", 14, "Skipped: could not import 'vllm'").
    """
    if message.startswith("("):
        message = ast.literal_eval(message)[2].removeprefix("Skipped: ")
    return " ".join(re.sub(r"(/[\w.+-]+){2,}/", "", message).split())


def skipped_everywhere(runs: dict[str, list[Outcome]]) -> Counter[str]:
    """Counts by reason the tests that were skipped and that no run passed. Of a skipped module any test counts."""
    passed = {
        outcome.test for found in runs.values() for outcome in found if outcome.state == "passed"
    }
    modules = {test.rpartition(".")[0] for test in passed}
    skipped = {
        outcome.test: outcome.reason
        for found in runs.values()
        for outcome in found
        if outcome.state == "skipped" and outcome.test not in passed | modules
    }
    return Counter(skipped.values())


def main(folder: Path) -> None:
    """Prints the summary."""
    runs = {file.stem: outcomes(file) for file in sorted(folder.glob("*.xml"))}
    for name, found in runs.items():
        states = Counter(outcome.state for outcome in found)
        print(
            f"{name}: {', '.join(f'{count} {state}' for state, count in states.most_common()) or 'no test'}"
        )
    skipped = skipped_everywhere(runs)
    print(f"skipped in every run: {sum(skipped.values())}")
    for why, count in skipped.most_common():
        print(f"  {count:5} {why}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
