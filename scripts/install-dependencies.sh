#!/usr/bin/env bash
# Installs the Debian packages that the build and its tests need. Where it may not install, it names what is missing
# and the command that brings it. cmake/Dependencies.cmake checks for the same libraries.
set -euo pipefail

packages=(
  g++ make cmake ninja-build pkg-config ccache mold git unzip
  libfmt-dev libsimdjson-dev libcurl4-openssl-dev libcli11-dev libtomlplusplus-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev libssl-dev
  libboost1.81-dev libgtest-dev nlohmann-json3-dev
  clang-format clang-tidy tmux
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

say() { printf '%s\n' "$*" >&2; }
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo)
else
  say "These packages are missing and this user may not install them: ${missing[*]}"
  say "Run:  sudo apt-get install ${missing[*]}"
  exit 1
fi
say "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
