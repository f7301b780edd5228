"""The prompts of a policy: texts in files, with versions, that a user can override with a folder of the same names."""

from kernelwright.agent.prompts.compact import compact_reference
from kernelwright.agent.prompts.writing import PromptFields, Prompts

__all__ = ["PromptFields", "Prompts", "compact_reference"]
