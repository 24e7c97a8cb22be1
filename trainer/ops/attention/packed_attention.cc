#include "trainer/ops/attention/packed_attention.h"

#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <cudnn_frontend.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::ops {
namespace {

namespace graph = cudnn_frontend::graph;
using cudnn_frontend::DataType_t;
using Tensor = std::shared_ptr<graph::Tensor_attributes>;

enum class Direction { kForward, kBackward };

// The tensors' names in a graph.
enum Id : int64_t { kQuery = 1, kKey, kValue, kOut, kLogSums, kDOut, kDQuery, kDKey, kDValue };

using Pointers = std::unordered_map<int64_t, void*>;

// What attention_kernel.h calls values of a head lie together; a tensor is [count, heads, tokens, size].
struct Layout {
  explicit Layout(const AttentionShape& shape)
      : sizes{shape.count, shape.heads, shape.tokens, shape.size},
        packed{shape.tokens * 3 * shape.heads * shape.size, shape.size,
               3 * shape.heads * shape.size, 1},
        alone{shape.tokens * shape.heads * shape.size, shape.size, shape.heads * shape.size, 1},
        log_sum_sizes{shape.count, shape.heads, shape.tokens, 1},
        log_sum_strides{shape.heads * shape.tokens, shape.tokens, 1, 1} {}

  std::vector<int64_t> sizes, packed, alone, log_sum_sizes, log_sum_strides;
};

class Plan {
 public:
  Plan(const PackedAttention& attention, Direction direction, at::ScalarType dtype) {
    const Layout layout(attention.shape);
    graph_.set_io_data_type(dtype == at::kHalf ? DataType_t::HALF : DataType_t::BFLOAT16)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
    const auto input = [&](Id id, const std::vector<int64_t>& strides) {
      return graph_.tensor(
          graph::Tensor_attributes().set_uid(id).set_dim(layout.sizes).set_stride(strides));
    };
    const auto output = [&](const Tensor& tensor, Id id, const std::vector<int64_t>& strides) {
      tensor->set_output(true).set_uid(id).set_dim(layout.sizes).set_stride(strides);
    };
    const float scale = 1 / std::sqrt(static_cast<float>(attention.shape.size));
    const Tensor query = input(kQuery, layout.packed);
    const Tensor key = input(kKey, layout.packed);
    const Tensor value = input(kValue, layout.packed);
    if (direction == Direction::kBackward) {
      const Tensor log_sums = graph_.tensor(graph::Tensor_attributes()
                                                .set_uid(kLogSums)
                                                .set_dim(layout.log_sum_sizes)
                                                .set_stride(layout.log_sum_strides)
                                                .set_data_type(DataType_t::FLOAT));
      const auto [d_query, d_key, d_value] = graph_.sdpa_backward(
          query, key, value, input(kOut, layout.alone), input(kDOut, layout.alone), log_sums,
          graph::SDPA_backward_attributes()
              .set_attn_scale(scale)
              .set_causal_mask(attention.causal)
              .set_deterministic_algorithm(attention.deterministic));
      output(d_query, kDQuery, layout.packed);
      output(d_key, kDKey, layout.packed);
      output(d_value, kDValue, layout.packed);
    } else {
      const auto [out, log_sums] = graph_.sdpa(query, key, value,
                                               graph::SDPA_attributes()
                                                   .set_attn_scale(scale)
                                                   .set_causal_mask(attention.causal)
                                                   .set_generate_stats(true));
      output(out, kOut, layout.alone);
      log_sums->set_output(true)
          .set_uid(kLogSums)
          .set_data_type(DataType_t::FLOAT)
          .set_dim(layout.log_sum_sizes)
          .set_stride(layout.log_sum_strides);
    }
    const cudnnHandle_t handle = at::native::getCudnnHandle();
    is_good_ =
        graph_.build(handle, {cudnn_frontend::HeurMode_t::A, cudnn_frontend::HeurMode_t::FALLBACK})
            .is_good();
  }

  bool is_good() const { return is_good_; }

