# make train: set up what training needs, then train the quickstart.   make check: lint, types, layers.
# make test: set up the rest, then the quick tests: five minutes on 2 cores.   make test-all: those that take longer, not the others again.
# make test-cuda: the longer ones about CUDA, in the simulator and the interpreter, where device code or a sampler has changed.
# make durations: test and test-all, and records the processor time of each test in tests/durations.json, by which they are told apart.
# make docs: builds the documentation into build/site, with warnings as errors.
# make types: whether every public name has a type that type checkers read alike, by pyright; half a minute.
# make release: builds build/dist, looks at it as a user who installs it would; publishes nothing.
# make soak: trains for SOAK_MINUTES while workers and ranks are killed and stopped at random.
# make test-host-layer: what hoptrain asks of CUDA's driver, over a device that is played in host memory: captures, waits, copies, launches of a step.
#   Not part of the others. It needs g++, 3 GB in build/host-layer, and Python 3.11 or newer on x86-64 Linux; no GPU.
# make test-gpu: the tests of CUDA on this machine's device, where `make test` simulates one.
# make gpu: what is to be done first on a machine with a GPU (docs/gpu.md), in parts that each leave a record in OUT; PARTS names some of them.
#   It takes this folder as it is: the environment of `make setup` where there is one, else whatever PYTHON has.
# make test-faults: each fault of a worker 50 times, of a rank once, and a hundred trainings drawn at random that are stopped and resumed,
#   and two hundred faults of one of two machines, half of them with the graph in parts; HOPTRAIN_FAULTS_SEED=2 draws others; and other examples
#   for what holds of any graph.
# With PYTHONDONTWRITEBYTECODE each process that a test starts would compile the project's Python anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
SOAK_MINUTES ?= 30
PARTS ?=
OUT ?= runs/gpu
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
RUNS := $(VENV)/.installed
STAMP := $(VENV)/.installed-dev
TOOLS := $(VENV)/.installed-release
HOST_LAYER := build/host-layer
OF_CUDA := tests/kernels/cuda tests/samplers/cuda tests/trainers/models/test_sums_on_device.py tests/trainers/models/test_dropout.py tests/golden/test_golden_cuda.py tests/golden/test_bulks_cuda.py
OF_HOST_LAYER := tests/host_layer tests/samplers/cuda/test_loader_cuda.py tests/trainers/models/test_sums_on_device.py tests/trainers/models/test_dropout.py
BY_FILE := --dist loadfile --no-loadscope-reorder --numprocesses

.PHONY: setup train test test-all durations test-cuda test-host-layer test-gpu gpu test-faults soak check types release docs format clean
setup: $(STAMP)

# torch goes first and exactly: a range asked for by another package would fetch the newest build instead of the tested one.
# An environment of another Python is replaced, since its packages would not load.
$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("PYTHON is $(PYTHON), Python %d.%d: it must be 3.11 or later; give another, such as PYTHON=python3.13" % sys.version_info[:2])'
	@echo "installing what training needs into $(VENV): a minute or more"
	@$(PYTHON) -m venv $$([ "$$($(BIN)/python --version 2>&1)" = "$$($(PYTHON) --version)" ] || echo --clear) $(VENV)
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

$(STAMP): $(RUNS)
	@echo "installing what tests and checks need"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(TOOLS): $(STAMP)
	@echo "installing what a release needs"
	@$(PIP) --editable '.[release]'
	@touch $@

train: $(RUNS)
	@echo "training the quickstart: $(BIN)/hoptrain fit --config quickstart"
	@$(BIN)/hoptrain fit --config quickstart

test: $(STAMP)
	@echo "testing, in two processes; make test-all runs what takes longer"
	@$(BIN)/pytest -m 'not long' $(BY_FILE) 2

test-all: $(STAMP)
	@echo "testing what takes longer, in three processes; make test-cuda runs what is long about CUDA"
	@$(BIN)/pytest -m 'long and not cuda' $(BY_FILE) 3

