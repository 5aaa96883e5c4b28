#!/usr/bin/env bash
# Fuzzes the planner's parsers of JSON, YAML and CSV: builds clang's libFuzzer targets under the address and
# undefined-behaviour sanitizers and runs all three at once for SECONDS (default 60). An input that crashes, hangs or
# takes 2 GiB ends its run: it stays in build/fuzz/found/ and the exit code is 1. Needs clang, libclang-rt-dev and
# libomp-dev: tools/install.sh clang libclang-rt-dev libomp-dev
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || {
  echo "usage: $0 [SECONDS]; SECONDS is a whole number above 0, not $seconds" >&2
  exit 2
}
cmake --preset fuzz > /dev/null
cmake --build --preset fuzz

pids=()
for parser in json yaml csv; do
  mkdir -p "build/fuzz/corpus/$parser" build/fuzz/found
  "build/fuzz/expedite_${parser}_fuzz" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="build/fuzz/found/$parser-" "build/fuzz/corpus/$parser" "tests/fuzz/seeds/$parser" \
    > "build/fuzz/$parser.log" 2>&1 &
  pids+=($!)
done
status=0
for parser in json yaml csv; do
  if wait "${pids[0]}"; then
    echo "$parser: $(grep -a '^Done' "build/fuzz/$parser.log")"
  else
    echo "$parser: see build/fuzz/$parser.log" >&2
    status=1
  fi
  pids=("${pids[@]:1}")
done
exit $status
