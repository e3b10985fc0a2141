# People and CI call the same targets. `make help` lists them.

# The profile that `engines` builds for: a name that `engine-builder profiles` lists, `all`, or nothing for this
# machine's.
# `make setup GPU=1` is different: it installs the GPU library.
GPU ?=
# Models by name; without it, every model whose weights are on this machine (`engine-builder models`).
MODELS ?=
# Where model files are, and where engines go.
MODEL_FILES ?= models
ENGINE_FOLDER ?= engines
# target/release, or the folder that CARGO_TARGET_DIR or Cargo's configuration says. Without Cargo there is no answer,
# and `make build` then says what is missing.
BIN := $(or $(shell python3 scripts/commands.py 2>/dev/null),target/release)
ifneq ($(filter /%,$(BIN)),)
# Programs that were built elsewhere would not find this ONNX Runtime.
export ORT_DYLIB_PATH ?= $(CURDIR)/.onnxruntime/lib/libonnxruntime.so
endif
# NVIDIA's builder for RTX GPUs is compiled in where its library exists (x86-64) and where libclang is, which its
# bindings need (crates/tensorrt/Cargo.toml).
LIBCLANG := $(shell scripts/find_libclang.sh 2>/dev/null)
RTX_FEATURE := $(if $(and $(filter x86_64,$(shell uname -m)),$(LIBCLANG)),--features rtx)
WITHOUT_RTX := plans for RTX GPUs, which need x86-64 and libclang (apt install libclang-dev)
# Plans for RTX GPUs that are built at the same time.
JOBS ?= 1
# What `dist` makes releases for, and the private key of `engine-builder keygen` that signs them.
TARGETS ?= x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
KEY ?=
# The tag or commit that `semver` compares with; without it the last tag, and without one the commit before.
BASELINE ?=
# Seconds for each fuzz target.
SECONDS ?= 20
# Third-party clients of the server, and the PyPI packages of its tests and of try-cluster.
SERVER_CLIENTS := target/server-venv/installed

.PHONY: help setup build demo serve try-cluster engines engines-of-models engines-of-profile test clients conformance gpu-check lint format interleavings fuzz bench docs dist package semver clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: ## Provision ONNX Runtime and OpenVINO in .onnxruntime/ (OPENVINO=0: without it; RTX=1: also TensorRT for RTX; GPU=1: all that a GPU needs)
	@python3 scripts/setup_onnxruntime.py $(if $(filter 0,$(OPENVINO)),--without-openvino) $(if $(filter 1,$(GPU)),--gpu) $(if $(filter 1,$(RTX)),--rtx) $(if $(TENSORRT_WHEEL),--tensorrt-wheel "$(TENSORRT_WHEEL)")

build: ## Build exporter, engine-builder, runtime and tileforge-server (in target/release/, or below CARGO_TARGET_DIR)
	cargo build --release --locked $(RTX_FEATURE)
	@$(if $(RTX_FEATURE),,echo "not built: $(WITHOUT_RTX)")

demo: setup build ## Build the demo engine, enlarge a photo, and compare the result with bicubic
	@mkdir -p demo
	$(BIN)/exporter export models/compact-x4.safetensors -o demo/compact-x4.onnx
	$(BIN)/engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
	$(BIN)/runtime infer --engine engines/cpu/compact-x4 --input tests/images/coffee.png --output demo/coffee-x4.png
	$(BIN)/runtime evaluate --engine engines/cpu/compact-x4 --input tests/images/coffee.png --minimum-gain 0.8
	@echo "The picture, four times as large: $(CURDIR)/demo/coffee-x4.png"

serve: setup build ## Build the demo engine, and serve the engines of engines/cpu until Ctrl-C
	@test -e engines/cpu/compact-x4/manifest.json \
	|| $(BIN)/engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
	$(BIN)/tileforge-server serve --engines engines/cpu --log text

try-cluster: setup build $(SERVER_CLIENTS) ## Show workers on a broker: NATS, S3, 100 jobs, a worker that is killed (needs nats-server)
	@test -e engines/cpu/compact-x4/manifest.json \
	|| $(BIN)/engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
	target/server-venv/bin/python scripts/try_cluster.py $(BIN)/tileforge-server engines/cpu

engines: setup build ## Build engines: GPU=rtx4090, GPU=all (else for this machine), MODELS="a b" (else all whose weights are here)
	@$(MAKE) --no-print-directory engines-of-models

# Profiles for RTX GPUs need NVIDIA's builder, which is downloaded once (95 MB).
engines-of-models:
	@set -e; \
	profiles=$(if $(filter all,$(GPU)),"$$($(BIN)/engine-builder profiles | cut -d' ' -f1)",$(or $(GPU),$$($(BIN)/engine-builder profiles --here))); \
	engines=$$($(BIN)/engine-builder models --names $(or $(MODELS:%=$(MODEL_FILES)/%.yaml),--available)); \
	$(if $(RTX_FEATURE),if $(BIN)/engine-builder profiles $$profiles 2>/dev/null | grep -q ' tensorrt-rtx '; then python3 scripts/setup_onnxruntime.py --rtx; fi;) \
	for profile in $$profiles; do $(MAKE) --no-print-directory engines-of-profile GPU=$$profile ENGINES="$$engines"; done

