"""Defines `rl data`: generating, importing, cleaning and reporting corpora."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.runtime.command_class import WrappingCommand
from kernelwright.rl.command_line.options.shared import (
    Against,
    AsJson,
    Debug,
    JudgingProcesses,
    PolicyDevice,
    SplitName,
    TargetName,
)

if TYPE_CHECKING:
    from kernelwright.rl.data.importing.formats import ImportResult

app = typer.Typer(help="Corpora: import, generate, clean, report.", no_args_is_help=True)

LEARNING_TEMPERATURE = 1.6
"""Sampling temperature at which the shipped policy has right and wrong drafts of nearly every
generated problem. At 1 it solves most problems, and such a log teaches nothing
(docs/how-to/train-from-a-log.md).
"""
Out = Annotated[Path, typer.Option("--out", help="The folder that is written.")]


@app.command(cls=WrappingCommand)
def synth(
    out: Out,
    n: Annotated[
        int,
        typer.Option("--n", min=1, help="Verified drafts, those that the folder holds among them."),
    ],
    seed: Annotated[int, typer.Option(help="The same seed gives the same corpus.")] = 0,
    workers: JudgingProcesses = 2,
    target: TargetName = "sm_90",
    split: SplitName = "train",
    repairs: Annotated[
        int, typer.Option(min=0, help="Broken versions that are tried of each kernel.")
    ] = 2,
    no_repairs: Annotated[bool, typer.Option("--no-repairs", help="Drafts only.")] = False,
    against: Against = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Generate problems with kernels verified by the tools, and broken kernels with the tools'
    answers.
    """
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.rl.data.cleaning.suites import graphs_of
    from kernelwright.rl.data.corpus_arguments import parse_split, parse_target_name
    from kernelwright.rl.data.synth.engine.generating import CorpusRequest, generate

    request = CorpusRequest(
        seed=seed,
        split=parse_split(split),
        target=parse_target_name(target),
        repairs=0 if no_repairs else repairs,
    )
    with progress(as_json) as say:
        state = generate(request, n, out, workers, say, graphs_of(*(against or ())))
    if as_json:
        typer.echo(state.model_dump_json(indent=1))
        return
    from kernelwright.rl.command_line.show.data import synth_view

    console().print(synth_view(state))


