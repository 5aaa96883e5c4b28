#!/usr/bin/env bash
# Installs what is missing, builds, and trains an MoE language model on Debian's Perl documentation over four ranks: two
# "nodes" of this machine, with links of 1 Gbit/s between them (docs/lab.md). Then trains a little more with and without
# overlap, by turns, and compares the two in a table.
#   ./demo.sh                          a few minutes of training
#   ./demo.sh --long                   four times as many steps
#   ./demo.sh --set data.path=FOLDER   on other text; this and other options go to `expedite train` as they are
#   ./demo.sh --lab 4x1@2gbit          other nodes and links; --ranks 4: none
set -euo pipefail
cd "$(dirname "$0")"

length=()
if [ "${1:-}" = --long ]; then
  length=(--set name=demo-long --set train.steps=1500)
  shift
fi
tools/install.sh perl-doc
tools/build.sh release

where=()
if [[ " $*" != *" --lab"* && " $*" != *" --ranks"* ]]; then
  where=(--lab 2x2@1gbit)
  status=0
  why=$(build/release/lab "${where[1]}" true 2>&1) || status=$?
  if [ "$status" -eq 3 ]; then
    echo "This machine allows no nodes with links between them, so four ranks without: ${why#lab: }"
    where=(--ranks 4)
  elif [ "$status" -ne 0 ]; then
    echo "$why" >&2
    exit "$status"
  fi
fi
exec build/release/expedite train configs/demo.yaml "${where[@]}" --compare-baseline 20 "${length[@]}" "$@"