durations: $(STAMP)
	@echo "testing all but CUDA's long ones, to record what each test takes in tests/durations.json"
	@$(BIN)/pytest -m 'not (long and cuda)' $(BY_FILE) 2 --record-durations

test-cuda: $(STAMP)
	@echo "testing CUDA in the simulator and the interpreter, in two processes"
	@$(BIN)/pytest -m 'long and cuda' $(BY_FILE) 2 --record-durations
	@$(BIN)/python .ci/device_path.py record

# torch's CUDA build without what NVIDIA's libraries weigh; "===" takes no other build of the same version.
$(HOST_LAYER)/.installed: constraints.txt tests/host_layer/packages.txt
	@echo "installing torch's CUDA build without NVIDIA's libraries into $(HOST_LAYER): 3 GB, some minutes"
	@$(PYTHON) -m venv $(HOST_LAYER)/venv
	@$(HOST_LAYER)/venv/bin/pip install --quiet --disable-pip-version-check --no-deps --constraint constraints.txt --requirement tests/host_layer/packages.txt
	@$(HOST_LAYER)/venv/bin/pip install --quiet --disable-pip-version-check --no-deps $$(sed -n 's/^torch==/torch===/p' constraints.txt)
	@touch $@

test-host-layer: $(HOST_LAYER)/.installed
	@echo "testing what hoptrain asks of CUDA's driver, over a device that is played in host memory: g++ builds it in $(HOST_LAYER)/lib"
	@$(HOST_LAYER)/venv/bin/python tests/host_layer/libraries.py $(HOST_LAYER)/lib
	HOPTRAIN_CACHE=$(CURDIR)/$(HOST_LAYER)/cache LD_LIBRARY_PATH=$(CURDIR)/$(HOST_LAYER)/lib PYTHONPATH=$(CURDIR):$(CURDIR)/tests:$(CURDIR)/tests/golden \
		$(HOST_LAYER)/venv/bin/python -m pytest -p host_layer.played_device -rs --timeout 600 $(OF_HOST_LAYER)

test-gpu: $(STAMP)
	HOPTRAIN_TEST_GPU=1 $(BIN)/pytest -o timeout_method=thread $(OF_CUDA)
	HOPTRAIN_TEST_GPU=1 HOPTRAIN_TEST_BLOCK=256 $(BIN)/pytest -o timeout_method=thread $(OF_CUDA) --deselect tests/golden/test_bulks_cuda.py

gpu:
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) -m hoptrain.benchmarks.device.first_run --out $(OUT) $(PARTS)

test-faults: $(STAMP)
	HOPTRAIN_FAULTS=50 $(BIN)/pytest tests/engine/queue/test_faults.py tests/samplers/loader/test_many_ranks.py tests/samplers/loader/test_feature_cache_faults.py tests/trainers/test_fit_faults.py
	HOPTRAIN_FAULTS=100 $(BIN)/pytest --numprocesses 2 tests/trainers/resume/test_resume_drawn.py
	HOPTRAIN_FAULTS=34 $(BIN)/pytest --numprocesses 2 tests/trainers/multinode/test_machine_faults.py
	HOPTRAIN_FAULTS=1 $(BIN)/pytest tests/trainers/multinode/test_several_machines.py tests/trainers/multinode/test_machine_restart.py tests/trainers/multinode/test_launchers.py \
		tests/trainers/callbacks/test_rendezvous.py tests/trainers/watchdog/test_process.py tests/trainers/watchdog/test_launcher.py
	$(BIN)/pytest --hypothesis-profile drawn $(BY_FILE) 2 $(shell grep -lr "^from hypothesis" tests --include='test_*.py')

soak: $(STAMP)
	$(BIN)/hoptrain bench soak --minutes $(SOAK_MINUTES)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

types: $(TOOLS)
	$(BIN)/python .ci/public_types.py

release: $(TOOLS) types
	$(BIN)/python .ci/release.py

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html; with its search: python3 -m http.server --directory build/site"

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info
