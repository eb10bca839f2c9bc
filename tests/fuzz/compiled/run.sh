#!/usr/bin/env bash
# Fuzzes each compiled module without Python, under the address and undefined-behaviour sanitizers:
#     tests/fuzz/compiled/run.sh [RUNS of each, 1000000 if not given] [CORPUS directory]
# With clang libFuzzer looks for inputs that reach more; with another compiler they are random.
# rows.c needs the header of SQLite, and is left out without it.
set -euo pipefail
runs=${1:-1000000}
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
corpus=${2:-$build/corpus}
checks=(-O1 -g -fno-sanitize-recover=undefined -w "-I$here")
for name in scanner nesting wire rows; do
    mkdir -p "$corpus/$name"
    libraries=() options=()
    if [ "$name" = rows ]; then
        libraries=(-lsqlite3)
        if ! echo '#include <sqlite3ext.h>' | "${CC:-cc}" -E - >/dev/null 2>&1; then
            echo "rows: left out, as sqlite3ext.h is not there"
            continue
        fi
    fi
    if [ "$name" = scanner ]; then
        options=("-dict=$here/scanner.dict")
        # The first byte says what is asked for, the second where the text is cut.
        for kind in 043 071 072 073 074; do
            { printf "\\$kind\\377" && cat "$here/events.txt"; } >"$corpus/$name/seed$kind"
        done
    fi
    if command -v clang >/dev/null; then
        clang -fsanitize=fuzzer,address,undefined "${checks[@]}" "$here/$name.c" \
            -o "$build/$name" "${libraries[@]}"
        run=("$build/$name" "-runs=$runs" -max_len=4096 -rss_limit_mb=2000 -timeout=10
            "-artifact_prefix=$corpus/$name-" "${options[@]}" "$corpus/$name")
    else
        "${CC:-cc}" -fsanitize=address,undefined "${checks[@]}" "$here/$name.c" "$here/driver.c" \
            -o "$build/$name" "${libraries[@]}"
        run=("$build/$name" "$runs" "$corpus/$name")
    fi
    "${run[@]}" 2>"$build/log" || { tail -40 "$build/log"; exit 1; }
    echo "$name: $(grep -E '^Done' "$build/log")"
done
