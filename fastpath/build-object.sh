#!/usr/bin/env bash
# Compiles the programs of the fast path into the object that tweed-fastpath contains.
#
#   fastpath/build-object.sh          writes src/bpf/fast_path.o
#   fastpath/build-object.sh --check  compares instead, and fails if the object is not of
#                                     these sources
#
# `conformance/setup.sh fast-path` installs the compiler. The same version of it writes the
# same bytes, on every processor.
set -euo pipefail
shopt -s inherit_errexit

cd "$(dirname "${BASH_SOURCE[0]}")/src/bpf"
fail() {
    printf 'build-object: %s\n' "$*" >&2
    exit 1
}
command -v clang-14 >/dev/null && command -v llvm-strip-14 >/dev/null ||
    fail "clang-14 or llvm-strip-14 is missing; conformance/setup.sh fast-path installs both"

draft=$(mktemp ./.fast_path.XXXXXX)
trap 'rm -f "$draft"' EXIT
# The headers of the system's processor say nothing that differs between processors.
clang-14 -O2 -g -target bpfel -mcpu=v3 -Wall -Werror -ffile-prefix-map="$PWD=." \
    -I"/usr/include/$(uname -m)-linux-gnu" -c fast_path.c -o "$draft"
# BTF stays, which the loader needs; what a debugger reads goes.
llvm-strip-14 --strip-debug "$draft"
if [[ ${1:-} == --check ]]; then
    cmp "$draft" fast_path.o ||
        fail "fast_path.o is not what these sources give; run fastpath/build-object.sh"
    exit 0
fi
chmod 0644 "$draft"
mv "$draft" fast_path.o
