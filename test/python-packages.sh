#!/bin/sh
# Installs the Python packages that tests check answers with, and the installer uv, into a folder of their own. Without them those tests say so and are left out.
set -eu
cd "$(dirname "$0")/.."
folder=node_modules/.cache/fngw-python
wanted='prometheus-client==0.22.1 uv==0.13.9 debugpy==1.8.22'
[ "$(cat "$folder/.installed" 2>/dev/null)" != "$wanted" ] || exit 0
rm -rf "$folder"
# shellcheck disable=SC2086
if PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" $wanted; then
  echo "$wanted" >"$folder/.installed"
else
  echo "left out, because pip cannot install it: $wanted" >&2
fi
