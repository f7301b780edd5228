"""The shape of the project: who may import whom, how long a file and a function may be, and what `agent --help` may
cost.
"""

import ast
import collections
import functools
import graphlib
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = {"tools": 0, "policies": 0, "store": 1, "agent": 2, "rl": 3}
FILES = sorted(p for package in FLOORS for p in (ROOT / package).rglob("*.py"))
LONGEST_FILE = 480
LONGEST_FUNCTION = 86
HEAVY = (
    "torch",
    "triton",
    "transformers",
    "vllm",
    "trl",
    "openai",
    "textual",
    "pyarrow",
    "sqlmodel",
    "pydantic",
)
HELP_SECONDS = 0.4
SLACK = 2.0
"""The budget is wall time on an idle machine, where it equals processor time.

CI runs beside other work, so processor time is what is held, with this much room for its slower processors and cold
caches.
"""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file, which several tests read."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    """Line and absolute name of every import, those inside functions too."""
    found = []
    package = ("kernelwright", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            found.append((node.lineno, ".".join([*base, node.module or ""])))
    return found


def functions_of(path: Path) -> list[tuple[str, int]]:
    """Name and length in lines of every function and method."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = tree_of(path)
    return [(n.name, n.end_lineno - n.lineno + 1) for n in ast.walk(tree) if isinstance(n, kinds)]


@pytest.mark.slow
def test_imports_only_go_down():
    trespasses = []
    for path in FILES:
        own = path.relative_to(ROOT).parts[0]
        for line, name in imports_of(path):
            parts = name.split(".")
            other = parts[1] if parts[0] == "kernelwright" and len(parts) > 1 else ""
            if other != own and FLOORS.get(other, -1) >= FLOORS[own]:
                trespasses.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not trespasses, "\n".join(trespasses)


def test_no_two_rooms_import_one_another():
    """The rooms of a package, its folders, have an order: imports between them, those in functions
    too, never run in a circle. The modules beside the folders count as a room.
    """
    imported = collections.defaultdict(set)
    for path in FILES:
        room = path.relative_to(ROOT).parent.parts[:2]
        for _, name in imports_of(path):
            parts = name.split(".")[1:]
            if name.startswith("kernelwright.") and parts[0] == room[0]:
                folder = len(parts) > 1 and (ROOT / parts[0] / parts[1]).is_dir()
                imported[room].add((*parts[:2],) if folder else (parts[0],))
    for room, others in imported.items():
        others.discard(room)
    try:
        order = list(graphlib.TopologicalSorter(imported).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join("/".join(room) for room in reversed(error.args[1])))
    assert len(order) > len(FLOORS)


@pytest.mark.slow
def test_everything_of_ours_is_imported_by_its_full_name():
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in [*FILES, *(ROOT / "tests").rglob("test_*.py"), *(ROOT / "bench").rglob("*.py")]
        for line, name in imports_of(path)
        if name.split(".")[0] in FLOORS
    ]
    assert not found, "\n".join(found)


def test_no_package_of_ours_imports_the_tests_or_the_bench():
    trespasses = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in FILES
        for line, name in imports_of(path)
        if name.split(".")[0] in ("tests", "bench", "docs")
    ]
    assert not trespasses, "\n".join(trespasses)


TRUSTED_PART_OF_TRACING = {
    "kernelwright.tools.trace.trace",
    "kernelwright.tools.trace.alternatives",
    "kernelwright.tools.trace.shared_memory",
    "kernelwright.tools.tracing.client",
}
"""Of the room in which candidates run: the value that crosses, what reads it, and who asks for it."""
SANDBOXED = {"tools/replaying/service.py"}


def test_the_trusted_side_never_imports_what_runs_a_candidate():
    trespasses = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in FILES
        if "tracing" not in path.parts and str(path.relative_to(ROOT)) not in SANDBOXED
        for line, name in imports_of(path)
        if name.startswith("kernelwright.tools.tracing.") and name not in TRUSTED_PART_OF_TRACING
    ]
    assert not trespasses, "\n".join(trespasses)


def test_files_are_short():
    lengths = {
        str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in FILES
    }
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE}
    assert not too_long, too_long


WRITTEN_BY_HAND = [
    *FILES,
    *(
        p
        for folder in ("bench", "docs", "plugs", "src/kernelwright")
        for p in (ROOT / folder).rglob("*.py")
    ),
]
"""Of the tests, some hold the long lines that other programs print."""
LONGEST_LINE = 120


def test_lines_fit_beside_another_file():
    """Ruff leaves out lines that are long for a comment of its own or of mypy's alone."""
    too_long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in WRITTEN_BY_HAND
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONGEST_LINE
    ]
    assert not too_long, "\n".join(too_long)


def test_functions_fit_on_a_screen():
    too_long = [
        f"{path.relative_to(ROOT)}: {name} has {lines} lines"
        for path in FILES
        for name, lines in functions_of(path)
        if lines > LONGEST_FUNCTION
    ]
    assert not too_long, "\n".join(too_long)


