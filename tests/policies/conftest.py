from pathlib import Path

import pytest

from tests.tiny_model import save_tiny_adapter, save_tiny_model


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Two cores are shared; tiny matrices gain nothing from more."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_adapter(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_adapter(tiny_model, tmp_path_factory.mktemp("adapter") / "lora")
