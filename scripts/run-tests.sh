#!/usr/bin/env bash
# Everything that `make test` promises: a release build with all tests, and the parsers of untrusted bytes once more
# under the address and undefined-behaviour sanitizers. Ends with ctest's own summary; skipped tests are counted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
mkdir -p build

say() { printf '\n== %s\n' "$*"; }

say "build (release)"
cmake --preset release >build/release.configure.log 2>&1 || { cat build/release.configure.log; exit 1; }
cmake --build build/release -j "$jobs"

say "build (asan-ubsan: the modules that read untrusted bytes)"
cmake --preset asan-ubsan >build/asan.configure.log 2>&1 || { cat build/asan.configure.log; exit 1; }
# shellcheck disable=SC2046
cmake --build build/asan-ubsan -j "$jobs" --target $(cat scripts/sanitized-tests.txt)

say "model for tests/smollm2"
scripts/get-model.sh >/dev/null || true   # without it those tests say that they did not run

say "tests under asan-ubsan"
pattern=$(sed 's/^mlxcel_//' scripts/sanitized-tests.txt | paste -sd'|')
ctest --test-dir build/asan-ubsan --output-on-failure -R "^($pattern)\$" -j "$jobs"

say "tests (release)"
ctest --test-dir build/release --output-on-failure -j "$jobs" | tee build/ctest.log
test "${PIPESTATUS[0]}" -eq 0

say "tests that did not run"
# gtest prints one line per skipped case; ctest keeps each program's output in LastTest.log.
grep -hE '^\[  SKIPPED \]' build/release/Testing/Temporary/LastTest.log | sort -u | sed 's/^/  /' || echo "  none"
