#!/usr/bin/env bash
# The table in the configuration's documentation is what the program prints.
#   config_reference_test.sh PROGRAM DOCUMENT
set -euo pipefail

if ! difference=$(diff <(sed -n '/^|.*Legal values/,$p' "$2") <("$1" config)); then
  echo "$2 is not what '$1 config' prints (< document, > program); the document says how to renew it:"
  echo "$difference"
  exit 1
fi
