// Computes the products with CUTLASS's warp-specialised kernels for Hopper. Some warps load tiles with TMA. Two groups
// of warps use the tensor cores in turn: one group multiplies while the other group computes the epilogue of its tile,
// with the activation. The activation therefore costs almost no time.
//
// The kernels compute the transposed result, [hidden, rows] in column-major order, which has the same layout in memory
// as [rows, hidden] in row-major order. In this form each thread's accumulators belong to few hidden units and many
// rows. The bias of 64 hidden units therefore takes only 2 registers of a thread, and the bias's gradient is summed
// within each thread and then over 4 lanes. The weight is the left operand, and the kernels read it without a copy or a
// transposition.
//
// In a build without code for GPUs (rules/cuda.bzl) there are no kernels, and each call returns a message that says so.
#pragma once

#include "ops/product/feed_forward_product.h"

#ifdef LOCKSTEP_WITHOUT_GPU_CODE

namespace lockstep::ops {

inline constexpr char kNoCode[] = "this program was built without code for GPUs";

template <FloatType kType>
const char* HiddenProducts<kType>::Forward(const HiddenForward&, const HiddenShape&, cudaStream_t) {
  return kNoCode;
}

template <FloatType kType>
const char* HiddenProducts<kType>::Backward(const HiddenBackward&, const HiddenShape&,
                                            cudaStream_t) {
  return kNoCode;
}

}  // namespace lockstep::ops

#else

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/numeric_types.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>
#include <type_traits>

#include "ops/product/activation.cuh"

namespace lockstep::ops {
namespace hidden_product {

namespace collective = cutlass::epilogue::collective;
namespace fusion = cutlass::epilogue::fusion;

using cute::_0;
using cute::_1;
using cute::_2;
using cute::Int;
using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;
using RasterOrder =
    cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90Params::RasterOrderOptions;

constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;
constexpr int kAlignment = 8;  // the number of 16-bit values in 16 bytes

template <FloatType kType>
using ElementOf =
    std::conditional_t<kType == FloatType::kBFloat16, cutlass::bfloat16_t, cutlass::half_t>;

template <FloatType kType>
__device__ ActivationValue GeluAt(float x) {
  if constexpr (kType == FloatType::kBFloat16) {
    return RoughGeluTanh(x);
  } else {
    return ActivationAt<Activation::kGeluTanh>(x);
  }
}

// The functions that CUTLASS's epilogue applies to the values of a thread: gelu, and the gradient times the derivative
// of gelu.
template <FloatType kType>
struct Gelu {
  template <typename Values>
  struct Value {
    __device__ Values operator()(const Values& inner) const {
      Values hidden;
#pragma unroll
      for (int i = 0; i < Values::kElements; ++i) {
        hidden[i] = GeluAt<kType>(inner[i]).y;
      }
      return hidden;
    }
  };

  template <typename Values>
  struct Slope {
    __device__ Values operator()(const Values& d_hidden, const Values& inner) const {
      Values d_inner;
#pragma unroll
      for (int i = 0; i < Values::kElements; ++i) {
        d_inner[i] = d_hidden[i] * GeluAt<kType>(inner[i]).slope;
      }
      return d_inner;
    }
  };
};

// The types of which CUTLASS composes a kernel. A tile has kHidden hidden units.
template <typename Element, int kHidden>
struct Tiling {
  using Tile = cute::Shape<Int<kHidden>, Int<kTileRows>, Int<64>>;
  // Two blocks whose tiles are neighbours along `hidden` form a cluster. The two blocks share the tiles of x or dy that
  // they load.
  using Cluster = cute::Shape<_2, _1, _1>;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
  using Descriptor =
      collective::detail::EpilogueDescriptor<Tile, collective::EpilogueTileAuto,
                                             /*ElementC=*/void, Element, EpilogueSchedule>;
  // The descriptors of the second matrix, `inner`, which the epilogue writes in forward and reads in backward.
  using Written = collective::detail::AuxStoreDescriptor<Descriptor, ColumnMajor, Element>;
  using Read = collective::detail::AuxLoadDescriptor<Descriptor, ColumnMajor, Element>;

