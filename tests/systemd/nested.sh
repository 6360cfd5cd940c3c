#!/usr/bin/env bash
# Runs the user's units under a real systemd --user in a cgroup, mount and cgroup namespace of
# its own: nested.sh [PYTHON [KILLS]]. Needs root and systemd; leaves nothing behind. Prints one
# line per promise.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath -s "${1:-.venv/bin/python}")
kills=${2:-3}

above=/sys/fs/cgroup
if [ -d $above/unified ]; then above=$above/unified; fi
group=$above/mtpd-nested-$$
folder=$(mktemp -d)
mkdir "$group"
trap 'rm -rf "$folder"; find "$group" -depth -type d -exec rmdir {} \;' EXIT

# Entered before the cgroup namespace is made: without it systemd would move every process of
# the root cgroup.
unshare --mount bash -c "
echo \$\$ > '$group/cgroup.procs'
exec unshare --mount --cgroup --pid --fork --kill-child --mount-proc bash tests/systemd/inside.sh '$folder' '$python' '$kills'
"
