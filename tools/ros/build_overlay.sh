#!/usr/bin/env bash
# build_overlay.sh VENV PREFIX PACKAGE_DIR...
#
# Builds ROS 2 interface packages into PREFIX, on top of the environment that fix_prefix.sh made.
set -euo pipefail

venv=$(readlink -f "$1")
prefix=$(readlink -m "$2")
shift 2

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

# Only these prefixes: what else the caller has sourced must not leak into the overlay.
export PATH=$venv/bin:$PATH LD_LIBRARY_PATH=$venv/lib _ROS_WHEELS_BOOTSTRAP_COMPLETE=1
export AMENT_PREFIX_PATH=$prefix:$venv
unset CMAKE_PREFIX_PATH PYTHONPATH

for package in "$@"; do
  log=$build/log
  if ! {
    cmake -S "$package" -B "$build/tree" -G Ninja \
      -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
      "-DCMAKE_PREFIX_PATH=$prefix;$venv" "-DCMAKE_INSTALL_PREFIX=$prefix" \
      "-DPython3_EXECUTABLE=$venv/bin/python3" &&
      cmake --build "$build/tree" --target install
  } >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "build_overlay.sh: $package does not build" >&2
    exit 1
  fi
  rm -rf "$build/tree"
done
