#!/usr/bin/env bash
# Formatting and static analysis of every source, as they must be before a change lands. Needs clang-format,
# clang-tidy and a configured build/release. Arguments: the sources to check; default: all.
set -euo pipefail
cd "$(dirname "$0")/.."

sources=("$@")
if [ ${#sources[@]} -eq 0 ]; then
  mapfile -t sources < <(git ls-files '*.cpp')
  git ls-files '*.h' '*.cpp' | xargs clang-format --dry-run -Werror
fi
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build/release
