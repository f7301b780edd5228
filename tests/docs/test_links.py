"""What the documents point at exists, and what they claim stands in the files that they name."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.docs.pages import GENERATED, ROOT, pages

README_LINES = 150
MAX_WORDS_OF_A_CELL = 25
BENCH_COLUMNS = ("what", "value", "goal or baseline", "hardware", "date", "file")
DOCUMENTS = [
    *pages(),
    *(
        ROOT / name
        for name in (
            "ARCHITECTURE.md",
            "AGENTS.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "bench/README.md",
        )
    ),
]
RESULTS = sorted((ROOT / "bench" / "results").iterdir())
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)")


@pytest.mark.parametrize(
    "page", [*DOCUMENTS, *(p for p in RESULTS if p.suffix == ".md")], ids=lambda page: page.name
)
def test_every_local_link_leads_somewhere(page):
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    missing = [
        link
        for link in links
        if (page.parent / link).resolve() != GENERATED and not (page.parent / link).exists()
    ]
    assert not missing


@pytest.mark.parametrize(
    "page", [p for p in DOCUMENTS if p.name != "CHANGELOG.md"], ids=lambda page: page.name
)
def test_every_path_that_is_named_in_code_exists(page):
    """`bench/...`, `docs/...`, `rl/...` and so on, as far as they name one file or folder of this repository."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:agent|bench|docs|policies|rl|store|tests|tools|src)/[\w./-]+)`", text)
    assert not [
        path
        for path in named
        if not (ROOT / path).exists() and path != str(GENERATED.relative_to(ROOT))
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_dotted_name_of_ours_exists(page):
    """`kernelwright.policies.vllm.worker.NAME` and the like: the module is there, and has that name."""
    for dotted in set(
        re.findall(r"\bkernelwright(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8"))
    ):
        place, names = ROOT / "src" / "kernelwright", dotted.split(".")[1:]
        while names and ((place / names[0]).is_dir() or (place / f"{names[0]}.py").is_file()):
            place = place / names.pop(0)
        module = (
            place.with_suffix(".py")
            if place.with_suffix(".py").is_file()
            else place / "__init__.py"
        )
        assert not names or re.search(rf"\b{names[0]}\b", module.read_text(encoding="utf-8")), (
            dotted
        )


