#!/usr/bin/env bash
# Checks that ./lockstep refuses wrong options of `bundle` and `test` with one line and status 2, before it sets anything up.
set -euo pipefail

root=$(cd "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd)

# refuses TEXT COMMAND OPTION ...: fails unless the only line that `./lockstep COMMAND OPTION ...` prints has TEXT.
refuses() {
  local text=$1 said status=0
  shift
  said=$("$root/lockstep" "$@" 2>&1) || status=$?
  [[ $status == 2 && $said == "lockstep: error: "*"$text"* && $said != *$'\n'* ]] && return
  echo "./lockstep $*: status $status, expected 2 and '$text': $said"
  exit 1
}

refuses '--torch 9.9: 9.9 is none of 2.11 ' bundle --torch 9.9 lockstep.tar.gz
refuses '--torch 2.11,9.9: 9.9 is none of 2.11 ' bundle --torch=2.11,9.9 lockstep.tar.gz
refuses '--torch : is no list of versions' bundle --torch= lockstep.tar.gz
refuses '--torch 2.11,,2.15: is no list of versions' bundle --torch 2.11,,2.15 lockstep.tar.gz
refuses '--torch needs a value' bundle lockstep.tar.gz --torch
refuses '--architectures 5x: is neither all, none nor a list' bundle --architectures 5x lockstep.tar.gz
refuses '--architectures needs a value' bundle lockstep.tar.gz --architectures
refuses '--torch 9.9: it is none of 2.11 ' test --torch 9.9
refuses '--torch needs a value' test --torch
