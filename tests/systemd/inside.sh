#!/usr/bin/env bash
# The inside of nested.sh: one promise after the other.
set -euo pipefail
folder=$1 python=$2 kills=$3
mtpd=$(dirname "$python")/mtpd

mount --make-rprivate /
umount --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user/0
chmod 700 /run/user/0
export HOME=$folder XDG_RUNTIME_DIR=/run/user/0 XDG_CONFIG_HOME=$folder/config
unset XDG_STATE_HOME XDG_CACHE_HOME NOTIFY_SOCKET

port=$("$python" -c 'from mtpd.listen import free_port; print(free_port())')
mkdir -p "$XDG_CONFIG_HOME/mtpd"
cat > "$XDG_CONFIG_HOME/mtpd/mtpd.toml" <<CONFIG
[server]
listen = "127.0.0.1:$port"
[engine]
binary = "embedded"
threads = 1
[pools.default]
members = ["tiny-chained"]
CONFIG
"$mtpd" install-units --user > /dev/null
drop_ins=$XDG_CONFIG_HOME/systemd/user/mtpd.service.d
mkdir -p "$drop_ins"
# No journal runs here: what would be in it is in a file.
cat > "$drop_ins/test.conf" <<UNIT
[Service]
WorkingDirectory=$PWD
ExecStart=
ExecStart=$python -m tests.fakes.counted $folder/counts serve --config %E/mtpd/mtpd.toml
WatchdogSec=4s
TimeoutAbortSec=4s
RestartSec=5s
StandardError=append:$folder/journal
UNIT

/lib/systemd/systemd --user --show-status=no > "$folder/log" 2>&1 &
manager=$!
trap 'echo "FAILED at line $LINENO"; tail -20 "$folder/log"' ERR
trap 'kill -TERM $manager; wait $manager || true' EXIT
shown() { systemctl --user show mtpd.service --value --property "$1"; }
until_is() {  # PROPERTY PATTERN: wait until it matches, for a minute
    for _ in $(seq 300); do
        if [[ $(shown "$1") == $2 ]]; then return; fi
        sleep 0.2
    done
    echo "FAILED: $1 is '$(shown "$1")' and not '$2'"
    tail -40 "$folder/log"
    exit 1
}
promise() { echo "ok: $1"; }

for _ in $(seq 100); do [ -S /run/user/0/systemd/private ] && break; sleep 0.1; done
systemctl --user start mtpd.socket
[ "$(shown ActiveState)" = inactive ]
curl -sf --max-time 60 "http://127.0.0.1:$port/health" > /dev/null
until_is ActiveState active
promise "the first connection starts the daemon and is answered"

until_is StatusText 'no model is loaded'
curl -sf --max-time 60 "http://127.0.0.1:$port/completion" -H 'Content-Type: application/json' \
    -d '{"model": "tiny-chained", "prompt": "x", "n_predict": 4}' > /dev/null
until_is StatusText 'tiny-chained at depth *, host'
promise "systemctl status shows the model, its depth and where it lies"

main=$(shown MainPID)
systemctl --user reload mtpd.service
until_is ActiveState active
[ "$(shown MainPID)" = "$main" ]
promise "a reload leaves the daemon running"

engine=$(pgrep -P "$main" | head -1)
kill -KILL "$main"
curl -sf --retry 0 --max-time 60 "http://127.0.0.1:$port/health" > /dev/null
until_is NRestarts 1
[ ! -e "/proc/$engine" ]
promise "a killed daemon is started again, its engine is gone, and nobody was refused"

until_is SubState running
kill -STOP "$(shown MainPID)"
until_is Result watchdog
until_is NRestarts 2
promise "a daemon that gives no sign of life is replaced"

until_is SubState running
kill -USR2 "$(shown MainPID)"
until_is NRestarts 3
grep -q 'Fatal Python error: Aborted' "$folder/journal"
grep -q 'Current thread .* (most recent call first)' "$folder/journal"
grep -q '^Thread 0x' "$folder/journal"
grep -q 'counted.py", line [0-9]* in stand_still' "$folder/journal"
promise "one whose loop stands still leaves the stacks of all its threads in the journal"

until_is SubState running
sleep 10  # longer than WatchdogSec: one that works is left alone
[ "$(shown NRestarts)" = 3 ]
promise "a daemon that works gives its signs of life"

