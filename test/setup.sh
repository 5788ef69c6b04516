#!/bin/sh
# Installs what the tests need beside npm packages: interpreters of every runtime. Debian and Ubuntu only; elsewhere it says what is missing.
set -eu
missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need python3 python3
need php php-cli
[ -n "$missing" ] || exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  echo "installing$missing"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/tmp/fngw-setup.$$ 2>&1 || {
    tail -n 20 /tmp/fngw-setup.$$ >&2
    rm -f /tmp/fngw-setup.$$
    exit 1
  }
  rm -f /tmp/fngw-setup.$$
else
  echo "the tests need:$missing (Debian package names); install them and run again" >&2
  exit 1
fi
