#!/bin/sh
# Unpacks Debian's nginx into a folder for `make bench`: nothing is installed, no service starts.
set -eu
folder=$1
command -v nginx >/dev/null 2>&1 && exit 0
[ -x "$folder/usr/sbin/nginx" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    echo "no nginx, and this is no Debian: the proxy's benchmark goes without it" >&2
    exit 0
fi
mkdir -p "$folder"
cd "$folder"
if apt-get -qq download nginx && dpkg-deb -x nginx_*.deb . && usr/sbin/nginx -v; then
    exit 0
fi
echo "nginx could not be fetched: the proxy's benchmark goes without it" >&2
