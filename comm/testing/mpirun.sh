#!/bin/sh
# mpirun.sh N PROGRAM [ARG ...]: runs PROGRAM as N ranks on this machine, also in a container, as root,
# and with more ranks than cores.
set -eu
ranks=$1
shift
# Bazel sets no HOME, without which the mpirun of Open MPI 5 does not start.
export HOME="${HOME-/}"
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Nothing is started on other machines, so no ssh is needed. The settings are variables, because the mpirun of Open MPI 5
# refuses some of the options of 4.1.
export OMPI_MCA_plm_rsh_agent= OMPI_MCA_orte_execute_quiet=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
exec mpirun --bind-to none --oversubscribe -n "$ranks" "$@"