  template <typename WeightOrder, typename Fusion>
  struct Kernel {
    using Epilogue = typename collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
        collective::EpilogueTileAuto, float, float, /*ElementC=*/void, ColumnMajor, kAlignment,
        Element, ColumnMajor, kAlignment, EpilogueSchedule, Fusion>::CollectiveOp;
    using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, WeightOrder, kAlignment,
        Element, ColumnMajor, kAlignment, float, Tile, Cluster,
        cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
            sizeof(typename Epilogue::SharedStorage))>,
        cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
    using Gemm = cutlass::gemm::device::GemmUniversalAdapter<cutlass::gemm::kernel::GemmUniversal<
        cute::Shape<int, int, int, int>, Mainloop, Epilogue, cutlass::gemm::PersistentScheduler>>;
  };
};

// The epilogue of forward: computes inner and gelu(inner), and also writes inner if it is wanted.
template <FloatType kType>
struct ForwardFusion {
  using Element = ElementOf<kType>;
  using Tiles = Tiling<Element, kTileHidden>;
  using Bias = fusion::Sm90ColBroadcast<0, typename Tiles::Tile, float, float,
                                        cute::Stride<_1, _0, _0>, 4, /*EnableNullptr=*/false>;
  using Inner = fusion::Sm90EVT<fusion::Sm90Compute<cutlass::plus, float, float, kRound>, Bias,
                                fusion::Sm90AccFetch>;
  using Written = typename Tiles::Written;
  using WrittenInner = fusion::Sm90EVT<
      fusion::Sm90AuxStore<Written::Stages, typename Tiles::Descriptor::EpilogueTile, Element,
                           kRound, typename Written::Stride, typename Written::SmemLayoutAtom,
                           typename Written::CopyOpR2S, kAlignment,
                           /*EnableNullptr=*/true>,
      Inner>;
  using Hidden =
      fusion::Sm90EVT<fusion::Sm90Compute<Gelu<kType>::template Value, Element, float, kRound>,
                      WrittenInner>;
};

// The epilogue of backward: computes d_hidden gelu'(inner), and the sums of this product over a tile's rows. The rows
// of a tile that lie outside the matrix count as zeros.
template <FloatType kType>
struct BackwardFusion {
  using Element = ElementOf<kType>;
  using Tiles = Tiling<Element, kTileHiddenBackward>;
  using Read = typename Tiles::Read;
  using Inner = fusion::Sm90AuxLoad<Read::Stages, typename Tiles::Descriptor::EpilogueTile, Element,
                                    typename Read::Stride, typename Read::SmemLayoutAtom,
                                    typename Read::CopyOpS2R, kAlignment, /*EnableNullptr=*/false>;
  using Product =
      fusion::Sm90EVT<fusion::Sm90Compute<Gelu<kType>::template Slope, float, float, kRound>,
                      fusion::Sm90AccFetch, Inner>;
  using Sums = fusion::Sm90ColReduction<cutlass::plus, cutlass::plus, cutlass::plus, 0,
                                        typename Tiles::Tile, float, float, kRound,
                                        cute::Stride<_1, _0, _0>, 4, /*EnableNullptr=*/false,
                                        /*FinalReduction=*/false, /*VisitCheckOOB=*/false>;
  using DInner = fusion::Sm90EVT<Sums, Product>;
};

// Returns the strides of an [n, m] matrix that has no gaps between its rows or columns.
template <typename Stride>
Stride PackedStride(int64_t n, int64_t m) {
  return cutlass::make_cute_packed_stride(
      Stride{}, cute::make_shape(static_cast<int>(n), static_cast<int>(m), 1));
}

// Enqueues the product with the epilogue's arguments `fused`. Returns null, or CUTLASS's message if CUTLASS fails.
// `order` is the direction in which the blocks proceed over the tiles. `swizzle` is the number of tiles that the blocks
// cover in the other direction at each step, so that the L2 cache still holds operands that other blocks have loaded.
template <typename Gemm, typename Element, typename Fusion>
const char* Enqueue(const void* weight, const void* x, void* to, const Fusion& fused,
                    const HiddenShape& shape, RasterOrder order, int swizzle, cudaStream_t stream) {
  using Kernel = typename Gemm::GemmKernel;
  const int hidden = static_cast<int>(shape.hidden);
  const int rows = static_cast<int>(shape.rows);
  const int width = static_cast<int>(shape.width);
  typename Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = cute::make_shape(hidden, rows, width, 1);
  arguments.mainloop.ptr_A = static_cast<const Element*>(weight);
  arguments.mainloop.dA = PackedStride<typename Kernel::StrideA>(hidden, width);
  arguments.mainloop.ptr_B = static_cast<const Element*>(x);
  arguments.mainloop.dB = PackedStride<typename Kernel::StrideB>(rows, width);
  arguments.epilogue.thread = fused;
  arguments.epilogue.ptr_D = static_cast<Element*>(to);
  arguments.epilogue.dD = PackedStride<typename Kernel::StrideD>(hidden, rows);
  arguments.hw_info.device_id = shape.device;
  arguments.hw_info.sm_count = shape.multiprocessors;
  arguments.scheduler.raster_order = order;
  arguments.scheduler.max_swizzle_size = swizzle;

  cutlass::Status status = Gemm::can_implement(arguments);
  if (status == cutlass::Status::kSuccess && Gemm::get_workspace_size(arguments) != 0) {
    status = cutlass::Status::kErrorWorkspaceNull;
  }
  Gemm gemm;
  if (status == cutlass::Status::kSuccess) status = gemm.initialize(arguments, nullptr, stream);
  if (status == cutlass::Status::kSuccess) status = gemm.run(stream);
  return status == cutlass::Status::kSuccess ? nullptr : cutlass::cutlassGetStatusString(status);
}

}  // namespace hidden_product

