#!/usr/bin/env bash
# Installs, with apt, what the contenders need and Expedite does not: Debian's PyTorch, about 1 GB with what it needs,
# and a BLAS for its f32 products (without one they run at a twentieth of the speed).
set -euo pipefail
exec "$(dirname "$0")/../../tools/install.sh" python3-torch libopenblas0-pthread
