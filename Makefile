PYTHON ?= python

.PHONY: check format lint types test ci

check: format lint types test  ## everything, in the order that fails fastest

format:
	$(PYTHON) -m ruff format .

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -q -n 2

ci:  ## as a newcomer would: clean copy, fresh environment, the README's own commands
	.ci/run
