"""Writes and finds checkpoints, which are complete or absent, and writes the finished policy."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError
from kernelwright.policies.policy_card import PolicyCard, front_matter, write_card
from kernelwright.rl.training.options import Storage, TrainOptions
from kernelwright.rl.training.subject import Subject, card_after

if TYPE_CHECKING:
    import torch

COMPLETE_FILE = "whole.json"
"""Written last into a checkpoint: without this file the checkpoint was cut off."""
TENSORBOARD_FOLDER = "runs"
"""Event files of `--set report_to=tensorboard`, in the work folder and then in the policy's."""
SETTINGS_FILE = "asked.json"
"""The options of a training or a loop, in its work folder."""


def prepare_output(options: TrainOptions, identity_facts: dict[str, Any]) -> bool:
    """Makes the work folder, and returns whether an earlier sitting of the same training began
    there.

    The remains of a training without a checkpoint are replaced: its options may have been a
    mistake. Raises InputError if the folder holds another training.
    """
    output, work = options.output, options.work
    refuse_existing_output(output)
    note, identity = work / SETTINGS_FILE, options.identity_of(identity_facts)
    if note.is_file():
        if json.loads(note.read_text(encoding="utf-8")).get("identity") == identity:
            return True
        # Without a checkpoint nothing is lost, so the old settings are replaced.
        if newest_checkpoint(work) is not None:
            raise InputError(
                f"{work} holds an unfinished training with other settings: give those again, or delete it"
            )
    work.mkdir(parents=True, exist_ok=True)
    settings = {
        "identity": identity,
        "training": secrets.token_hex(4),
        **options.model_dump(mode="json"),
    }
    note.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return False


def refuse_existing_output(output: Path) -> None:
    """Raises InputError if the folder exists and is not empty."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} exists already: choose another --out, or move it away")


def training_id(options: TrainOptions) -> str:
    """Returns the random id of this training. Another training with the same name in the same
    database has another id, and so never continues the rounds of this one.
    """
    return str(json.loads((options.work / SETTINGS_FILE).read_text(encoding="utf-8"))["training"])


def mark_whole(
    checkpoint: Path, subject: Subject, lineage: tuple[str, ...], **facts: object
) -> None:
    """Writes the policy card and the completion file into a checkpoint of trl's, so `--policy
    transformers:DIR` loads the checkpoint with the right prompt form.
    """
    card_facts = {name: value for name, value in facts.items() if name != "seconds"}
    write_card(checkpoint, card_after(subject, lineage, **card_facts))
    (checkpoint / COMPLETE_FILE).write_text(json.dumps(facts), encoding="utf-8")


def newest_checkpoint(work: Path) -> Path | None:
    """Returns the newest complete checkpoint, and deletes incomplete ones."""
    checkpoints: dict[int, Path] = {}
    for path in work.glob("checkpoint-*"):
        if (path / COMPLETE_FILE).is_file():
            checkpoints[int(path.name.rpartition("-")[2])] = path
        else:
            shutil.rmtree(path)
    return checkpoints[max(checkpoints)] if checkpoints else None


def facts_of(checkpoint: Path) -> dict[str, Any]:
    """Reads the facts stored when a checkpoint was completed."""
    facts: dict[str, Any] = json.loads((checkpoint / COMPLETE_FILE).read_text(encoding="utf-8"))
    return facts


def publish_policy(
    model: Any,
    weights: dict[str, torch.Tensor],
    subject: Subject,
    options: TrainOptions,
    **facts: object,
) -> None:
    """Writes the final policy. `weights`: all weights of the model, or of the adapter's model."""
    names = ("curves.png", "report.html", "history.json", "quarantine.jsonl", TENSORBOARD_FOLDER)
    beside = [options.work / name for name in names]
    write_policy(options.output, model, weights, subject, options.storage, beside, **facts)


def write_policy(
    output: Path,
    model: Any,
    weights: dict[str, torch.Tensor],
    subject: Subject,
    storage: Storage,
    beside: Sequence[Path] = (),
    **facts: object,
) -> None:
    """Writes the policy into a temporary folder beside the output, then renames the folder: a
    reader never sees half a policy.

    beside: files and folders copied into the folder, if they exist. facts: fields of the policy card.
    """
    partial = output.with_name(f".{output.name}.{time.time_ns()}")
    try:
        save_model(partial, model, weights, storage)
        subject.tokenizer.save_pretrained(partial)
        card = card_after(subject, (), **facts)
        write_card(partial, card)
        (partial / "README.md").write_text(_readme(output.name, card), encoding="utf-8")
        for path in beside:
            if path.is_file():
                shutil.copy2(path, partial / path.name)
            elif path.is_dir():
                shutil.copytree(path, partial / path.name)
        if output.is_dir():
            output.rmdir()
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def save_model(
    folder: Path, model: Any, weights: dict[str, torch.Tensor], storage: Storage
) -> None:
    """Writes an adapter as it is, and whole weights in the dtype of `storage`."""
    import torch

    if hasattr(model, "peft_config"):
        model.save_pretrained(folder, state_dict=weights)
        return
    dtype = torch.bfloat16 if storage is Storage.BF16 else torch.float32
    tied = set(model._tied_weights_keys or ()) if model.config.tie_word_embeddings else set()
    stored = {name: weight.to(dtype) for name, weight in weights.items() if name not in tied}
    model.save_pretrained(folder, state_dict=stored)
    # transformers writes the dtype of the model in memory, not that of the stored weights.
    model.config.dtype = dtype
    model.config.save_pretrained(folder)


def _readme(name: str, card: PolicyCard) -> str:
    """Returns the README.md of a policy: the facts of its card. `rl evaluate --card` adds the
    figures.
    """
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
    """Returns the lines of one table for each training before the last."""
    lines = []
    for number, training in enumerate(card.ancestors, 1):
        title = (
            f"## Earlier training {number}" if len(card.ancestors) > 1 else "## The training before"
        )
        lines += [title, "", *_fact_table(training.model_dump(exclude_unset=True)), ""]
    return lines


def _fact_table(content: dict[str, Any]) -> list[str]:
    """Returns the lines of a Markdown table of all entries with a value."""
    lines = ["|  |  |", "|---|---|"]
    for key, value in content.items():
        if value not in (None, "", (), {}, []):
            lines.append(f"| {key.replace('_', ' ')} | {_fact_text(key, value)} |")
    return lines


def _fact_text(key: str, value: object) -> str:
    if key == "created" and isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC).isoformat()
    if isinstance(value, dict):
        return "; ".join(f"{name}: {number:,}" for name, number in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value)
