#include "ops/attention/packed_attention.h"

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
#include <utility>
#include <vector>

#include "ops/common/cudnn_graph.h"
#include "ops/common/launch_arguments.h"

namespace lockstep::ops {
namespace {

namespace graph = cudnn_frontend::graph;
using cudnn_frontend::DataType_t;
using Tensor = std::shared_ptr<graph::Tensor_attributes>;

enum class Direction { kForward, kBackward };

// The ids of the tensors in a cuDNN graph.
enum Id : int64_t { kQuery = 1, kKey, kValue, kOut, kLogSums, kDOut, kDQuery, kDKey, kDValue };

// The sizes and strides of the tensors, in cuDNN's order of dimensions [count, heads, tokens, size]. The values of one
// head of a token are contiguous. `packed` holds the strides of queries, keys and values, and `alone` those of the
// output.
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

// Builds the graph of forward or of backward. Returns null if cuDNN does not support this attention.
std::unique_ptr<CudnnGraph> MakeGraph(const PackedAttention& attention, Direction direction,
                                      FloatType type) {
  const Layout layout(attention.shape);
  auto made = std::make_unique<CudnnGraph>(type);
  graph::Graph& graph = made->graph();
  const auto input = [&](Id id, const std::vector<int64_t>& strides) {
    return graph.tensor(
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
    const Tensor log_sums = graph.tensor(graph::Tensor_attributes()
                                             .set_uid(kLogSums)
                                             .set_dim(layout.log_sum_sizes)
                                             .set_stride(layout.log_sum_strides)
                                             .set_data_type(DataType_t::FLOAT));
    const auto [d_query, d_key, d_value] = graph.sdpa_backward(
        query, key, value, input(kOut, layout.alone), input(kDOut, layout.alone), log_sums,
        graph::SDPA_backward_attributes()
            .set_attn_scale(scale)
            .set_causal_mask(attention.causal)
            .set_deterministic_algorithm(attention.deterministic));
    output(d_query, kDQuery, layout.packed);
    output(d_key, kDKey, layout.packed);
    output(d_value, kDValue, layout.packed);
  } else {
    const auto [out, log_sums] = graph.sdpa(query, key, value,
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
  const bool is_built =
      graph
          .build(at::native::getCudnnHandle(),
                 {cudnn_frontend::HeurMode_t::A, cudnn_frontend::HeurMode_t::FALLBACK})
          .is_good();
  return is_built && made->FindWorkspace() ? std::move(made) : nullptr;
}

// Returns the graph for this attention, which all threads of the process share, or null if cuDNN does not support this
// attention. The first call for an attention makes the graph, while other threads wait. Graphs are never destroyed,
// because cuDNN may be unloaded before static objects are destroyed.
CudnnGraph* GraphFor(const PackedAttention& attention, Direction direction, const at::Tensor& qkv) {
  using Key = std::tuple<PackedAttention, Direction, at::ScalarType, c10::DeviceIndex>;
  static std::mutex mutex;
  static auto& graphs = *new std::map<Key, std::unique_ptr<CudnnGraph>>;
  const std::lock_guard lock(mutex);
  const Key key(attention, direction, qkv.scalar_type(), qkv.device().index());
  auto found = graphs.find(key);
  if (found == graphs.end()) {
    found = graphs.emplace(key, MakeGraph(attention, direction, TypeOf(qkv))).first;
  }
  return found->second.get();
}

void Run(const PackedAttention& attention, Direction direction, const at::Tensor& qkv,
         CudnnPointers pointers) {
  if (qkv.is_meta()) {
    // This code allocates as much workspace as cuDNN 9 needs on an H100. cuDNN's backward sums the gradients of the
    // queries in float32 in the workspace.
    const AttentionShape& shape = attention.shape;
    const int64_t sums = shape.count * shape.heads * shape.tokens * (shape.size + 1);
    if (direction == Direction::kBackward) at::empty({sums}, qkv.options().dtype(at::kFloat));
    return;
  }
  CudnnGraph* const graph = GraphFor(attention, direction, qkv);
  TORCH_CHECK(graph != nullptr, "cuDNN has no such attention");
  auto status = graph->Run(pointers);
  TORCH_CHECK(status.is_good(), "cuDNN's attention: ", status.get_message());
}

// Returns the address where the queries (part 0), the keys (part 1) or the values (part 2) begin.
void* Part(const at::Tensor& qkv, int part, const AttentionShape& shape) {
  return static_cast<char*>(qkv.mutable_data_ptr()) +
         part * shape.heads * shape.size * qkv.element_size();
}

CudnnPointers Inputs(const at::Tensor& qkv, const AttentionShape& shape) {
  return {
      {kQuery, Part(qkv, 0, shape)}, {kKey, Part(qkv, 1, shape)}, {kValue, Part(qkv, 2, shape)}};
}

}  // namespace

bool HasPackedAttention(const at::Tensor& qkv, const PackedAttention& attention) {
  if (qkv.is_meta()) return true;
  return GraphFor(attention, Direction::kForward, qkv) != nullptr &&
         GraphFor(attention, Direction::kBackward, qkv) != nullptr;
}

at::Tensor RunPackedAttention(const at::Tensor& qkv, const at::Tensor& log_sums,
                              const PackedAttention& attention) {
  const AttentionShape& shape = attention.shape;
  RECORD_FUNCTION(kPackedAttentionEvent,
                  std::vector<c10::IValue>({qkv, shape.heads, attention.causal}));
  const at::Tensor out =
      at::empty({shape.count, shape.tokens, shape.heads, shape.size}, qkv.options());
  CudnnPointers pointers = Inputs(qkv, shape);
  pointers[kOut] = out.mutable_data_ptr();
  // The log sums are computed even if they are not wanted, because they are small, and because a graph without log sums
  // would need a plan of its own.
  const at::Tensor sums = log_sums.defined() ? log_sums
                                             : at::empty({shape.count, shape.heads, shape.tokens},
                                                         qkv.options().dtype(at::kFloat));
  pointers[kLogSums] = sums.mutable_data_ptr();
  Run(attention, Direction::kForward, qkv, std::move(pointers));
  return out;
}

at::Tensor RunPackedAttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                      const at::Tensor& d_out, const at::Tensor& log_sums,
                                      const PackedAttention& attention) {
  const AttentionShape& shape = attention.shape;
  const at::Tensor d_qkv = at::empty_like(qkv);
  CudnnPointers pointers = Inputs(qkv, shape);
  pointers[kOut] = out.mutable_data_ptr();
  pointers[kDOut] = d_out.mutable_data_ptr();
  pointers[kLogSums] = log_sums.mutable_data_ptr();
  pointers[kDQuery] = Part(d_qkv, 0, shape);
  pointers[kDKey] = Part(d_qkv, 1, shape);
  pointers[kDValue] = Part(d_qkv, 2, shape);
  Run(attention, Direction::kBackward, qkv, std::move(pointers));
  return d_qkv;
}

}  // namespace lockstep::ops