  void Run(Pointers pointers, const at::TensorOptions& options) {
    const at::Tensor workspace = at::empty({graph_.get_workspace_size()}, options.dtype(at::kByte));
    // The thread's own; it comes with the current stream.
    const cudnnHandle_t handle = at::native::getCudnnHandle();
    // Not all of cuDNN's engines let several threads run one plan at a time.
    const std::lock_guard lock(mutex_);
    auto status = graph_.execute(handle, pointers, workspace.mutable_data_ptr());
    TORCH_CHECK(status.is_good(), "cuDNN's attention: ", status.get_message());
  }

 private:
  std::mutex mutex_;
  graph::Graph graph_;
  bool is_good_ = false;
};

// The process's, for all threads: a plan runs with another handle of its device than the one that it was made
// with. Made the first time, while others wait, and never destroyed, since nothing says when cuDNN goes.
Plan& PlanFor(const PackedAttention& attention, Direction direction, const at::Tensor& qkv) {
  using Key = std::tuple<PackedAttention, Direction, at::ScalarType, c10::DeviceIndex>;
  static std::mutex mutex;
  static auto& plans = *new std::map<Key, Plan>;
  const std::lock_guard lock(mutex);
  const Key key(attention, direction, qkv.scalar_type(), qkv.device().index());
  return plans.try_emplace(key, attention, direction, qkv.scalar_type()).first->second;
}

// Where queries, keys or values begin.
void* Part(const at::Tensor& qkv, int part, const AttentionShape& shape) {
  return static_cast<char*>(qkv.mutable_data_ptr()) +
         part * shape.heads * shape.size * qkv.element_size();
}

Pointers Inputs(const at::Tensor& qkv, const AttentionShape& shape) {
  return {
      {kQuery, Part(qkv, 0, shape)}, {kKey, Part(qkv, 1, shape)}, {kValue, Part(qkv, 2, shape)}};
}

}  // namespace

bool HasPackedAttention(const at::Tensor& qkv, const PackedAttention& attention) {
  return PlanFor(attention, Direction::kForward, qkv).is_good() &&
         PlanFor(attention, Direction::kBackward, qkv).is_good();
}

at::Tensor RunPackedAttention(const at::Tensor& qkv, const at::Tensor& log_sums,
                              const PackedAttention& attention) {
  const AttentionShape& shape = attention.shape;
  RECORD_FUNCTION(kPackedAttentionEvent,
                  std::vector<c10::IValue>({qkv, shape.heads, attention.causal}));
  const at::Tensor out =
      at::empty({shape.count, shape.tokens, shape.heads, shape.size}, qkv.options());
  Pointers pointers = Inputs(qkv, shape);
  pointers[kOut] = out.mutable_data_ptr();
  // They are few; a plan without them would have to be made, too.
  const at::Tensor sums = log_sums.defined() ? log_sums
                                             : at::empty({shape.count, shape.heads, shape.tokens},
                                                         qkv.options().dtype(at::kFloat));
  pointers[kLogSums] = sums.mutable_data_ptr();
  PlanFor(attention, Direction::kForward, qkv).Run(std::move(pointers), qkv.options());
  return out;
}

at::Tensor RunPackedAttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                      const at::Tensor& d_out, const at::Tensor& log_sums,
                                      const PackedAttention& attention) {
  const AttentionShape& shape = attention.shape;
  const at::Tensor d_qkv = at::empty_like(qkv);
  Pointers pointers = Inputs(qkv, shape);
  pointers[kOut] = out.mutable_data_ptr();
  pointers[kDOut] = d_out.mutable_data_ptr();
  pointers[kLogSums] = log_sums.mutable_data_ptr();
  pointers[kDQuery] = Part(d_qkv, 0, shape);
  pointers[kDKey] = Part(d_qkv, 1, shape);
  pointers[kDValue] = Part(d_qkv, 2, shape);
  PlanFor(attention, Direction::kBackward, qkv).Run(std::move(pointers), qkv.options());
  return d_qkv;
}

}  // namespace lockstep::ops
