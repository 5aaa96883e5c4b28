#!/usr/bin/env bash
# Installs what is missing, builds, and trains an MoE language model on Debian's Perl documentation over four ranks.
#   ./demo.sh                          about three minutes of training
#   ./demo.sh --long                   about ten
#   ./demo.sh --set data.path=FOLDER   on other text; further --set key=value go to `expedite train` as they are
set -euo pipefail
cd "$(dirname "$0")"

length=()
if [ "${1:-}" = --long ]; then
  length=(--set name=demo-long --set train.steps=1500)
  shift
fi
tools/install.sh perl-doc
tools/build.sh release
exec build/release/expedite train configs/demo.yaml --ranks 4 "${length[@]}" "$@"
