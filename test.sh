#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.
#   ./test.sh          the release build
#   ./test.sh asan     the unit tests under the address and undefined-behaviour sanitizers
#   ./test.sh tsan     the unit tests under the thread sanitizer
set -euo pipefail
cd "$(dirname "$0")"

preset=${1:-release}
tools/install.sh perl-doc
tools/build.sh "$preset" --tests
# Ranks share the cores with each other and with other tests.
export OMPI_MCA_mpi_yield_when_idle=1
case $preset in
  asan | tsan)
    # A test asks for more memory than there is, and wants to be told so.
    export ASAN_OPTIONS=allocator_may_return_null=1 TSAN_OPTIONS=allocator_may_return_null=1
    # The thread sanitizer cannot see how the OpenMP runtime synchronises: one thread there.
    [ "$preset" = tsan ] && export OMP_THREAD_LIMIT=1
    ctest --test-dir "build/$preset" --output-on-failure --parallel 2 --label-regex unit
    ;;
  *) ctest --test-dir "build/$preset" --output-on-failure --parallel 2 ;;
esac
