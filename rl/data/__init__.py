"""Corpora: importing, generating, cleaning, labelling and reporting rows for training."""
