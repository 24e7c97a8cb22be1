#!/usr/bin/env bash
# Guess: PyPI's wheel nvidia-cuda-nvcc-cu12 has for CUDA 12 what nvidia-cuda-nvcc has for CUDA 13: the compiler nvcc, so
# that pip alone sets up a build for either.
# Fact: the wheel for CUDA 12 has ptxas, libnvvm and headers, which is what Triton and JAX need, but neither nvcc nor the
# programs that nvcc calls (cudafe++, cicc, fatbinary). The wheel for CUDA 13 has them, cicc in its nvidia-nvvm.
# Seen with nvidia-cuda-nvcc-cu12 12.8.93 and nvidia-cuda-nvcc 13.0.88:
#   as found: programs for CUDA 12: ptxas; for CUDA 13: bin2c cudafe++ fatbinary nvcc nvlink ptxas
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-deps --target cuda12 nvidia-cuda-nvcc-cu12==12.8.93
venv/bin/pip install -q --no-deps --target cuda13 nvidia-cuda-nvcc==13.0.88
programs() {
  find "$1" -path '*/bin/*' -type f ! -name '*.*' ! -name '__*' -printf '%f\n' | sort | paste -sd ' '
}
found="programs for CUDA 12: $(programs cuda12); for CUDA 13: $(programs cuda13)"
if [ "$found" = "programs for CUDA 12: ptxas; for CUDA 13: bin2c cudafe++ fatbinary nvcc nvlink ptxas" ]; then
  echo "as found: $found"
else
  echo "CHANGED: $found"
  exit 1
fi
