// The instructions with which a warp multiplies matrices of 16-bit values in shared memory, from compute capability 8.0
// on.
//
// The values of a product are distributed over the lanes of a warp. For each part of 16 rows and 8 columns, lane 4 g +
// t holds four values: columns 2 t and 2 t + 1 of row g, and the same columns of row g + 8.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace lockstep::ops {

// Loads four matrices of 8 by 8 values. The threads 8 i to 8 i + 7 of the warp pass, as `address`, the addresses of the
// 8 rows of matrix i. Lane 4 g + t gets columns 2 t and 2 t + 1 of row g of each matrix.
__device__ inline void LoadMatrices(uint32_t (&values)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address)
               : "memory");
}

// Loads four matrices like LoadMatrices(), transposed.
__device__ inline void LoadTransposed(uint32_t (&values)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address)
               : "memory");
}

// Computes sums += a b, where a is [16, 16] and b is [16, 8].
template <typename T>
__device__ void MultiplyAdd(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Computes sums += a b, where a is [16, 8] and b is [8, 8].
template <typename T>
__device__ void MultiplyAdd(float (&sums)[4], const uint32_t (&a)[2], uint32_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
  }
}

// The lowest major compute capability with the instructions in this file. Turing GPUs (compute capability 7.5) have
// neither asynchronous copies nor the bfloat16 instructions, so code that launches a kernel with these instructions
// must first check the GPU's major compute capability. Such kernels test kHasMatrixUnit with a plain `if` instead of
// `if constexpr`, so that the compiler does not warn of unused code when it compiles for Turing.
constexpr int kMatrixUnitMajor = 8;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kHasMatrixUnit = false;
#else
constexpr bool kHasMatrixUnit = true;
#endif

}  // namespace lockstep::ops
