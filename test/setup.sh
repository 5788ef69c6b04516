#!/bin/sh
# Installs what the tests need beside npm packages: interpreters of every runtime. Debian and Ubuntu only; elsewhere it says what is missing.
set -eu
needed=
wanted=
command -v python3 >/dev/null 2>&1 || needed="$needed python3"
python3 -m pip --version >/dev/null 2>&1 || needed="$needed python3-pip"
command -v php >/dev/null 2>&1 || needed="$needed php-cli"
# Tests of Composer, PHPUnit and of the experimental runtimes say so and are left out when these are missing.
command -v composer >/dev/null 2>&1 || wanted="$wanted composer"
command -v phpunit >/dev/null 2>&1 || wanted="$wanted phpunit"
go version >/dev/null 2>&1 || wanted="$wanted golang-go"
cargo -V >/dev/null 2>&1 || wanted="$wanted cargo"
command -v redis-server >/dev/null 2>&1 || wanted="$wanted redis-server"
# Recipes of the documentation leave out a language without its driver.
[ -d /usr/share/php/libphp-phpmailer ] || wanted="$wanted libphp-phpmailer"
php -m 2>/dev/null | grep -q '^pdo_pgsql$' || wanted="$wanted php-pgsql"
php -m 2>/dev/null | grep -q '^pdo_sqlite$' || wanted="$wanted php-sqlite3"
php -m 2>/dev/null | grep -q '^gd$' || wanted="$wanted php-gd"
[ -d /usr/lib/postgresql ] || wanted="$wanted postgresql"
# Configurations of the documentation are loaded into their programs.
command -v nginx >/dev/null 2>&1 || wanted="$wanted nginx"
command -v caddy >/dev/null 2>&1 || wanted="$wanted caddy"
command -v prometheus >/dev/null 2>&1 || wanted="$wanted prometheus"
# Tests of pages are left out without a browser, and say so.
[ -n "${FNGW_TEST_CHROMIUM:-}" ] || command -v chromium-headless-shell >/dev/null 2>&1 || command -v chromium >/dev/null 2>&1 ||
  command -v google-chrome >/dev/null 2>&1 || wanted="$wanted chromium"
[ -n "$needed$wanted" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
  [ -z "$wanted" ] || echo "left out, because they are not installed (Debian package names):$wanted" >&2
  [ -n "$needed" ] || exit 0
  echo "the tests need:$needed (Debian package names); install them and run again" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
install() {
  echo "installing:$*"
  # shellcheck disable=SC2068
  apt-get install -y -qq --no-install-recommends $@ >"$log" 2>&1 && return
  tail -n 20 "$log" >&2
  return 1
}
# Debian starts a server when its package is installed, unless this program says no.
policy=/usr/sbin/policy-rc.d
if [ -e "$policy" ]; then policy=; else printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"; fi
trap 'rm -f "$log" $policy' EXIT
apt-get update -qq >"$log" 2>&1 || tail -n 20 "$log" >&2
better() {
  case $1 in
    # The cargo of Debian 12 fetches the index of all crates first, which takes minutes; this one beside it is new.
    cargo) echo cargo-web ;;
    # The same browser without windows takes a third less processor time.
    chromium) echo chromium-headless-shell ;;
  esac
}
# shellcheck disable=SC2086
[ -z "$needed" ] || install $needed
for one in $wanted; do
  other=$(better "$one")
  if [ -n "$other" ] && apt-cache show "$other" >/dev/null 2>&1; then one=$other; fi
  install "$one" || echo "left out, because it cannot be installed: $one" >&2
done
