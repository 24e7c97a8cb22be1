// ExportedGraph: a graph of ATen operations that lockstep.export has traced from a module (python/FORMAT.md).
//
// Promise: a graph from a stranger's file runs no code of his. It calls only operations of
// python/lockstep/operations.txt, with arguments that have the types of their schemas and arose before; all else is
// refused when it is read. Run() calls the operations one by one through LibTorch's dispatcher, under autograd and
// autocast, as the module would do in Python; so its numbers are those of eager mode. A tensor is released after its
// last use.
//
// what can fail -> what the caller sees -> the test that shows it (models/imported/exported_graph_test.cc)
//   a graph that is not as python/FORMAT.md says -> Error (kUsage) that names the place -> ExportedGraph.Refuses*
//   an operation that fails, as with a shape that it does not take -> Error (kUsage) with the operation, its module and
//     the line of the user's code -> ExportedGraph.NamesWhatFailed
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

namespace ops {
class NormRanks;  // ops/norm/batch_norm.h
}

class ExportedGraph {
 public:
  // The tensors with which a graph computes, besides its inputs. The graph shares these tensors with the module that
  // owns them, so it computes with what they hold when it runs, on the device that the module was moved to.
  struct Tensors {
    std::map<std::string, at::Tensor> parameters, buffers, constants;
  };

  struct Options {
    // Whether Run() keeps for backward only what segments.h says, and backward computes the rest again.
    bool checkpoints = false;
    // The ranks that share the statistics of norms of batches, which must exist as long as the graph; null: this one.
    ops::NormRanks* ranks = nullptr;
  };

  // Reads a graph. `where` is for errors: the file and which of its graphs. Throws Error (kUsage).
  ExportedGraph(const nlohmann::json& graph, const std::string& where, int64_t input_count,
                const Tensors& tensors, const Options& options = {false, nullptr});
  ~ExportedGraph();
  ExportedGraph(ExportedGraph&&) noexcept;
  ExportedGraph& operator=(ExportedGraph&&) noexcept;

  // Returns the graph's output. `inputs` are as the file describes them, on the device of the parameters. Throws Error
  // (kUsage), and LibTorch's own exceptions if memory runs out.
  at::Tensor Run(const std::vector<at::Tensor>& inputs) const;

  // The same for a rank without samples, with least_batch() samples that count for nothing: norms whose statistics
  // ranks share leave them out.
  at::Tensor RunWithoutSamples(const std::vector<at::Tensor>& inputs) const;

  // The fewest samples that it takes.
  int64_t least_batch() const;

  // How many norms of batches it has.
  int64_t batch_norms() const;

  // The weights of two-dimensional convolutions, those that are tensors of the module.
  std::vector<at::Tensor> ConvolutionWeights() const;

 private:
  at::Tensor Computed(const std::vector<at::Tensor>& inputs) const;

  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace lockstep
