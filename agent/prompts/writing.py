"""Fills prompt templates with the values of a request."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from string import Template

from kernelwright.agent.prompts.compact import FORM_VERSION, compact_reference
from kernelwright.errors import InputError
from kernelwright.policies.base import Message, PromptForm, Role, Value
from kernelwright.source_lines import without_directives
from kernelwright.store.models import ACTIONS_OF_THE_POLICY, Action
from kernelwright.tools.problem import Problem

PROMPT_VERSION = "v1"
SHIPPED_FOLDER = Path(__file__).parent / PROMPT_VERSION
TEMPLATE_NAMES = {
    PromptForm.CHAT: ("system", *ACTIONS_OF_THE_POLICY),
    PromptForm.COMPACT: ACTIONS_OF_THE_POLICY,
}
TEMPLATE_FIELDS = {"reference", "target", "code", "feedback", "notice", "budget"}


class PromptFields(Value):
    """Values for a template. Fields unused by the template are ignored."""

    problem: Problem
    action: Action
    target: str = ""
    """Description of the GPU."""
    code: str = ""
    """Candidate to repair or refine."""
    feedback: str = ""
    notice: str = ""
    """Format error of the last reply: no code, truncated, or a repetition."""
    budget: str = ""


class Prompts:
    """Templates of a prompt form: user templates override the shipped templates."""

    def __init__(self, form: PromptForm, folder: Path | None = None) -> None:
        """`folder` may contain `chat/draft.txt`, `compact/repair.txt` ...

        Missing files default to the shipped templates. Raises InputError.
        """
        if folder is not None and not folder.is_dir():
            raise InputError(
                f"there is no folder {folder}: give one with {form}/draft.txt and the like"
            )
        self.form = form
        self._texts = {name: _read(form, name, folder) for name in TEMPLATE_NAMES[form]}

    @property
    def version(self) -> str:
        """Version of the prompts: `v1.chat`, `v1.compact.2`, with a digest if any template is
        overridden: `v1.chat+1f0c2a9b`.
        """
        form = f"{self.form}.{FORM_VERSION}" if self.form is PromptForm.COMPACT else self.form
        shipped = {name: _shipped(self.form, name) for name in TEMPLATE_NAMES[self.form]}
        if shipped == self._texts:
            return f"{PROMPT_VERSION}.{form}"
        digest = hashlib.sha256(
            "\0".join(self._texts[name] for name in TEMPLATE_NAMES[self.form]).encode()
        )
        return f"{PROMPT_VERSION}.{form}+{digest.hexdigest()[:8]}"

    def messages(self, prompt_fields: PromptFields) -> tuple[Message, ...]:
        """Returns the conversation of a request.

        Each turn is self-contained, so prompts do not grow with the history.
        """
        source = without_directives(prompt_fields.problem.source)
        compact = self.form is PromptForm.COMPACT
        fields = prompt_fields.model_dump(include=TEMPLATE_FIELDS) | {
            "reference": compact_reference(source) if compact else source
        }
        fields = {name: str(text).strip("\n") for name, text in fields.items()}
        # Templates place $notice directly before the text: no blank line without a notice.
        fields["notice"] += "\n\n" if fields["notice"] else ""
        user = Message(
            role=Role.USER,
            content=Template(self._texts[prompt_fields.action]).substitute(fields).strip("\n"),
        )
        if compact:
            return (user,)
        return (Message(role=Role.SYSTEM, content=self._texts["system"].strip("\n")), user)


def _read(form: PromptForm, name: str, folder: Path | None) -> str:
    override = folder / form / f"{name}.txt" if folder else None
    return (
        _template(override) if override is not None and override.is_file() else _shipped(form, name)
    )


@cache
def _shipped(form: PromptForm, name: str) -> str:
    return _template(SHIPPED_FOLDER / form / f"{name}.txt")


def _template(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    template = Template(text)
    unknown = set(template.get_identifiers()) - TEMPLATE_FIELDS
    if unknown or not template.is_valid():
        named = f"names {', '.join(sorted(unknown))}" if unknown else "has a lone $ (write $$)"
        raise InputError(
            f"the prompt {path} {named}: it may hold {', '.join(f'${field}' for field in sorted(TEMPLATE_FIELDS))}"
        )
    return text