template <FloatType kType>
const char* HiddenProducts<kType>::Forward(const HiddenForward& tensors, const HiddenShape& shape,
                                           cudaStream_t stream) {
  using namespace hidden_product;
  using Element = ElementOf<kType>;
  using Fusion = ForwardFusion<kType>;
  using Gemm = typename Fusion::Tiles::template Kernel<ColumnMajor, typename Fusion::Hidden>::Gemm;
  const typename Fusion::Hidden::Arguments fused{
      {{{tensors.bias}, {}, {}},
       {static_cast<Element*>(tensors.inner),
        PackedStride<typename Fusion::Written::Stride>(shape.hidden, shape.rows)}},
      {}};
  return Enqueue<Gemm, Element>(tensors.weight, tensors.x, tensors.hidden, fused, shape,
                                RasterOrder::AlongM, /*swizzle=*/1, stream);
}

template <FloatType kType>
const char* HiddenProducts<kType>::Backward(const HiddenBackward& tensors, const HiddenShape& shape,
                                            cudaStream_t stream) {
  using namespace hidden_product;
  using Element = ElementOf<kType>;
  using Fusion = BackwardFusion<kType>;
  using Gemm = typename Fusion::Tiles::template Kernel<RowMajor, typename Fusion::DInner>::Gemm;
  const typename Fusion::DInner::Arguments fused{
      {{},
       {static_cast<const Element*>(tensors.inner), Element(0),
        PackedStride<typename Fusion::Read::Stride>(shape.hidden, shape.rows)},
       {}},
      {tensors.partials}};
  return Enqueue<Gemm, Element>(tensors.weight, tensors.dy, tensors.d_inner, fused, shape,
                                RasterOrder::AlongN, /*swizzle=*/4, stream);
}

}  // namespace lockstep::ops

#endif  // LOCKSTEP_WITHOUT_GPU_CODE
