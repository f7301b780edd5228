"""Model card of a policy: a value stored as `kernelwright.json` beside the weights.

Opening a policy reads the prompt form from the card. Training writes the base model, data, method
and the earlier
revisions of the weights into it. `README.md` is for people; `huggingface_hub` writes its front
matter from the card.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, ValidationError

from kernelwright.policies.base import PolicyRefused, PromptForm, Trouble, Value

CARD_FILE = "kernelwright.json"


class AveragedPolicy(Value):
    """A policy whose weights were averaged into a model."""

    policy: str
    """The policy as it was named then: `transformers:FOLDER`."""
    revision: str
    step: int | None = None
    """Training steps it had seen."""


TRAINING_FACTS = (
    "base", "method", "formula", "seed", "loss", "rows", "steps", "step", "trained_on", "trained_from", "created",
)  # fmt: skip
"""Fields that describe a single training; the next training replaces them."""
MAX_ANCESTORS = 8
"""Earlier trainings a card keeps, the latest ones."""


class Training(Value):
    """Facts of a training that led to a model."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    base: str | None = None
    method: str | None = None
    formula: str | None = None
    seed: int | None = None
    loss: float | None = None
    rows: dict[str, int] = {}
    steps: int | None = None
    trained_on: tuple[str, ...] = ()
    trained_from: str | None = None
    created: int | None = None


class PolicyCard(Value):
    """Card of a model folder. A folder without a card has the defaults; unknown fields are
    preserved.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    prompt_form: PromptForm = PromptForm.CHAT
    """The form of prompts: a chat, or the compact form of the small policies."""
    parameters: int | None = None
    """Weights, all of them counted, an adapter's with its base's."""
    base: str | None = None
    """The model that its last training began with: a folder, a hub name, or `new:14m` for random weights."""
    seed: int | None = None
    loss: float | None = None
    """The last loss of its last training; of `sft` and `rft` in nats a token."""
    rows: dict[str, int] = {}
    """Number of rows in the last training, by outcome."""
    method: str | None = None
    """The method of its last training: `sft`, `grpo`, `rft`, `dpo`, `kto`."""
    formula: str | None = None
    """The formula of the reward: `execution@1`."""
    steps: int | None = None
    """Steps of its last training, which has ended."""
    step: int | None = None
    """Step of a checkpoint whose training had not ended."""
    trained_on: tuple[str, ...] = ()
    """Problem sets of that training."""
    trained_from: str | None = None
    """The corpus or the log of that training."""
    ancestors: tuple[Training, ...] = ()
    """Trainings before the last one, oldest first."""
    created: int | None = None
    """Creation time in seconds since 1970, UTC."""
    lineage: tuple[str, ...] = ()
    """Revisions of the weights that led to it, the oldest first."""
    averaged: tuple[AveragedPolicy, ...] = ()
    note: str = ""
    """Sentence displayed beside the model's candidates."""


def read_card(folder: Path) -> PolicyCard:
    """Reads the card of a folder; returns the defaults without a card. Raises PolicyRefused for
    an invalid file.
    """
    path = folder / CARD_FILE
    if not path.is_file():
        return PolicyCard()
    try:
        return PolicyCard.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        field_path = ".".join(map(str, first["loc"]))
        words = f"{field_path}: {first['msg']}" if field_path else first["msg"]
        raise PolicyRefused(
            f"{path} cannot be read ({words}): correct or delete it", Trouble.MODEL
        ) from error
    except OSError as error:
        raise PolicyRefused(
            f"{path} cannot be read ({error}): correct or delete it", Trouble.MODEL
        ) from error


def read_cards(folder: Path, adapter: str | Path | None = None) -> PolicyCard:
    """Returns the model's card, overridden by the adapter's card if there is an adapter.

    Facts of the model's training are never taken over by the adapter. Raises PolicyRefused.
    """
    card = read_card(folder)
    if adapter is None:
        return card
    adapter_fields = read_card(Path(adapter).expanduser()).model_dump(
        mode="json", exclude_unset=True
    )
    shared = card.model_dump(mode="json", exclude_unset=True, exclude={*TRAINING_FACTS})
    return PolicyCard.model_validate({**shared, **adapter_fields})


def trainings_of(card: PolicyCard) -> tuple[Training, ...]:
    """Returns the trainings of a model, oldest first, including the last one if the card
    describes it.
    """
    last = Training.model_validate(card.model_dump(exclude_unset=True, include={*TRAINING_FACTS}))
    return (*card.ancestors, *([last] if last.model_fields_set else []))[-MAX_ANCESTORS:]


def write_card(folder: Path, card: PolicyCard) -> None:
    """Writes the card beside the weights, without unset fields. The folder must exist."""
    text = card.model_dump_json(indent=2, exclude_unset=True)
    (folder / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def front_matter(card: PolicyCard) -> str:
    """The head of a README.md as model hubs read it: base model, tags, library. Ends with an empty line."""
    from huggingface_hub import ModelCardData

    base = card.base if card.base and _is_hub_name(card.base) else None
    tags = ["triton", "gpu-kernels", "kernelwright", *filter(None, [card.method])]
    data = ModelCardData(
        base_model=base, library_name="transformers", pipeline_tag="text-generation", tags=tags
    )
    return f"---\n{data.to_yaml()}\n---\n\n"


def _is_hub_name(base: str) -> bool:
    """Whether a base is `OWNER/NAME` on a model hub, and neither a folder nor `new:SIZE`."""
    return ":" not in base and base.count("/") == 1 and not Path(base).exists()
