#!/bin/sh
# mpirun.sh N PROGRAM [ARG ...]: runs PROGRAM as N ranks on this machine, also in a container, as root,
# and with more ranks than cores.
set -eu
ranks=$1
shift
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Nothing is started on other machines, so no ssh is needed.
export OMPI_MCA_plm_rsh_agent=
exec mpirun --bind-to none --oversubscribe -quiet --mca pml ob1 --mca btl self,vader \
  --mca btl_vader_single_copy_mechanism none -n "$ranks" "$@"
