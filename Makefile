# Two commands on a fresh machine: `make run` and `make test`. Everything else is for people who work on mlxcel.
BUILD ?= build/release
JOBS ?= $(shell nproc)

.PHONY: run build test bench format lint docs dependencies clean

build: dependencies
	@cmake --preset release -B $(BUILD) $(CMAKE_FLAGS) > $(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS) --target mlxcel

dependencies:
	@mkdir -p build
	@scripts/install-dependencies.sh

run: build
	@model=$$(scripts/get-model.sh) && \
	$(BUILD)/bin/mlxcel run -m "$$model" -p "What is the capital of France?" && \
	if [ -t 0 ]; then exec $(BUILD)/bin/mlxcel run -m "$$model"; fi

test: dependencies
	@scripts/run-tests.sh

bench: build
	@model=$$(scripts/get-model.sh) && $(BUILD)/bin/mlxcel bench decode -m "$$model"

docs: build
	@$(BUILD)/bin/mlxcel man reference > docs/cli-reference.md

format:
	@git ls-files '*.h' '*.cc' | xargs clang-format -i

lint: dependencies
	@cmake --preset release -B $(BUILD) > /dev/null
	@scripts/tidy.sh $(BUILD)

clean:
	rm -rf build
