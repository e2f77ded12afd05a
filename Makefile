# Two commands matter: `make quickstart` (see it work) and `make test` (what people and CI run).
# Both set themselves up from nothing but Python >= 3.11, pip and make: packages in .venv; an OpenMP runtime, a C compiler, ssh with
# a server, a Vulkan device and qemu, where the machine lacks them, in ~/.cache/hwbench (of Debian packages, without root).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
GROUP = $(BIN)/python -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]])'
QUICKSTART := .quickstart

# (a folder is called docs)
.PHONY: quickstart site docs wheel lowest test campaign check bench study accuracy search targets trust clean

quickstart: $(VENV)/core.done  ## device -> table -> predictor -> search -> measured winner -> report
	$(BIN)/hwbench quickstart --workspace $(QUICKSTART)

site: $(VENV)/core.done  ## every report as a site that opens without network: site/index.html
	$(BIN)/hwbench site reports --out site

docs: $(VENV)/docs.done  ## this documentation as a site that opens without network: .docs/index.html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -c docs/sphinx -d .docs/.doctrees . .docs

wheel: $(VENV)/core.done  ## dist/hwbench_nas-VERSION-py3-none-any.whl: hwbench with devices, tables and predictors; needs no clone
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

lowest: $(VENV)/core.done  ## the lowest versions pyproject.toml allows, in .lowest: what is fitting of the tests (studies/lowest.py)
	$(BIN)/python -m studies.lowest

test: check  ## format, lint, types, import rule, tests; two processes, which take a file each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

campaign: $(VENV)/dev.done  ## what is too long for `make test` (marked in tests/, tests/campaign.py): studies, tutorials, every shipped predictor built again, 500 mutated models, whole contract suites (HWBENCH_TABLES=DIR; 25 minutes)
	$(BIN)/python -c 'import datetime; from hwbench.device.files import local_name; print(datetime.date.today(), local_name())' > reports/campaign.txt
	HWBENCH_CAMPAIGN=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m campaign >> reports/campaign.txt; \
	  code=$$?; tail -n 3 reports/campaign.txt; exit $$code

check: $(VENV)/dev.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/dev.done  ## speeds as ratios against peers, measured in one run; keeps .benchmarks/*.json
	$(PIP) scikit-learn
	$(BIN)/python -m pytest benchmarks --benchmark-only --benchmark-autosave -s

study: $(VENV)/dev.done  ## every accuracy figure reports/README.md quotes of it, measured anew on this machine (about an hour)
	$(BIN)/python -m studies.readme_figures

accuracy: $(VENV)/dev.done  ## how good predictions are here: networks of four spaces, models of transformers (about 2 hours)
	$(PIP) transformers
	$(BIN)/python -m studies.accuracy
	$(BIN)/python -m studies.active_profiling --workspace .studies/accuracy/workspace --space nasvit --networks 16

search: $(VENV)/dev.done  ## every strategy and the peers on NAS-Bench-201, tables from HWBENCH_TABLES (about an hour)
	$(BIN)/python -m studies.search --workers 2

targets: $(VENV)/dev.done  ## runtimes of this CPU side by side, an emulated ARM core, TensorRT's builder, software Vulkan (about 80 minutes)
	$(BIN)/hwbench device setup emulated-cortex-a72
	$(BIN)/python -m studies.targets

trust: $(VENV)/dev.done  ## how far measurements can be trusted here: repeats, load, comparisons, peers (about 35 minutes)
	$(PIP) pyperf
	$(BIN)/python -m studies.trust

$(VENV)/core.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hwbench needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv $(VENV) > /dev/null 2>&1 || \
	  { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@echo "installing hwbench into $(VENV) ..."
	$(PIP) --editable .
	-@$(BIN)/python -m hwbench.core.openmp
	touch $@

$(VENV)/docs.done: $(VENV)/core.done
	$(PIP) $$($(GROUP) docs)
	touch $@

$(VENV)/dev.done: $(VENV)/core.done $(VENV)/docs.done
	@echo "installing test tools, torch (CPU) and peers into $(VENV) ..."
	$(PIP) pytest pytest-xdist pytest-benchmark hypothesis moocore crepes duckdb ruff mypy import-linter --editable '.[torch,peers,openvino,ncnn,litert,tensorrt,compress,ray]'
	touch $@

clean:
	rm -rf $(VENV) $(QUICKSTART) .docs .lowest dist .studies .pytest_cache .ruff_cache .mypy_cache .benchmarks .import_linter_cache .hypothesis