engines-of-profile: $(foreach engine,$(ENGINES),$(ENGINE_FOLDER)/$(GPU)/$(engine)/manifest.json)

$(ENGINE_FOLDER)/$(GPU)/%/manifest.json: $(MODEL_FILES)/%.yaml $(wildcard profiles/$(GPU).yaml profiles/families/*.yaml) $(BIN)/engine-builder
	$(BIN)/engine-builder build $< --profile $(GPU) -o $(@D) --share $(ENGINE_FOLDER) --jobs $(JOBS)$(if $(RTX_FEATURE),, --portable)

# A third-party client of registries, which a test uses to pull.
ORAS := target/oras-venv/installed

$(ORAS): tests/clients/oras-requirements.txt
	python3 -m venv target/oras-venv
	target/oras-venv/bin/pip install --quiet -r $<
	touch $@

$(SERVER_CLIENTS): tests/clients/server-requirements.txt
	python3 -m venv target/server-venv
	target/server-venv/bin/pip install --quiet -r $<
	touch $@

# What the wheel is made of: the programs and the module, which a build of the whole workspace makes with the same
# dependencies as the tests.
.PHONY: wheel wheel-binaries
wheel-binaries:
	@cargo build --release --locked --workspace $(RTX_FEATURE) >&2
	@echo $(BIN)

wheel: setup wheel-binaries ## Build the wheel of the Python package in target/wheels/
	python3 python/build_backend.py --binaries $(BIN) --output target/wheels

# What the tests of the Python package need beside it.
PYTHON_CLIENTS := target/python-venv/installed

$(PYTHON_CLIENTS): tests/clients/python-requirements.txt
	python3 -m venv target/python-venv
	target/python-venv/bin/pip install --quiet -r $<
	touch $@

# What the server's tests take from npm: another client, and the checks of the page for all users.
SERVER_NPM := target/server-npm/installed

$(SERVER_NPM): tests/clients/npm/package.json tests/clients/npm/package-lock.json
	mkdir -p target/server-npm
	cp $^ target/server-npm/
	cd target/server-npm && npm ci --silent --no-audit --no-fund --ignore-scripts
	touch $@

clients: $(ORAS) $(SERVER_CLIENTS) $(SERVER_NPM) $(PYTHON_CLIENTS) ## Install the clients that tests run

# Some tests give files to other users, as neighbours on a machine do. Root may do that, and everyone in a user namespace
# of their own.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),unshare --user --map-auto --map-root-user)

# The tests of the builder need its library.
test: RTX := $(if $(RTX_FEATURE),1)
# Tests wait for programs and clocks, too: one more of them at the same time than there are processors.
test: export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))
test: setup clients ## Run all tests; with the GPU library set up, also `conformance`
	$(AS_ROOT) cargo test --release --locked --workspace $(RTX_FEATURE)
	scripts/test_vapoursynth.sh $(BIN)
	@$(if $(RTX_FEATURE),,echo "not run: $(WITHOUT_RTX)")
	@if [ -e .onnxruntime/lib/libonnxruntime_providers_tensorrt.so ]; then scripts/conformance.sh; \
	else echo "not run: the provider options of the GPU profiles (make conformance downloads 0.6 GB for it)"; fi

conformance: ## Check the provider options of all profiles with ONNX Runtime's own parsers (downloads 0.6 GB once)
	scripts/conformance.sh

gpu-check: build ## Check results and speed on the NVIDIA GPU of this machine; exits 3 without one
	cargo build --release --locked --package xtask
	@python3 scripts/gpu_check.py

lint: ## Formatting, lints, licences and advisories; the GitHub workflow where actionlint or npm is installed
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets $(RTX_FEATURE) -- --deny warnings
	scripts/cargo_deny.sh
	scripts/actionlint.sh ci/github/example.yml

format: ## Format the code
	cargo fmt --all

interleavings: ## Run the threads of the host in many orders, which a scheduler chooses (ORDERS=2000 each, twice)
	scripts/interleavings.sh $(ORDERS)

fuzz: ## Fuzz everything that is parsed from a file, SECONDS=20 each
	scripts/fuzz.sh -max_total_time=$(SECONDS)

bench: setup build ## Measure figures of docs/benchmarks.md (LARGE=1: with a photo of 144 megapixels)
	cargo build --release --locked --package tileforge-runtime --example load_time
	scripts/bench.py $(if $(filter 1,$(LARGE)),--large)

docs: ## Build the API documentation in target/doc/
	RUSTDOCFLAGS="--deny warnings" cargo doc --release --locked --workspace $(RTX_FEATURE) --no-deps

dist: ## Make a release in target/dist/: archives, Debian packages, checksums (TARGETS="…"; KEY=FILE signs it)
	cargo xtask dist $(TARGETS:%=--target %) $(if $(RTX_FEATURE),--rtx) $(if $(KEY),--key "$(KEY)")

package: ## Pack the crates as they would be published, and build them from their packages
	cargo package --locked --workspace --exclude end-to-end --exclude tileforge-python --exclude xtask

semver: ## Compare the libraries with those of BASELINE, a tag or a commit (else with the last release, or with HEAD^)
	scripts/semver_checks.sh $(BASELINE)

clean: ## Remove everything that was built
	cargo clean
	rm -rf demo engines gpu-check .onnxruntime
