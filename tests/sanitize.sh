#!/usr/bin/env bash
# Runs the tests of the compiled modules on a copy that is compiled with the sanitizers of GCC.
# SCANNER_EXAMPLES and TLEXPORT_EXAMPLES are how many files and columns each test makes up. PYTHON
# has the packages of the tests. A module that is left out is named: _rows.c needs sqlite3ext.h.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -rp timeline tests examples pyproject.toml "$copy"  # with the times that compiled ones name
cd "$copy"
find timeline -name '*.so' -delete
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
for source in $(find timeline -name '_*.c' | sort); do
    if [ "${source##*/}" = _rows.c ] &&
        ! echo '#include <sqlite3ext.h>' | gcc -E - >/dev/null 2>&1; then
        echo "$source: left out, as sqlite3ext.h is not there"
        continue
    fi
    gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -shared -fPIC \
        -Wall -Wextra -Wno-unused-parameter -DPy_LIMITED_API=0x030A0000 "-I$include" \
        "$source" -o "${source%.c}.abi3.so"
    echo "$source: compiled"
done

# What Hypothesis works out once about characters takes it 20 seconds with them, and 3 without.
"$python" -c 'from hypothesis import find, strategies; find(strategies.text(), bool)'

# Python itself is not compiled with them, and keeps some memory until it ends. What they find is
# written to files: pytest takes what is printed, and is ended with it.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    ASAN_OPTIONS="detect_leaks=0:log_path=$copy/found" \
    UBSAN_OPTIONS="print_stacktrace=1:log_path=$copy/found" \
    PYTHONMALLOC=malloc PYTHONPATH=$copy \
    "$python" -m pytest -q -p no:cacheprovider tests/sources/decoders/test_scanner.py \
    tests/sources/decoders/test_sqlite_rows.py \
    tests/encoders/test_protobuf_rows.py \
    tests/columns/test_nesting.py tests/analysis/gains/test_compiled.py "$@" || {
    head -n 60 "$copy"/found.* 2>/dev/null
    exit 1
}
