#!/usr/bin/env bash
# clang-tidy over the project's own translation units (arguments: build folder, then files; default: all of src and apps).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:?build folder}
shift
files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git ls-files 'src/*.cc' 'apps/*.cc' | grep -v '_test\.cc$')
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build"
