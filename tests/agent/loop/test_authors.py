"""Who wrote a candidate's text, in words."""

from kernelwright.agent.loop.attempts import JudgedAttempt, author_in_words
from kernelwright.policies.authors import author_of
from kernelwright.policies.base import (
    Completion,
    FinishReason,
    Message,
    Origin,
    Request,
    Role,
    Usage,
)
from kernelwright.policies.inductor.draft import Draft
from kernelwright.policies.inductor.policy import CompilerPolicy, DraftedTurn
from kernelwright.store.models import Action

QUESTION = Request(messages=(Message(role=Role.USER, content="write it"),), turn=0)


def drafted(draft: Draft, origin: Origin = Origin.COMPILER) -> Completion:
    (completion,) = DraftedTurn(CompilerPolicy(), lambda _: draft, origin).sample([QUESTION])
    return completion


def test_a_draft_names_the_compiler_the_transformation_or_the_file():
    assert author_of(drafted(Draft(source="x = 1\n"))) == "compiler draft"
    flash = drafted(Draft(source="x = 1\n", transformation="flash attention"))
    assert (flash.origin, author_of(flash)) == (
        Origin.TRANSFORMATION,
        "transformation: flash attention",
    )
    assert author_of(drafted(Draft(source="x = 1\n"), Origin.FILE)) == "your file"


def test_a_policy_is_named_and_a_tuned_text_keeps_its_author():
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    sampled = Completion(text="", finish=FinishReason.STOP, usage=usage, policy="embedded")
    parent = JudgedAttempt(
        candidate_id=1, turn=0, action=Action.DRAFT, parent_id=None, author=author_of(sampled)
    )
    assert author_in_words(sampled, Action.REPAIR, parent) == "policy embedded"
    assert author_in_words(sampled.model_copy(update={"policy": "tuner"}), Action.TUNE, parent) == (
        "policy embedded, then tuned"
    )
