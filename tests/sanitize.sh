#!/usr/bin/env bash
# Runs the tests of the compiled modules on a copy that is compiled with the sanitizers of GCC.
# SCANNER_EXAMPLES is how many files each test makes up. The packages of the tests must be there.
set -euo pipefail
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r timeline tests examples pyproject.toml "$copy"
cd "$copy"
include=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
for source in $(find timeline -name '_*.c'); do
    gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -shared -fPIC \
        -Wall -Wextra -Wno-unused-parameter -DPy_LIMITED_API=0x030A0000 "-I$include" \
        "$source" -o "${source%.c}.abi3.so"
done

# Python itself is not compiled with them, and keeps some memory until it ends.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=$copy \
    python3 -m pytest -q tests/sources/decoders/test_scanner.py \
    tests/sources/decoders/test_sqlite_rows.py tests/encoders/test_protobuf_rows.py \
    tests/columns/test_nesting.py tests/fitting/test_coarsen.py "$@"
