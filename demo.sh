#!/usr/bin/env bash
# Says how long it will take, installs what is missing, builds, and trains an MoE language model on Debian's Perl
# documentation over four ranks: two "nodes" of this machine, with links of 1 Gbit/s between them (docs/lab.md). Then
# trains a little more with and without overlap, by turns, and compares the two in a table.
#   ./demo.sh                          a few minutes of training
#   ./demo.sh --long                   four times as many steps
#   ./demo.sh --set data.path=FOLDER   on other text; this and other options go to `expedite train` as they are
#   ./demo.sh --lab 4x1@2gbit          other nodes and links; --ranks 4: none
set -euo pipefail
cd "$(dirname "$0")"

length=()
times=1
if [ "${1:-}" = --long ]; then
  length=(--set name=demo-long --set train.steps=1120)
  times=4
  shift
fi

# How long it takes: seconds on two cores of AMD Zen 4, taken to shrink as cores grow, training with up to four.
minutes() {
  local tenths=$((($1 + 3) / 6))
  if [ "$1" -lt 60 ]; then echo "$((($1 + 9) / 10 * 10)) s"; else echo "$((tenths / 10)).$((tenths % 10)) min"; fi
}
cores=$(nproc)
files=70
[ -f build/release/build.ninja ] && files=$(ninja -C build/release -n expedite 2> /dev/null | grep -c '^\[') || true
packages=$(tools/install.sh --missing perl-doc | wc -w)
install=$((packages == 0 ? 0 : 20 + packages))
build=$((2 * 200 * files / 70 / cores))
train=$((2 * (times * 155 + 60) / (cores < 4 ? cores : 4)))
parts=
[ "$packages" -gt 0 ] && parts="installing $packages packages ($(minutes "$install")), "
[ "$files" -gt 0 ] && parts+="building ($(minutes "$build")), "
echo "About $(minutes $((install + build + train))) on $cores cores:" \
  "${parts}training and comparing ($(minutes "$train"))"

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
