#!/bin/sh
# Runs a command that believes that the machine has N cores, to test what depends on their number:
#     scripts/with_cores.sh 8 cargo test --release -p end-to-end --test whole many::
# The answers of sched_getaffinity(2) are replaced, which our programs and the standard library ask. The command is not
# faster. Fewer cores than the machine has need no such help: taskset -c 0 COMMAND.
# Needs strace 5.11 or newer (apt install strace), and a system that lets a process trace its children.
set -eu
if [ $# -lt 2 ] || ! [ "$1" -ge 1 ] 2>/dev/null || [ "$1" -gt 64 ]; then
    echo "usage: $0 CORES COMMAND…, with 1 to 64 cores" >&2
    exit 2
fi
cores=$1
shift
# The set of processors as the kernel writes it: 64 bits, the first byte has the first 8 processors.
set_of_cores=""
for byte in 0 1 2 3 4 5 6 7; do
    bits=$((cores - 8 * byte))
    if [ "$bits" -lt 0 ]; then bits=0; fi
    if [ "$bits" -gt 8 ]; then bits=8; fi
    set_of_cores=$set_of_cores$(printf %02x $(((1 << bits) - 1)))
done
exec strace --follow-forks --seccomp-bpf --quiet=all --output=/dev/null --trace=sched_getaffinity \
    --inject="sched_getaffinity:retval=8:poke_exit=@arg3=$set_of_cores" -- "$@"
