"""Extension of vLLM's workers for policies in training. vLLM's workers import this module by
name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelwright.policies.vllm.packing import pack_again


class WeightReloading:
    """Becomes a base of vLLM's worker class; the methods it calls are the worker's."""

    def load_trained_weights(self, folder: str) -> str:
        """Puts a folder's weights in the place of those that sample; gives their fingerprint, as this worker sees
        them.
        """
        from kernelwright.policies.model_identity import weights_revision

        worker: Any = self
        revision = weights_revision(Path(folder))
        if revision is None:
            raise FileNotFoundError(f"no weights at {folder}")
        worker.reload_weights(weights_path=folder)
        pack_again(worker.get_model())
        return revision

    def open_weight_transfer(self) -> None:
        """Prepares this worker for weights by vLLM's weight transfer API."""
        from kernelwright.policies.vllm.transfer_engine import open_engine

        open_engine(self)


EXTENSION_CLASS = f"{WeightReloading.__module__}.{WeightReloading.__qualname__}"
"""The value of `worker_extension_cls`, or of `--worker-extension-cls` of a server, which then needs this project on its
path.
"""
LOAD_METHOD = WeightReloading.load_trained_weights.__name__
OPEN_METHOD = WeightReloading.open_weight_transfer.__name__
"""Methods of the workers that `collective_rpc` calls."""


def load_arguments(folder: Path) -> dict[str, str]:
    """Returns the keyword arguments of `LOAD_METHOD` for a folder with weights."""
    return {"folder": str(folder)}
