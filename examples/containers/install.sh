#!/bin/sh
# Installs Lockstep into a container image of Debian 12. The Dockerfile and lockstep.def beside this script run it.
#
# The wheel lockstep-*.whl lies beside this script, too: `./lockstep bundle --wheel examples/containers` writes it. Of
# the wheel the image gets the program and the digits, and not the wheel's Open MPI, which lacks the parts that start
# ranks on other machines. Of torch's wheels it gets the shared libraries alone, and no Python.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
place=/opt/lockstep
export DEBIAN_FRONTEND=noninteractive

apt-get update
apt-get install -y --no-install-recommends openmpi-bin openssh-client openssh-server \
  libevent-extra-2.1-7 libfmt9 libhwy1 libjpeg62-turbo libminizip1 libpcre2-8-0 libpng16-16 libprotobuf32 libwebp7
# Containers made of the image would all have the same key. Pods make their own (lockstep kubernetes).
rm -f /etc/ssh/ssh_host_*
mkdir -p /run/sshd

# These are the libraries that docs/notebooks.md names.
apt-get install -y --no-install-recommends python3-pip
python3 -m pip install --no-deps --no-cache-dir --no-compile --target "$place/site" \
  torch==2.11.0 nvidia-cublas==13.1.0.3 nvidia-cuda-cupti==13.0.85 nvidia-cuda-nvrtc==13.0.88 \
  nvidia-cuda-runtime==13.0.96 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 nvidia-cufile==1.15.1.6 \
  nvidia-curand==10.4.0.35 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 \
  nvidia-nvjitlink==13.0.88 nvidia-nvjpeg==13.0.4.44 nvidia-nvshmem-cu13==3.4.5
find "$place/site" -type f ! -name '*.so' ! -name '*.so.*' ! -path '*.dist-info/*' -delete
find "$place/site" -type d -empty -delete

python3 -m zipfile -e "$here"/lockstep-*.whl /tmp/wheel
mkdir "$place/bin"
cp /tmp/wheel/lockstep/_program/bin/torch-2.11/lockstep "$place/bin/lockstep"
cp -r /tmp/wheel/lockstep/_program/examples "$place/examples"
chmod -R a+rX "$place"
chmod a+x "$place/bin/lockstep"
ln -s "$place/bin/lockstep" /usr/local/bin/lockstep
rm -r /tmp/wheel

# ssh does not hand environment variables on, so the libraries are found without LD_LIBRARY_PATH.
find "$place/site" -name '*.so*' -printf '%h\n' | sort -u >/etc/ld.so.conf.d/lockstep.conf
ldconfig

apt-get purge -y --auto-remove python3-pip
rm -rf /var/lib/apt/lists/*
lockstep version