systemctl --user stop mtpd.service 2> /dev/null  # its socket goes on, says systemd
[ "$(shown Result)" = success ]
promise "it stops as told"

"$python" - "$folder/llama-server" <<'ENGINE'
import sys
from pathlib import Path
from tests.fakes.binary import fake_binary
from tests.fakes.script import Script
fake_binary(Path(sys.argv[1]), Script(ignore_sigterm=True))
ENGINE
cp "$XDG_CONFIG_HOME/mtpd/mtpd.toml" "$folder/real.toml"
sed -i "s|\"embedded\"|\"$folder/llama-server\"|" "$XDG_CONFIG_HOME/mtpd/mtpd.toml"
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n' > "$drop_ins/zz-often.conf"
systemctl --user daemon-reload
systemctl --user start mtpd.service
within() { find "/sys/fs/cgroup$(shown ControlGroup)" -name cgroup.procs -exec cat {} +; }
groups() { find "/sys/fs/cgroup$(shown ControlGroup)" -mindepth 1 -type d; }
ask() {
    curl -sf --max-time 60 "http://127.0.0.1:$port/completion" -H 'Content-Type: application/json' \
        -d '{"model": "tiny-chained", "prompt": "x", "n_predict": 4}' > /dev/null
}
# What forks away cleans its environment, so that nothing but the group tells whose it is.
mv "$folder/llama-server" "$folder/real-server"
printf '#!/bin/sh\n[ "$1" = --help ] || env -i setsid %s 600 > /dev/null 2>&1 &\nexec %s "$@"\n' \
    "$(command -v sleep)" "$folder/real-server" > "$folder/llama-server"
chmod +x "$folder/llama-server"
ask
[ "$(groups | wc -l)" = 1 ]
inside=$(cat "$(groups)/cgroup.procs")
[ "$(wc -w <<< "$inside")" = 2 ]
[ "$(wc -w <<< "$(within)")" = 3 ]
"$(dirname "$python")/mtpctl" unload > /dev/null
for pid in $inside; do [ ! -e "/proc/$pid" ]; done
[ -z "$(groups)" ]
promise "all that an engine started is gone after its stop, whatever it did to get away"

slowest=0
for kill in $(seq "$kills"); do
    ask
    main=$(shown MainPID)
    before=$(within)
    [ "$(wc -w <<< "$before")" -ge 2 ]
    from=$(date +%s%3N)
    kill -KILL "$main"
    for _ in $(seq 3000); do
        now=$(shown MainPID)
        if [[ $now != 0 && $now != "$main" && $(shown SubState) == running ]]; then break; fi
        sleep 0.02
    done
    took=$(($(date +%s%3N) - from))
    if ((took > slowest)); then slowest=$took; fi
    for pid in $before; do [ ! -e "/proc/$pid" ]; done
done
[ "$(shown NRestarts)" = "$kills" ]
promise "$kills killed daemons left no engine that ignores SIGTERM; ready again in $slowest ms at most"

printf '[Service]\nRestartSec=100ms\n' > "$drop_ins/zz-often.conf"
systemctl --user daemon-reload
systemctl --user stop mtpd.socket mtpd.service 2> /dev/null
systemctl --user reset-failed
systemctl --user start mtpd.service
for _ in $(seq 20); do
    main=$(shown MainPID)
    if [ "$main" = 0 ]; then break; fi
    kill -KILL "$main" 2> /dev/null || true
    for _ in $(seq 300); do
        if [[ $(shown ActiveState) == failed ]]; then break 2; fi
        now=$(shown MainPID)
        if [[ $now != 0 && $now != "$main" ]]; then break; fi
        sleep 0.1
    done
done
until_is ActiveState failed
[ "$(shown NRestarts)" = 6 ]
promise "one that always dies is started six times and then given up"

systemctl --user reset-failed
cp "$folder/real.toml" "$XDG_CONFIG_HOME/mtpd/mtpd.toml"
echo '[servr]' >> "$XDG_CONFIG_HOME/mtpd/mtpd.toml"
systemctl --user start mtpd.service 2> /dev/null && exit 1
until_is ActiveState failed
[ "$(shown ExecMainStatus)" = 78 ]
promise "a configuration that cannot be used is not tried again"
