# The first Python of at least 3.11 that runs; the tests and the pins of constraints.txt were tried with 3.11.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && exit; \
	done; echo python3.11)
BIN := .venv/bin

# Libraries are compiled when they are first imported. Pip would compile all of them, for a minute.
PIP := $(BIN)/pip install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench bench-gpu demo docs install lint pictures style test test-lowest test-newest test-plain-kernels test-slow wheel

install: .venv/installed

# The plugin, and the packages that stand on it
PACKAGES := words live label
ALL := $(PACKAGES:%=-e packages/%)

.venv/installed: setup.cfg pyproject.toml constraints.txt $(PACKAGES:%=packages/%/setup.cfg)
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) -c constraints.txt -e ".[view]" $(ALL)
	touch $@

# The package with its pages; the fast tests need a little more, the slow ones much.
.venv/installed_test: .venv/installed
	$(PIP) -c constraints.txt -e ".[test]" $(ALL)
	touch $@

.venv/installed_slow: .venv/installed_test
	$(PIP) -c constraints.txt -e ".[slow]" $(ALL) ray
	touch $@

lint: .venv/installed_test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

style: .venv/installed_test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/installed_docs
	$(BIN)/mkdocs build --strict

.venv/installed_docs: .venv/installed
	$(PIP) -c constraints.txt -e ".[docs]" $(ALL)
	touch $@

# The pictures of the docs, from made-up posts.
ENCODER ?= sentence-transformers/all-MiniLM-L6-v2

pictures: .venv/installed_slow .venv/browser
	$(BIN)/python docs/pictures/make.py --model_name_or_path $(ENCODER)

demo: install
	HF_HUB_OFFLINE=1 $(BIN)/python examples/demo.py

# The wheel is unpacked beside the libraries that are there already: a venv of its own would hold the same for two minutes.
wheel: install
	elsewhere=$$(mktemp -d) && trap 'rm -rf "$$elsewhere"' EXIT && \
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir "$$elsewhere" . $(PACKAGES:%=./packages/%) && \
	$(PIP) --no-deps --target "$$elsewhere/site" "$$elsewhere"/*.whl && \
	cd "$$elsewhere" && PYTHONPATH=site $(abspath $(BIN))/python $(abspath .ci/check_wheel.py)

bench: .venv/installed_slow .venv/redis
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/speed.py --cases small --size small --threads 1 --output outputs/small.json
	$(BIN)/python benchmarks/live.py
	$(BIN)/python benchmarks/scoring.py --posts 200000 --timelines 5000

# On a GPU, with any Python that has torch and Transformers: `make bench-gpu PYTHON=python3`. With flash-attn or kernels
# installed also ATTENTION="torch_varlen flash_attention_2".
ATTENTION ?= torch_varlen

bench-gpu:
	PYTHONPATH=.:packages/live $(PYTHON) benchmarks/speed.py --device cuda --rows 3 --targets 16 64 --timelines 1 64 1024 --turns 20 \
		--attention $(ATTENTION)

# What a contributor runs: one test process for each of JOBS cores, one thread in each.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS)

test: .venv/installed_test
	$(PYTEST) -m "not slow"

# What computes logits, and exports of the default model, once more with the kernels of a processor without AVX and with two
# threads: a test that holds by the rounding of one machine's kernels fails here, and not on the next machine. Threads
# that wait sleep, as there are more of them than cores. A minute on two cores.
PLAIN_KERNELS := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
COMPUTING := $(patsubst %,tests/test_%.py,encode_once encoders explanations model_common modeling_tempoformer \
	modeling_post_tempoformer modeling_temporal_bert parity pipeline tree_expert variants export) \
	packages/live/tests/test_live_classifier.py packages/live/tests/test_stepping.py

test-plain-kernels: .venv/installed_slow
	$(PLAIN_KERNELS) $(BIN)/python -m pytest --numprocesses $(JOBS) -m "plain_kernels or not slow" $(COMPUTING)

# The rest: fuzzing with new seeds, several processes, full disks, whole runs of the scripts, the common tests of
# Transformers, pages in a browser, a server of timelines, exported and quantised models.
test-slow: .venv/installed_slow .venv/common_tests .venv/browser .venv/redis .venv/nginx
	$(PYTEST) -m slow

# From the source distribution of the installed version.
.venv/common_tests: .venv/installed
	rm -rf $@ $@.part
	version=$$($(BIN)/python -c 'import importlib.metadata as m; print(m.version("transformers"))') && \
	$(BIN)/pip download --quiet --no-deps --no-binary :all: --dest $@.part transformers==$$version && \
	tar -xz -C $@.part -f $@.part/transformers-$$version.tar.gz --strip-components 1 transformers-$$version/tests
	mv $@.part $@
	touch $@

# Chromium and its driver: those of the system, or else Debian's.
.venv/browser: .venv/installed
	(command -v chromium && command -v chromedriver) || (apt-get update && apt-get install --yes chromium chromium-driver) || \
	(echo "The tests of pages need Chromium: as root, apt-get install chromium chromium-driver." && exit 1)
	touch $@

# The server that the tests of packages/live start; Debian's package where there is none.
.venv/redis: .venv/installed
	command -v redis-server || (apt-get update --quiet && apt-get install --yes --quiet redis-server)
	touch $@

# The proxy that the tests of packages/live start.
.venv/nginx: .venv/installed
	command -v nginx || (apt-get update --quiet && apt-get install --yes --quiet nginx-light)
	touch $@

# The oldest Transformers and Datasets that setup.cfg allows, with what they take beside them.
LOWEST := transformers==5.11.0 datasets==5.0.1

test-lowest: .venv-lowest/installed
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest --numprocesses $(JOBS)

.venv-lowest/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lowest
	grep -Ev '^(transformers|tokenizers|huggingface_hub|datasets)==' constraints.txt > .venv-lowest/constraints.txt
	printf '%s\n' $(LOWEST) >> .venv-lowest/constraints.txt
	.venv-lowest/bin/pip install --quiet -c .venv-lowest/constraints.txt -e ".[test,space]" $(ALL) ray selenium
	touch $@

# The newest Transformers and PEFT, with what they take beside them. PyTorch stays at its pin, whose build for processors
# installs without gigabytes for GPUs.
test-newest: .venv-newest/installed
	OMP_NUM_THREADS=1 .venv-newest/bin/python -m pytest --numprocesses $(JOBS)

.venv-newest/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-newest
	grep -Ev '^(transformers|tokenizers|huggingface_hub|peft)==' constraints.txt > .venv-newest/constraints.txt
	.venv-newest/bin/pip install --quiet -c .venv-newest/constraints.txt -e ".[test,space]" $(ALL) ray selenium
	touch $@
