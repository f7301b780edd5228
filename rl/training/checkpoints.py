"""Checkpoints that are whole or not there, and policies that load at once."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.policy_card import PolicyCard, front_matter, write_card
from kernelwright.rl.training.options import Storage, TrainOptions
from kernelwright.rl.training.subject import Subject, card_after

COMPLETE_FILE = "whole.json"
"""Written last into a checkpoint: without it the checkpoint was cut off."""
SETTINGS_FILE = "asked.json"


def prepare_output(options: TrainOptions, more: dict[str, Any]) -> bool:
    """Makes the work folder and returns whether it holds the same training, begun earlier. Raises InputError where it
    holds something else. The remains of a training that wrote no checkpoint are replaced: its options may have been a
    mistake.
    """
    output, work = options.output, options.work
    refuse_existing_output(output)
    note, identity = work / SETTINGS_FILE, options.identity_of(more)
    if note.is_file():
        if json.loads(note.read_text(encoding="utf-8")).get("identity") == identity:
            return True
        if newest_checkpoint(work) is not None:
            raise InputError(
                f"{work} holds an unfinished training with other settings: give those again, or delete it"
            )
    work.mkdir(parents=True, exist_ok=True)
    known = {
        "identity": identity,
        "training": secrets.token_hex(4),
        **options.model_dump(mode="json"),
    }
    note.write_text(json.dumps(known, indent=2), encoding="utf-8")
    return False


def refuse_existing_output(output: Path) -> None:
    """Raises InputError where the folder exists and is not empty."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} exists already: choose another --out, or move it away")


def training_id(options: TrainOptions) -> str:
    """Returns the id of this training alone: another one with the same name in the same database never takes up its
    rounds.
    """
    return str(json.loads((options.work / SETTINGS_FILE).read_text(encoding="utf-8"))["training"])


def mark_whole(checkpoint: Path, subject: Subject, lineage: tuple[str, ...], **facts: Any) -> None:
    """Makes a checkpoint of trl's one that `--policy transformers:DIR` loads as it should be asked, and says that
    it is whole.
    """
    said = {name: value for name, value in facts.items() if name != "seconds"}
    write_card(checkpoint, card_after(subject, lineage, **said))
    (checkpoint / COMPLETE_FILE).write_text(json.dumps(facts), encoding="utf-8")


def newest_checkpoint(work: Path) -> Path | None:
    """Returns the newest complete checkpoint and deletes those that were cut off."""
    found: dict[int, Path] = {}
    for path in work.glob("checkpoint-*"):
        if (path / COMPLETE_FILE).is_file():
            found[int(path.name.rpartition("-")[2])] = path
        else:
            shutil.rmtree(path)
    return found[max(found)] if found else None


def facts_of(checkpoint: Path) -> dict[str, Any]:
    """Reads the facts that were stored when a checkpoint was completed."""
    found: dict[str, Any] = json.loads((checkpoint / COMPLETE_FILE).read_text(encoding="utf-8"))
    return found


def publish_policy(
    model: Any,
    weights: dict[str, Any],
    subject: Subject,
    options: TrainOptions,
    lineage: tuple[str, ...],
    **facts: Any,
) -> None:
    """Writes the policy that a training ended with. `weights`: whole, of the model or of its adapter's model."""
    beside = [
        options.work / name
        for name in ("curves.png", "report.html", "history.json", "quarantine.jsonl")
    ]
    write_policy(options.output, model, weights, subject, options.storage, lineage, beside, **facts)


def write_policy(
    output: Path, model: Any, weights: dict[str, Any], subject: Subject, storage: Storage,
    lineage: tuple[str, ...] = (),
    beside: Sequence[Path] = (), **facts: Any,
) -> None:  # fmt: skip
    """Writes the policy into a folder beside the output, which then gets its name: there is never half of one."""
    import torch

    partial = output.with_name(f".{output.name}.{time.time_ns()}")
    try:
        if hasattr(model, "peft_config"):
            model.save_pretrained(partial, state_dict=weights)
        else:
            kind = torch.bfloat16 if storage is Storage.BF16 else torch.float32
            tied = (
                set(model._tied_weights_keys or ()) if model.config.tie_word_embeddings else set()
            )
            whole = {name: value.to(kind) for name, value in weights.items() if name not in tied}
            model.save_pretrained(partial, state_dict=whole)
            # transformers writes the dtype of the model in memory, not that of what it was given to store.
            model.config.dtype = kind
            model.config.save_pretrained(partial)
        subject.tokenizer.save_pretrained(partial)
        card = card_after(subject, lineage, **facts)
        write_card(partial, card)
        (partial / "README.md").write_text(_readme(output.name, card), encoding="utf-8")
        for path in beside:
            if path.is_file():
                shutil.copy2(path, partial / path.name)
        if output.is_dir():
            output.rmdir()
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _readme(name: str, card: PolicyCard) -> str:
    """For people: what the card says, and where its figures go (`rl evaluate --card`)."""
    content = card.model_dump(exclude_unset=True, exclude={"lineage", "averaged", "ancestors"})
    lineage = " -> ".join(card.lineage) or "not known"
    return front_matter(card) + "\n".join(
        [
            f"# {name}",
            "",
            "It writes Triton kernels. What it writes is to be judged by the tools before anybody relies on it.",
            "",
            *_fact_table(content),
            "",
            *_earlier_trainings(card),
            f"Revisions of the weights that led to it: {lineage}.",
            "",
        ]
    )


def _earlier_trainings(card: PolicyCard) -> list[str]:
    """Writes a table for each training before the last one."""
    lines = []
    for number, training in enumerate(card.ancestors, 1):
        title = (
            f"## Earlier training {number}" if len(card.ancestors) > 1 else "## The training before"
        )
        lines += [title, "", *_fact_table(training.model_dump(exclude_unset=True)), ""]
    return lines


def _fact_table(content: dict[str, Any]) -> list[str]:
    rows = [
        f"| {key.replace('_', ' ')} | {_fact_text(key, value)} |"
        for key, value in content.items()
        if value not in (None, "", (), {}, [])
    ]
    return ["|  |  |", "|---|---|", *rows]


def _fact_text(key: str, value: Any) -> str:
    if key == "created":
        return datetime.fromtimestamp(value, UTC).isoformat()
    if isinstance(value, dict):
        return "; ".join(f"{name}: {number:,}" for name, number in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value)
