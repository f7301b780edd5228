"""The generator: what it draws is deterministic, split by what it is made of, and right where the tools look."""

import ast
import random
from contextlib import suppress
from itertools import pairwise

import pytest

from kernelwright.agent.prompts import PromptFields, Prompts
from kernelwright.policies.base import PromptForm
from kernelwright.rl.data.cleaning.suites import graphs_of
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.rows import Kind, Split, read_rows
from kernelwright.rl.data.synth.engine.drawing import PROGRAM_FAMILIES, draw_program
from kernelwright.rl.data.synth.engine.generating import CorpusRequest, generate, state_of
from kernelwright.rl.data.synth.engine.mistakes import MISTAKES, make_mistakes
from kernelwright.rl.data.synth.engine.sketch import NameTaken, Sketch
from kernelwright.rl.data.synth.engine.splits import (
    HELD_OUT_FAMILIES,
    TRAINING_DEPTH,
    is_held_out_pair,
)
from kernelwright.rl.data.synth.engine.tasks import tasks
from kernelwright.rl.data.synth.engine.verifying import options, verify
from kernelwright.store.models import Action
from kernelwright.tools.markdown.fenced_code import extract_code
from kernelwright.tools.problem import check_form
from kernelwright.tools.source import read_source

FEW = 150


def test_the_same_seed_gives_the_same_tasks_and_another_seed_others():
    first, again, other = (tasks(Split.TRAIN, 20, seed) for seed in (1, 1, 2))
    assert first == again
    assert not {t.problem.hash for t in first} & {t.problem.hash for t in other}


def test_a_forbidden_graph_is_never_drawn():
    first = tasks(Split.TRAIN, 10, seed=3)
    forbidden = graphs_of() | frozenset(graph_hash(t.problem.source) for t in first[:5])
    assert [t.problem.name for t in first if graph_hash(t.problem.source) not in forbidden] == [
        t.problem.name for t in tasks(Split.TRAIN, 5, 3, forbidden)
    ][: 10 - 5]


@pytest.mark.parametrize("split", list(Split))
def test_every_task_is_a_problem_and_a_candidate_in_form(split):
    for task in tasks(split, FEW):
        check_form(task.problem.source)
        assert read_source(task.solution) is None, task.solution
        assert task.problem.cpu_sizes
        assert extract_code(task.solution) == task.solution


def test_training_never_shows_what_the_other_splits_ask_for():
    for task in tasks(Split.TRAIN, FEW):
        assert task.family not in HELD_OUT_FAMILIES
        assert task.depth <= TRAINING_DEPTH
        assert not any(is_held_out_pair(a, b) for a, b in pairwise(task.ops))
    assert all(
        any(is_held_out_pair(a, b) for a, b in pairwise(t.ops))
        for t in tasks(Split.HELD_OUT_COMPOSITION, FEW)
    )
    assert all(t.depth > TRAINING_DEPTH for t in tasks(Split.HELD_OUT_DEPTH, FEW))
    assert {t.family for t in tasks(Split.HELD_OUT_FAMILY, FEW)} <= HELD_OUT_FAMILIES


def test_tasks_are_of_many_graphs_and_kernels_are_short():
    found = tasks(Split.TRAIN, FEW)
    assert len({graph_hash(t.problem.source) for t in found}) > 0.8 * FEW
    assert sorted(len(t.solution) for t in found)[FEW // 2] < 2500


def test_every_family_is_drawn_at_every_depth_and_parses():
    for family in PROGRAM_FAMILIES:
        for seed in range(30):
            with suppress(NameTaken):
                program = family.make(
                    Sketch(random.Random(f"{family.name}{seed}")), 1 + seed % min(family.deepest, 8)
                )
                ast.parse(program.reference)
                ast.parse(program.candidate)


@pytest.mark.parametrize("number", [8622, 33906, 84208, 113006, 161307, 171295])
def test_two_parts_of_a_program_never_share_an_argument(number):
    """Draws in which two layers wanted `eps`: one in twenty thousand, and a training on drawn rows ended with it."""
    program = draw_program(f"0/train/{number}", Split.TRAIN)
    for text in (program.reference, program.candidate) if program else ():
        compile(text, "drawn", "exec")


def test_mistakes_change_the_text_once_and_differ_from_each_other():
    for task in tasks(Split.TRAIN, 20):
        found = make_mistakes(task.solution, random.Random(0), 6)
        texts = [text for _, text in found]
        assert len(texts) == len(set(texts)) == 6
        assert task.solution not in texts
    assert len({m.name for m in MISTAKES}) == len(MISTAKES) > 70


@pytest.mark.slow
@pytest.mark.parametrize("number", [8])
def test_a_drawn_kernel_is_right_and_its_broken_versions_are_told_why(evaluator, number):
    task = tasks(Split.TRAIN, number + 1, seed=11)[number]
    outcome = verify(evaluator, task, options("sm_90"), repairs=2)
    draft, *repairs = outcome.rows
    assert draft.kind is Kind.DRAFT
    assert (
        draft.prompt
        == Prompts(PromptForm.COMPACT)
        .messages(PromptFields(problem=task.problem, action=Action.DRAFT))[-1]
        .content
    )
    assert draft.completion == task.solution
    assert (draft.correct, draft.compile) == (True, {"sm_90": True})
    assert len(repairs) + len(outcome.rejected) == 2
    for row in repairs:
        assert row.completion == task.solution
        assert row.prompt.startswith("repair\n")
        assert "# candidate\n" in row.prompt
        assert row.prompt.splitlines()[0] != row.prompt.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("family", [f.make.__name__ for f in PROGRAM_FAMILIES])
def test_kernels_of_every_family_pass_the_tools(evaluator, family):
    from kernelwright.tools.problem import Problem

    make = next(f.make for f in PROGRAM_FAMILIES if f.make.__name__ == family)
    for seed in range(4):
        program = make(Sketch(random.Random(f"{family}/{seed}")), 1 + seed % 3)
        report = evaluator.evaluate(
            Problem(name=program.name, source=program.reference),
            program.candidate,
            options("sm_90"),
        )
        assert report.correct, f"{report.failure}\n{program.reference}\n{program.candidate}"


@pytest.mark.slow
@pytest.mark.nightly
def test_a_corpus_is_gone_on_with_and_another_seed_is_refused(tmp_path):
    from kernelwright.errors import InputError

    wanted = CorpusRequest(seed=5, repairs=1)
    generate(wanted, 1, tmp_path, 1, lambda _: None)
    state = generate(wanted, 2, tmp_path, 1, lambda _: None)
    rows = list(read_rows(tmp_path))
    assert state == state_of(tmp_path)
    assert state.drafts == sum(row.kind is Kind.DRAFT for row in rows) == 2
    assert state.repairs == sum(row.kind is Kind.REPAIR for row in rows)
    assert len({row.id for row in rows}) == len(rows)
    with pytest.raises(InputError, match="seed 5"):
        generate(CorpusRequest(seed=6), 2, tmp_path, 1, lambda _: None)


@pytest.mark.parametrize("split", list(Split))
def test_every_reference_runs(split):
    """What is drawn for training is not judged, so a reference that fails would be learnt."""
    for task in tasks(split, 100, 11):
        own = {}
        exec(task.problem.with_sizes(task.problem.cpu_sizes).source, own)
        own["Model"](*own["get_init_inputs"]())(*own["get_inputs"]())
