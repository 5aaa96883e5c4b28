#!/usr/bin/env bash
# Builds a preset of CMakePresets.json: tools/build.sh release|debug|asan|tsan [--tests]. Without --tests, the program.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
target=expedite
[ "${2:-}" = --tests ] && target=all
cmake --preset "$preset" > /dev/null || cmake --preset "$preset"
ninja -C "build/$preset" "$target"
