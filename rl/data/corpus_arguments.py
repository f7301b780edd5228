"""Parses the arguments of `rl data`. Every function raises InputError for an invalid argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.errors import InputError
from kernelwright.rl.data.rows import Split

if TYPE_CHECKING:
    from kernelwright.rl.data.importing.formats import CorpusFormat
    from kernelwright.tools.problem import Problem


def parse_split(text: str) -> Split:
    """Parses the name of a split: train, held_out_depth ...; also the short forms `depth` and
    `held-out-depth`.
    """
    plain = text.lower().replace("-", "_")
    for split in Split:
        if plain in (split.value, split.value.removeprefix("held_out_")):
            return split
    raise InputError(f"unknown split {text}: choose {', '.join(Split)}")


def parse_target_name(text: str) -> str:
    """Parses the name of a compilation target."""
    from kernelwright.tools.hardware.targets import parse_target

    try:
        return parse_target(text).name
    except ValueError as error:
        raise InputError(str(error)) from error


def parse_corpus_format(text: str) -> CorpusFormat:
    """Parses the format of a corpus: rows (csv and jsonl are synonyms), inductor, tree or
    kernelbook.
    """
    from kernelwright.rl.data.importing.formats import CorpusFormat

    try:
        return CorpusFormat(text.lower())
    except ValueError as error:
        raise InputError(f"unknown format {text}: choose {', '.join(CorpusFormat)}") from error


def parse_target_names(texts: list[str]) -> tuple[str, ...]:
    """Parses target names, given separately or separated by commas: `sm_80,sm_90`."""
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(dict.fromkeys(parse_target_name(part) for part in parts if part))


def parse_problems(names: list[str]) -> list[Problem]:
    """Returns the problems of `catalogue`, folders, files, and `synth:N`: the first N training
    tasks of seed 0.
    """
    from kernelwright.agent.batch.suite_choice import choose_problems
    from kernelwright.rl.data.synth.engine.tasks import tasks

    problems: list[Problem] = []
    for name in names:
        kind, _, count = name.partition(":")
        if kind == "synth":
            if not count.isdigit() or not int(count):
                raise InputError(f"{name}: write synth:N, such as synth:200")
            problems += [task.problem for task in tasks(Split.TRAIN, int(count))]
        else:
            problems += choose_problems([name])
    return problems
