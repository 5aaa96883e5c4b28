#!/usr/bin/env bash
# Installs, with apt, the packages that building and testing need and that are missing. Arguments: further packages.
#   tools/install.sh --missing ...   only names what is missing
set -euo pipefail

only_name=false
if [ "${1:-}" = --missing ]; then
  only_name=true
  shift
fi

packages=(g++ cmake ninja-build pkg-config libdnnl-dev libopenmpi-dev openmpi-bin libhwy-dev libhwloc-dev libyaml-cpp-dev
  nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev zlib1g-dev libsentencepiece-dev libpcre2-dev
  libicu-dev libxxhash-dev libgtest-dev
  python3 sentencepiece iproute2 "$@")

if ! command -v apt-get > /dev/null; then
  cat >&2 << MESSAGE
This script installs with apt-get, which is not here. Install these Debian packages' equivalents by hand, then run
tools/build.sh: ${packages[*]}
MESSAGE
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
done
if $only_name; then
  echo "${missing[*]}"
  exit 0
fi
[ ${#missing[@]} -eq 0 ] && exit 0

run_as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || {
    echo "These packages are missing and neither root nor sudo is there to install them: ${missing[*]}" >&2
    exit 1
  }
  run_as_root=(sudo)
fi
echo "Installing ${missing[*]}"
"${run_as_root[@]}" apt-get update -qq
"${run_as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
