#!/usr/bin/env bash
# Sets up tlexport in .venv, makes a small profile of two ranks, and says what is slow in it.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check .

.venv/bin/python examples/make_profile.py profile
.venv/bin/tlexport profile
echo "
Next: source .venv/bin/activate, then tlexport YOUR_PROFILE"
