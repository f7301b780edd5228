"""trl's trainers for rows of token ids.

SFT accepts such rows; DPO and KTO would tokenize text, so their private preparation step is
overridden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trl import DPOTrainer, KTOTrainer, SFTTrainer

if TYPE_CHECKING:
    from datasets import Dataset


class TokenizedSFTTrainer(SFTTrainer):
    """Trains on rows of token ids."""

    def create_model_card(self, *_: object, **__: object) -> None:
        """Does nothing: the project writes its own card beside the weights."""


class TokenizedDPOTrainer(DPOTrainer):
    """Trains on rows of token ids in the columns prompt_ids, chosen_ids, rejected_ids."""

    def _prepare_dataset(self, dataset: Dataset, *_: object, **__: object) -> Dataset:
        return dataset

    def create_model_card(self, *_: object, **__: object) -> None:
        """Does nothing: the project writes its own card beside the weights."""


class TokenizedKTOTrainer(KTOTrainer):
    """Trains on rows of token ids in the columns prompt_ids, completion_ids, label."""

    def _prepare_dataset(
        self,
        dataset: Dataset,
        processing_class: Any,
        args: Any,
        dataset_name: str,
    ) -> Dataset:
        """Adds the mismatched replies of the KL term as trl does: the replies of a batch, rotated
        by one row.
        """
        if not self.calculate_KL:
            return dataset

        def rotated(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
            replies = rows["completion_ids"]
            return {**rows, "KL_completion_ids": [replies[-1], *replies[:-1]]}

        return dataset.map(rotated, batched=True, batch_size=args.per_device_train_batch_size)

    def create_model_card(self, *_: object, **__: object) -> None:
        """Does nothing: the project writes its own card beside the weights."""