def test_the_command_line_is_importable_without_anything_heavy():
    code = f"import sys, kernelwright.agent.cli; print(*[m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_results_and_problems_are_importable_without_torch():
    code = (
        "import sys, kernelwright.tools.report, kernelwright.tools.problem, "
        "kernelwright.tools.hardware.machine_info; print('torch' "
        "in sys.modules or 'triton' in "
        "sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_help_comes_at_once():
    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "kernelwright.agent", "--help"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    took = statistics.median(seconds() for _ in range(5))
    assert took < HELP_SECONDS * SLACK, (
        f"agent --help took {took:.2f} s of processor time (median of 5)"
    )


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_every_package_says_what_it_is_for(package):
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{package}/__init__.py has no docstring"


def module_of(path: Path) -> str:
    """The full name of a file's module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("kernelwright", *(parts[:-1] if parts[-1] == "__init__" else parts)))


MODULES = {module_of(path): path for path in FILES}
COMMANDS_OF_A_MODULE = "__main__"


@functools.cache
def own_imports(path: Path) -> tuple[set[str], set[str]]:
    """The modules of ours that a file imports when it is imported, and those that its functions import later.

    What is imported for types alone, or only where the file is run as a program, is in neither.
    """
    tree = tree_of(path)
    apart = [n for n in ast.walk(tree) if isinstance(n, ast.If) and _is_apart(n.test)]
    left_out = {id(n) for block in apart for child in block.body for n in ast.walk(child)}
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    later = {id(n) for function in functions for n in ast.walk(function)}
    first: set[str] = set()
    second: set[str] = set()
    for node in ast.walk(tree):
        if id(node) not in left_out:
            (second if id(node) in later else first).update(_ours(node))
    own = module_of(path)
    return first - {own}, second - {own}


def _is_apart(test: ast.expr) -> bool:
    return any(name in ast.unparse(test) for name in ("TYPE_CHECKING", COMMANDS_OF_A_MODULE))


def _ours(node: ast.AST) -> set[str]:
    """The modules that an import names: `from package import module` names the module."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return set()
    found = {name if name in MODULES else name.rpartition(".")[0] for name in names}
    return found & MODULES.keys()


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    import networkx as nx

    graph = nx.DiGraph([(one, other) for one, others in edges.items() for other in others])
    return [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]


def test_no_modules_import_each_other_in_a_circle():
    assert circles({name: own_imports(path)[0] for name, path in MODULES.items()}) == []


def test_no_modules_import_each_other_in_a_circle_that_a_function_hides():
    assert circles({name: set().union(*own_imports(path)) for name, path in MODULES.items()}) == []


CATALOGUES = ("agent/problems/catalogue",)
"""Folders with a problem a file."""
CALLED_BY_THEIR_BASE = ("visit", "generic_visit")
"""How the methods of a syntax tree's visitor begin: their names say all."""
NAMED_BY_A_CONTRACT = ("agent/serving/wire.py", "agent/judging/messages.py")
"""Their classes have the names of docs/reference/service.md, whatever the rest of the floor calls its own."""


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_a_class_name_means_one_thing_on_its_floor(package):
    places: dict[str, list[str]] = {}
    for path in FILES:
        place = str(path.relative_to(ROOT))
        if path.is_relative_to(ROOT / package) and not place.startswith(
            (*CATALOGUES, *NAMED_BY_A_CONTRACT)
        ):
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(place)
    assert {name: own for name, own in places.items() if len(own) > 1} == {}


def test_public_methods_of_private_classes_have_a_docstring_too():
    """Ruff's rules hold this over public classes."""
    missing = [
        f"{path.relative_to(ROOT)}:{method.lineno} {owner.name}.{method.name}"
        for path in FILES
        if str(path.parent.relative_to(ROOT)) not in CATALOGUES
        for owner in tree_of(path).body
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith(("_", *CALLED_BY_THEIR_BASE))
        and not ast.get_docstring(method)
    ]
    assert not missing, "\n".join(missing)


MOST_MODULES_IN_A_FOLDER = 15
MEDIAN_LINES = (120, 250)


def test_a_folder_holds_a_handful_of_modules():
    folders: dict[str, int] = {}
    for path in FILES:
        if path.name != "__init__.py":
            place = str(path.parent.relative_to(ROOT))
            folders[place] = folders.get(place, 0) + 1
    full = {place for place, count in folders.items() if count > MOST_MODULES_IN_A_FOLDER}
    assert full - set(CATALOGUES) == set()


def test_files_are_neither_fragments_nor_scrolls():
    read = [
        p
        for p in FILES
        if p.name != "__init__.py" and str(p.parent.relative_to(ROOT)) not in CATALOGUES
    ]
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in read]
    shortest, longest = MEDIAN_LINES
    assert shortest <= statistics.median(lengths) <= longest


@pytest.mark.parametrize(
    "folder", sorted({p.parent for p in FILES}), ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_folder_says_what_belongs_there(folder):
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), f"{folder}/__init__.py has no docstring"


TESTS_OF_ROOMS = sorted(
    {
        path.parent.relative_to(ROOT / "tests")
        for package in FLOORS
        for path in (ROOT / "tests" / package).rglob("test_*.py")
    }
)


def test_the_tests_mirror_the_rooms():
    """A folder of tests bears the name of the room that it tests; folders of candidates and of data hold no tests."""
    strangers = [
        str(folder) for folder in TESTS_OF_ROOMS if not (ROOT / folder / "__init__.py").is_file()
    ]
    assert strangers == []


def test_a_folder_of_tests_holds_a_handful_of_modules():
    full = {str(f): len(list((ROOT / "tests" / f).glob("*.py"))) for f in TESTS_OF_ROOMS}
    assert {
        folder: count for folder, count in full.items() if count > MOST_MODULES_IN_A_FOLDER
    } == {}
