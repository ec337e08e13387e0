PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: install lint style test

install: .venv/installed

.venv/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e ".[test]"
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

style: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: install
	$(BIN)/python -m pytest
