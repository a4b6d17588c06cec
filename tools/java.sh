#!/bin/sh
# Makes sure that there is a Java for Spark: `tools/java.sh PYTHON`, where PYTHON has penstock.
# Installs one with apt where that is possible, else says how to get one and fails.
set -u
python=$1

find_java() {
    "$python" -c 'import sys
from penstock.config.java import JavaMissing, find_java
try:
    find_java()
except JavaMissing as missing:
    sys.exit(str(missing))'
}

if reason=$(find_java 2>&1); then
    exit 0
fi

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root='sudo -n'
else
    as_root=no
fi

if ! command -v apt-get >/dev/null || [ "$as_root" = no ]; then
    echo "$reason" >&2
    exit 1
fi

echo 'Spark needs Java 17 or newer, and this machine has none: installing it with apt-get.'
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get -qq update
# Not every release has every one of them; what counts is what is found afterwards.
for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    if $as_root apt-get -qq install -y --no-install-recommends "$package" >/dev/null && find_java 2>/dev/null
    then
        echo "Installed $package."
        exit 0
    fi
done
find_java
exit 1
