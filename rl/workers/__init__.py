"""Worker processes of data and training."""
