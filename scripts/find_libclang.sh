#!/usr/bin/env bash
# Prints the folder of libclang, which the bindings to NVIDIA's builder for RTX GPUs need while they are compiled; or
# prints to stderr what is missing, with exit code 1. A release before 22 is needed, with its headers: Debian's
# libclang-dev has both.
set -euo pipefail

# As the clang-sys crate looks for it: what the user names, then the usual folders, the newest first.
folders=("${LIBCLANG_PATH:-}")
while IFS= read -r folder; do folders+=("$folder"); done < <(
  ls -d /usr/lib/llvm-*/lib /usr/lib64/llvm*/lib /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/local/lib 2>/dev/null |
    sort -rV
)
for folder in "${folders[@]}"; do
  [ -n "$folder" ] || continue
  for library in "$folder"/libclang.so* "$folder"/libclang-[0-9]*.so*; do
    [ -e "$library" ] || continue
    release=$(basename "$(readlink -f "$library")" | grep -oE '[0-9]+' | head -n 1 || true)
    # A library without its headers cannot even parse stddef.h.
    headers=$(ls -d "$folder"/clang/"${release:-none}"*/include/stddef.h \
      /usr/lib/clang/"${release:-none}"*/include/stddef.h /usr/lib64/clang/"${release:-none}"*/include/stddef.h 2>/dev/null | head -n 1 || true)
    if [ -n "$release" ] && [ "$release" -lt 22 ] && [ -n "$headers" ]; then
      echo "$folder"
      exit 0
    fi
  done
done
echo "no libclang before release 22 with its headers; on Debian and Ubuntu: apt install libclang-dev" >&2
exit 1
