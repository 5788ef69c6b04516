#!/bin/sh
# Copies programs and Debian packages, with the shared libraries they need, into a folder that becomes the root of an image:
# what is not named here (shell, package manager, manuals) is not in it. Page: spec/image.md.
# Usage: sh build/image-root.sh ROOT [PATH | package]...   (ROOT and PATH from / on)
#   PATH     a file or folder of this system, with all that is in it
#   package  an installed Debian package: its files but documentation, and what scanners read of its version
set -eu
root=$1
shift
# `cp --parents` looks for the folders of a full path below the current one.
cd /
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/var/lib/dpkg/status.d"
for name in bin sbin lib lib64; do [ -e "$root/$name" ] || ln -s "usr/$name" "$root/$name"; done

copy() {
  cp -a --parents "$1" "$root"
}

# Which version of which package is in the image, in the place where scanners look in images without a package manager.
note_package() {
  dpkg-query -s "$1" >"$root/var/lib/dpkg/status.d/${1%%:*}"
}

for one in "$@"; do
  case $one in
    /*) copy "$one" ;;
    *)
      note_package "$one"
      dpkg -L "$one" | while read -r path; do
        case $path in /usr/share/doc* | /usr/share/man* | /usr/share/lintian* | /usr/share/locale*) continue ;; esac
        if [ -L "$path" ] || [ -f "$path" ]; then copy "$path"; fi
      done
      ;;
  esac
done

# Libraries that programs and libraries ask for, each with the link it is asked for by.
find "$root" -type f \( -perm -100 -o -name '*.so*' \) | while read -r file; do
  ldd "$file" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld[^ ]*\) .*/\1/p'
done | sort -u | while read -r library; do
  [ -e "$root$library" ] || {
    copy "$library"
    copy "$(readlink -f "$library")"
    owner=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null || dpkg -S "$(readlink -f "$library" | sed 's,^/usr,,')" 2>/dev/null || echo :)
    owner=${owner%%:*}
    [ -z "$owner" ] || note_package "$owner"
  }
done

# Nobody becomes somebody else in the image.
find "$root" -type f -perm /6000 -exec chmod a-s {} +
