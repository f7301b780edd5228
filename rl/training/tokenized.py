"""trl's trainers on rows that are token ids already.

SFT takes them as it is; DPO and KTO would write the text anew, so that one private step is left out.
"""

from __future__ import annotations

from typing import Any

from trl import DPOTrainer, KTOTrainer, SFTTrainer


class TokenizedSFTTrainer(SFTTrainer):
    """trl's trainer for rows that are tokenized already."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Ours is written beside the weights."""


class TokenizedDPOTrainer(DPOTrainer):
    """Columns: prompt_ids, chosen_ids, rejected_ids."""

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Ours is written beside the weights."""


class TokenizedKTOTrainer(KTOTrainer):
    """Columns: prompt_ids, completion_ids, label."""

    def _prepare_dataset(
        self, dataset: Any, processing_class: Any, args: Any, dataset_name: str
    ) -> Any:
        """Adds the mismatched replies of the KL term as trl does: those of a batch, moved on by one."""
        if not self.calculate_KL:
            return dataset

        def rotated(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
            replies = rows["completion_ids"]
            return {**rows, "KL_completion_ids": [replies[-1], *replies[:-1]]}

        return dataset.map(rotated, batched=True, batch_size=args.per_device_train_batch_size)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Ours is written beside the weights."""
