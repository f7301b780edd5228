"""From the log to training rows: stored turns, why some cannot be trained on, and what a database holds."""
