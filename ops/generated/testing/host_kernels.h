// RunOnHost(): runs generated kernels on the CPU, so that what the generator wrote can be tested without a GPU. The
// kernels' text is compiled by the system's C++ compiler, and the threads of a block run one after the other, the last
// first, so that the thread that reduces what all have computed comes last.
#pragma once

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test_files.h"
#include "ops/generated/kernel_plan.h"
#include "ops/generated/kernel_prelude.h"

namespace lockstep::ops {

// Stands for KernelPrelude() on the CPU.
inline constexpr char kHostPrelude[] = R"(
#include <cmath>
#include <map>
#include <tuple>
#include <cstring>
#include <algorithm>
using std::max;
using std::min;
#define __global__
#define __device__
#define __restrict__ __restrict
#define __launch_bounds__(threads)
struct Place { int x, y; };
static Place threadIdx, blockIdx;
static int calls;  // of reductions, by this thread
static std::map<std::tuple<int, int, int>, float> parts;
struct Float16 { unsigned short bits; };
struct Bfloat16 { unsigned short bits; };
inline float Wide(float x) { return x; }
inline float Wide(bool x) { return x ? 1.0f : 0.0f; }
inline float Wide(Float16 x) {
  const int exponent = (x.bits >> 10) & 31, mantissa = x.bits & 1023;
  const float value = exponent == 0    ? ldexpf(mantissa, -24)
                      : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                       : ldexpf(mantissa + 1024, exponent - 25);
  return x.bits >> 15 ? -value : value;
}
inline float Wide(Bfloat16 x) { unsigned bits = unsigned(x.bits) << 16; float wide; memcpy(&wide, &bits, 4); return wide; }
inline void Narrow(float x, float& to) { to = x; }
inline void Narrow(float x, Float16& to) {
  const float value = fabsf(x);
  const int exponent = value < ldexpf(1, -14) ? -14 : ilogbf(value);
  to.bits = x != x              ? 0x7e00
            : value >= 65520.0f ? 0x7c00
                                : ((exponent + 14) << 10) + int(rintf(ldexpf(value, 10 - exponent)));
  if (std::signbit(x)) to.bits |= 0x8000;
}
inline void Narrow(float x, Bfloat16& to) {
  unsigned bits; memcpy(&bits, &x, 4);
  to.bits = x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
template <int kCount, typename T> void Load(const T* from, float (&to)[kCount]) {
  for (int i = 0; i < kCount; ++i) to[i] = Wide(from[i]);
}
template <int kCount, typename T> void Store(const float (&from)[kCount], T* to) {
  for (int i = 0; i < kCount; ++i) Narrow(from[i], to[i]);
}
struct Add {
  static float First() { return 0; }
  static float Of(float a, float b) { return a + b; }
};
struct Greatest {
  static float First() { return -INFINITY; }
  static float Of(float a, float b) { return a > b || a != a ? a : b; }
};
template <typename By> float Shared(int place, int i, float value) {
  float& part = parts.try_emplace({calls, place, i}, By::First()).first->second;
  return part = By::Of(part, value);
}
template <typename By, int kThreads> float OverRow(float value) {
  ++calls;
  return Shared<By>(threadIdx.y, 0, value);
}
template <typename By, int kCount, int kX, int kY> void OverColumn(float (&values)[kCount]) {
  ++calls;
  for (int i = 0; i < kCount; ++i) values[i] = Shared<By>(threadIdx.x, i, values[i]);
}
template <typename Kernel> void Run(int gx, int gy, int bx, int by, Kernel kernel) {
  for (blockIdx.y = 0; blockIdx.y < gy; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < gx; ++blockIdx.x) {
      parts.clear();
      for (threadIdx.y = by; threadIdx.y-- > 0;) {
        for (threadIdx.x = bx; threadIdx.x-- > 0;) { calls = 0; kernel(); }
      }
    }
  }
}
)";

// Returns the path of the prelude as a precompiled header, which halves the time of each compilation.
inline const std::string& HostPrelude() {
  static const std::string path = [] {
    const std::string header = NewPath() + ".h";
    WriteFile(header, kHostPrelude + KeptText());
    const std::string command = fmt::format(
        "clang++ -std=c++20 -O1 -w -fPIC -x c++-header '{0}' -o '{0}.pch' >'{0}.log' 2>&1", header);
    EXPECT_EQ(std::system(command.c_str()), 0) << ReadFile(header + ".log");
    return header + ".pch";
  }();
  return path;
}

// Runs the plan's kernels on `tensors`, which are those of the inputs and of the given terms. Returns all tensors of the
// plan. What a kernel does not write stays NaN.
inline std::vector<at::Tensor> RunOnHost(const KernelPlan& plan, std::vector<at::Tensor> tensors) {
  for (const TensorLayout& made : plan.made) {
    const at::ScalarType type = made.type == ElementType::kFloat32   ? at::kFloat
                                : made.type == ElementType::kFloat16 ? at::kHalf
                                                                     : at::kBFloat16;
    tensors.push_back(at::empty_strided(made.sizes, made.strides, type));
    tensors.back().fill_(NAN);
  }
  std::string text;
  std::string calls;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const PlannedKernel& kernel = plan.kernels[i];
    text +=
        fmt::format("#define {} kernel{}\n{}#undef {}\n", kKernelName, i, kernel.text, kKernelName);
    std::string types, arguments;
    for (const int tensor : kernel.tensors) {
      types += types.empty() ? "void*" : ", void*";
      arguments += fmt::format("{}p[{}]", arguments.empty() ? "" : ", ", tensor);
    }
    calls += fmt::format("  Run({}, {}, {}, {}, [&] {{ ((void (*)({}))(void*)kernel{})({}); }});\n",
                         kernel.grid_x, kernel.grid_y, kernel.block_x, kernel.block_y, types, i,
                         arguments);
  }
  text += fmt::format("extern \"C\" void RunAll(void** p) {{\n{}}}\n", calls);
  const std::string path = NewPath();
  WriteFile(path + ".cc", text);
  const std::string command = fmt::format(
      "clang++ -std=c++20 -O1 -w -shared -fPIC -include-pch '{1}' '{0}.cc' -o '{0}.so' >'{0}.log' "
      "2>&1",
      path, HostPrelude());
  if (std::system(command.c_str()) != 0) {
    ADD_FAILURE() << ReadFile(path + ".log") << text;
    return tensors;
  }
  void* const library = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto run = reinterpret_cast<void (*)(void**)>(dlsym(library, "RunAll"));
  std::vector<void*> pointers;
  for (const at::Tensor& tensor : tensors) {
    pointers.push_back(tensor.defined() ? tensor.data_ptr() : nullptr);
  }
  run(pointers.data());
  dlclose(library);
  return tensors;
}

}  // namespace lockstep::ops
