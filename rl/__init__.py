"""The learning floor: corpora, rewards and credit, training and evaluation. Floor 3: it may import everything below."""
