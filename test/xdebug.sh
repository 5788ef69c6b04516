#!/bin/sh
# Unpacks Xdebug for tests into a separate folder: installed for the whole machine it would slow every PHP process. Debian and Ubuntu only; without it those tests say so and are left out.
set -eu
cd "$(dirname "$0")/.."
folder=node_modules/.cache/fngw-xdebug
command -v php >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 || exit 0
version=$(php -r 'echo PHP_MAJOR_VERSION . "." . PHP_MINOR_VERSION;')
[ ! -f "$folder/$version.so" ] || exit 0
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
if (cd "$made" && apt-get download "php$version-xdebug" && dpkg -x ./*.deb .) >"$made/log" 2>&1; then
  mkdir -p "$folder"
  cp "$made"/usr/lib/php/*/xdebug.so "$folder/$version.so"
else
  echo "left out, because it cannot be downloaded: php$version-xdebug" >&2
fi
