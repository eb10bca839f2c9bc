#!/usr/bin/env bash
# Sets up everything the tests need, in .venv, and runs all of them: style, types, tests.
# Tests run in two processes, a file at a time: some measure memory, or wait for other processes.
# Files begin in the order of conftest.py, not those of most tests first.
# The tests of the Perfetto UI need Chromium; as root on Debian it is installed where it is missing,
# elsewhere those tests are skipped unless TLEXPORT_REQUIRE_BROWSER=1.
set -euo pipefail
cd "$(dirname "$0")/.."

# Modules are compiled when they are first imported, and kept; pip would compile all of them.
unset PYTHONDONTWRITEBYTECODE
install_packages() {
    # uv takes a quarter of the time, but knows nothing of an index that pip was told of.
    .venv/bin/pip install --quiet --disable-pip-version-check --no-compile uv &&
        .venv/bin/uv pip install --quiet --python .venv/bin/python --editable '.[test]' ||
        .venv/bin/pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
}
install_browser() {
    if ! command -v chromium chromium-browser google-chrome >/dev/null && [ "$(id -u)" = 0 ] &&
        command -v apt-get >/dev/null; then
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium
    fi
}
install_browser >/dev/null &
browser=$!
python3 -m venv .venv
install_packages

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/lint-imports --no-cache
wait "$browser"
# Types are checked while the first tests wait for other processes.
.venv/bin/mypy &
types=$!
# Assertions are rewritten once, not by both processes that run tests.
.venv/bin/pytest --collect-only --quiet "$@" >/dev/null || true  # what is wrong is told below
PATH="$PWD/.venv/bin:$PATH" .venv/bin/pytest --numprocesses 2 --dist loadfile \
    --no-loadscope-reorder "$@"
wait "$types"
