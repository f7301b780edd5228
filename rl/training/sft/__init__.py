"""Supervised fine-tuning: rows of a corpus to ids, ids to batches, batches through trl's
SFTTrainer, and a model folder with its card.
"""