def test_every_room_stands_in_the_architecture_and_every_file_of_its_walks_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tops = ("agent", "policies", "rl", "store", "tools")
    rooms = [path for top in tops for path in sorted((ROOT / top).iterdir()) if path.is_dir()]
    named = {room.strip("/").split("/")[-1] for room in re.findall(r"`([\w/]+/)`", text)}
    assert [str(r.relative_to(ROOT)) for r in rooms if r.name not in named | {"__pycache__"}] == []
    walks = text.split("\n## ")
    for title in ("A sentence to a checked kernel", "A turn to a loss", "A trace to a verdict"):
        [walk] = [part for part in walks if part.startswith(title)]
        files = re.findall(r"`((?:agent|policies|rl|store|tools)/[\w/]+\.py)`", walk)
        assert len(files) >= 10
        assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_page_is_in_the_navigation_and_the_other_way_round():
    names = re.findall(
        r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(names) == there | {str(GENERATED.relative_to(ROOT / "docs"))}
    assert len(names) == len(set(names))


def test_the_readme_fits_a_reader():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def tables_of_the_readme() -> dict[str, list[list[str]]]:
    """The rows of the README's tables, by the title of their section."""
    sections = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")
    rows = {
        section.partition("\n")[0]: re.findall(r"^\| (?!-)(.*) \|$", section, re.MULTILINE)
        for section in sections
    }
    return {
        title: [[cell.strip() for cell in row.split("|")] for row in found]
        for title, found in rows.items()
    }


def numbers_in(text: str) -> list[str]:
    return re.findall(r"\d[\d.,]*\d|\d", text)


def test_every_figure_of_the_readme_stands_in_the_file_that_its_row_names():
    [titles, *rows] = tables_of_the_readme()["Results"]
    assert titles == ["what", "value", "baseline", "hardware", "date", "file"]
    assert len(rows) >= 15
    for what, value, baseline, _, date, file in rows:
        text = (ROOT / _LINK.search(file)[1]).read_text(encoding="utf-8")
        figures = numbers_in(f"{value} {baseline.partition('(')[0]}")
        assert date in text, (what, date, file)
        assert not [number for number in figures if number not in text], (what, file)


def test_every_rate_of_other_judges_stands_in_its_result():
    text = (ROOT / "bench" / "results" / "attack.md").read_text(encoding="utf-8").split("## ")[0]
    for judge, accepted, *_ in tables_of_the_readme()["Beside other judges"][1:]:
        name = re.match(r"[\w-]+", judge)[0].lower()
        measured = re.search(rf"^\| {name} \|.*", text, re.MULTILINE)[0]
        assert not [number for number in numbers_in(accepted) if number not in measured], judge


def test_development_figures_are_called_so_and_unseen_suites_stand_beside_them():
    rows = [row[0] for row in tables_of_the_readme()["Results"]]
    assert not [
        what for what in rows if "KernelBench" in what and not what.startswith("development:")
    ]
    assert sum(what.startswith("**unseen**") for what in rows) >= 3


def test_the_index_of_the_bench_names_every_result():
    index = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    shown = index + "".join(
        path.read_text(encoding="utf-8") for path in RESULTS if path.suffix == ".md"
    )
    assert not [
        path.name
        for path in RESULTS
        if f"({path.name})" not in shown and f"(results/{path.name})" not in index
    ]


def rows_of_the_bench() -> list[tuple[str, list[str]]]:
    """The rows of the index of the bench that have a value, each with the text of its section."""
    sections = (ROOT / "bench" / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]
    rows = [
        (text, row)
        for text in sections
        for row in re.findall(r"^\| (?!-|what)(.*) \|$", text, re.MULTILINE)
    ]
    cells = [(text, [cell.strip() for cell in row.split("|")]) for text, row in rows]
    return [(text, row) for text, row in cells if len(row) == len(BENCH_COLUMNS)]


def test_every_value_of_the_index_of_the_bench_stands_in_the_file_of_its_row():
    assert len(rows_of_the_bench()) > 80
    for _, (what, value, _, _, date, files) in rows_of_the_bench():
        texts = "".join(
            (ROOT / "bench" / link).read_text(encoding="utf-8") for link in _LINK.findall(files)
        )
        assert date.partition(" to ")[0] in texts, what
        assert not [number for number in numbers_in(value) if number not in texts], what


def test_the_index_of_the_bench_has_short_cells_and_calls_development_figures_so():
    for section, row in rows_of_the_bench():
        assert max(len(cell.split()) for cell in row) <= MAX_WORDS_OF_A_CELL, row
        if "KernelBench level" in row[0]:
            assert (
                row[0].startswith("development:") or "All rows are development figures" in section
            ), row


def test_the_index_of_the_bench_names_every_script():
    """A file that another script of the bench imports or starts is a part of that one."""
    index = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "bench").rglob("*.py")}
    for path in (ROOT / "bench").glob("*.py"):
        others = "".join(text for other, text in texts.items() if other != path)
        named = re.compile(rf"\bbench[./]{path.stem}\b")
        assert named.search(index) or named.search(others), path.name


def test_the_page_of_the_command_line_has_every_command_and_option():
    script = runpy.run_path(str(ROOT / "docs" / "command_line_page.py"))
    page, groups = script["page"](), script["command_lines"]()
    for program, group in groups.items():
        for words, command in script["commands"](program, group):
            section = page.split(f"### {words}\n")[1].split("\n### ")[0]
            names = [name for one in command.params for name in one.opts if name.startswith("--")]
            assert not [
                name for name in names if name != "--help" and f"`{name}`" not in section
            ], words


@pytest.mark.parametrize(
    ("development", "unseen"), [("61.1", "5.3 %"), ("157 of 200", "4 to 14 %")]
)
def test_every_page_with_a_development_figure_has_the_unseen_one_beside_it(development, unseen):
    results = (ROOT / "bench" / "results").glob("*.md")
    texts = [
        path.read_text(encoding="utf-8")
        for path in (*DOCUMENTS, *results, ROOT / "policies/weights/README.md")
    ]
    with_figure = [text for text in texts if development in text]
    assert len(with_figure) >= 4
    assert all(unseen in text for text in with_figure)