@app.command(cls=WrappingCommand)
def problems(
    out: Out,
    n: Annotated[int, typer.Option("--n", min=1, help="Problems.")],
    kind: Annotated[
        str, typer.Option(help="synth, or synth:composition, synth:depth (harder), synth:family.")
    ] = "synth",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same problems.")] = 0,
    against: Against = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Generate problems, a file each in KernelBench form: for `agent batch DIR`, whose log is then trained on."""
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.rl.training.online.problem_files import write_problems

    with progress(as_json) as say:
        say(f"drawing {n:,} problems")
        written = write_problems(out, n, kind, seed, against or ())
    if as_json:
        typer.echo(json.dumps([str(path) for path in written], indent=1))
    else:
        console().print(
            f"{len(written)} problems in {out}: agent batch {out} --samples 8 --temperature {LEARNING_TEMPERATURE:g} "
            "--turns 1 --db runs.db"
        )


@app.command(cls=WrappingCommand)
def mistakes(
    policy: Annotated[
        str,
        typer.Option(
            help="Whose drafts: embedded, transformers:PATH, vllm:PATH, openai:MODEL@URL."
        ),
    ],
    out: Out,
    n: Annotated[int, typer.Option("--n", min=1, help="Repairs.")],
    seed: Annotated[int, typer.Option(help="Seed of the problems and of the sampling.")] = 0,
    split: SplitName = "train",
    samples: Annotated[int, typer.Option(min=1, help="Drafts of each problem.")] = 4,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature of the policy.")
    ] = 1.0,
    at_once: Annotated[
        int, typer.Option(min=1, help="Problems that the policy is asked about together.")
    ] = 16,
    target: TargetName = "sm_90",
    workers: JudgingProcesses = 2,
    policy_device: PolicyDevice = "auto",
    against: Against = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Let a policy draft generated problems; keep its wrong drafts with the tools' answers and a
    right answer: repairs to learn from.
    """
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.policies.opening.open_policy import open_policy
    from kernelwright.rl.data.corpus_arguments import parse_split, parse_target_name
    from kernelwright.rl.data.synth.engine.own_mistakes import MistakesRequest, collect_mistakes

    request = MistakesRequest(
        seed=seed, split=parse_split(split), target=parse_target_name(target), samples=samples, temperature=temperature,
        at_once=at_once, against=tuple(against or ()),
    )  # fmt: skip
    sampler = open_policy(policy, device=choose_device(policy_device))
    with progress(as_json) as say:
        collected = collect_mistakes(sampler, request, n, out, workers, say)
    if as_json:
        typer.echo(collected.model_dump_json(indent=1))
        return
    from kernelwright.rl.command_line.show.data import harvest_view

    console().print(harvest_view(collected))


@app.command("import", cls=WrappingCommand)
def import_(
    form: Annotated[
        str,
        typer.Argument(
            help="rows (Parquet, JSON Lines, JSON, CSV: chats, pairs, texts), inductor, tree or kernelbook."
        ),
    ],
    path: Annotated[Path, typer.Argument(help="The corpus's file or folder.")],
    out: Out,
    licence: Annotated[
        str, typer.Option(help="SPDX name of what carries no licence of its own.")
    ] = "",
    any_licence: Annotated[
        bool, typer.Option("--any-licence", help="Keep what is not known to be permissive.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read an external corpus into rows. Unreadable records are left out and counted."""
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.rl.data.corpus_arguments import parse_corpus_format
    from kernelwright.rl.data.importing.formats import ImportOptions
    from kernelwright.rl.data.importing.reading import import_corpus

    corpus_format, options = (
        parse_corpus_format(form),
        ImportOptions(licence=licence, any_licence=any_licence),
    )
    with progress(as_json) as say:
        say(f"reading {path}")
        result = import_corpus(corpus_format, path, out, options)
    _show_imported(result, as_json)


@app.command(cls=WrappingCommand)
def inductor(
    problems: Annotated[
        list[str],
        typer.Option(
            "--problems", help="catalogue, a folder or file of references, or synth:N. Many times."
        ),
    ],
    out: Out,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda:N.")] = "auto",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run torch.compile over references and keep Inductor's kernels."""
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.rl.data.corpus_arguments import parse_problems
    from kernelwright.rl.data.importing.collecting import collect_kernels

    problem_list, device_name = parse_problems(problems), choose_device(device)
    with progress(as_json) as say:
        result = collect_kernels(problem_list, out, device_name, say)
    _show_imported(result, as_json)


@app.command(cls=WrappingCommand)
def clean(
    source: Annotated[Path, typer.Argument(help="A corpus: a folder or a .parquet file.")],
    out: Out,
    against: Against = None,
    compile_for: Annotated[
        list[str] | None,
        typer.Option(
            "--compile",
            help="Label with the offline compiler, such as sm_80,sm_90. May be repeated. Runs the references.",
            show_default=False,
        ),
    ] = None,
    correct: Annotated[
        bool,
        typer.Option(
            "--correct",
            help="Label with the tools' verdict on a CPU: it costs about half a second a row.",
        ),
    ] = False,
    workers: JudgingProcesses = 2,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Normalise, drop duplicates and benchmark problems, label. Interrupted, the same command goes
    on.
    """
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.rl.data.cleaning.labelling import label_corpus
    from kernelwright.rl.data.cleaning.running import clean_corpus as run
    from kernelwright.rl.data.corpus_arguments import parse_target_names

    targets = parse_target_names(compile_for or []) or (("sm_90",) if correct else ())
    with progress(as_json) as say:
        result = run(source, out, list(against or ()), workers, say)
        labelled = label_corpus(out, targets, correct, workers, say) if targets else None
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
        return
    from kernelwright.rl.command_line.show.data import clean_view
    from kernelwright.rl.data.corpus_report import remarks

    console().print(clean_view(result, labelled))
    for line in remarks(result, labelled):
        console().print(line)


@app.command(cls=WrappingCommand)
def report(
    corpus: Annotated[Path, typer.Argument(help="A corpus: a folder that rl data wrote.")],
    against: Against = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where report.md goes.", show_default="the corpus's folder"),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Count a corpus, compare it with the suites, and write report.md, figures and provenance.json."""
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.rl.data.corpus_figures import gather_facts
    from kernelwright.rl.data.corpus_report import write_report

    folder = corpus if corpus.is_dir() else corpus.parent
    with progress(as_json) as say:
        say(f"counting {corpus}")
        facts = gather_facts(corpus, list(against or ()))
        written = write_report(folder, facts, out or folder)
    if as_json:
        typer.echo(facts.model_dump_json(indent=1, exclude={"lengths"}))
        return
    from kernelwright.rl.command_line.show.data import report_view

    console().print(report_view(facts, written))


def _show_imported(result: ImportResult, as_json: bool) -> None:
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
        return
    from kernelwright.agent.viewing.show.progress import console
    from kernelwright.rl.command_line.show.data import imported_view

    console().print(imported_view(result))
