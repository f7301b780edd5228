"""Imports the module of a candidate in the tracer's process, and builds its model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

from kernelwright.tools.tracing.host_code.recording import RECORDER, ChoiceRecorder, compiled
from kernelwright.tools.tracing.pretended_gpu import fake_gpu as pretend_gpu

MODULE_NAME = "candidate"


def load(path: Path, recorder: ChoiceRecorder) -> Any:
    """Imports the candidate's module anew, instrumented to record its choices."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError("the candidate's file cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    setattr(module, RECORDER, recorder)
    exec(compiled(path.read_text("utf-8"), str(path), recorder), module.__dict__)
    return module


def build(module: Any, arguments: Any, *, training: bool = True) -> Any:
    """Builds ModelNew on the pretended GPU. training: mode of the reference, which the candidate
    gets too."""
    with torch.device(pretend_gpu.CUDA):
        model = module.ModelNew(*arguments)
    if not training and isinstance(model, torch.nn.Module):
        model.eval()
    return model.to(pretend_gpu.CUDA) if isinstance(model, torch.nn.Module) else model
