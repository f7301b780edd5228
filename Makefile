PYTHON ?= python

.PHONY: check format lint types test docs ci

check: format lint types test  ## everything, in the order that fails fastest

format:
	$(PYTHON) -m ruff format .

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -q -n 2

docs:  ## the site, into site/; needs the extra `docs`; a warning or a broken link is an error
	$(PYTHON) docs/command_line_page.py
	$(PYTHON) -m zensical build --strict --clean

ci:  ## as a newcomer would: clean copy, fresh environment, the README's own commands
	.ci/run
