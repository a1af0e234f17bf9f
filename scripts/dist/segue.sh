#!/bin/sh
# Starts Segue with the libraries beside it, wherever this folder lies. Says what the host lacks.
root=$(dirname "$(dirname "$(readlink -f "$0")")")
program="$root/libexec/segue"

# What the loader would load, without running anything.
# Its own libraries come first: a module of the site may have put others on this path.
export LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
missing=$(LD_TRACE_LOADED_OBJECTS=1 "$program" 2>&1 | grep -E '=> not found|version .* not found|error while loading' | head -n 1)
[ -n "$missing" ] || exec "$program" "$@"

echo "segue: error: a library cannot be loaded:$(printf '%s' "$missing" | tr '\t' ' ')" >&2
case $missing in
*libmpi*)
    echo "hint: install Open MPI 4 or 5: apt-get install openmpi-bin on Debian and Ubuntu," \
        "dnf install openmpi and module load mpi/openmpi-x86_64 on RHEL and Fedora" >&2
    ;;
*) echo "hint: $root/BUILD.json names the libraries and versions that the host needs" >&2 ;;
esac
exit 69
