"""Prompts of policies: versioned text templates, which a user folder with equal file names can
override.
"""

from kernelwright.agent.prompts.compact import compact_reference
from kernelwright.agent.prompts.writing import PromptFields, Prompts

__all__ = ["PromptFields", "Prompts", "compact_reference"]
