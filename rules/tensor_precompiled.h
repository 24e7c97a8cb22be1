// The headers of LibTorch that files read which compute with tensors; compiled once, see rules/precompiled.bzl.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
