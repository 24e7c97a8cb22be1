// ExportedGraph: a graph of ATen operations that lockstep.export has traced from a module (python/FORMAT.md).
//
// Promise: a graph from an untrusted file cannot run arbitrary code. It calls only operations of
// python/lockstep/operations.txt, with arguments that have the types of the operations' schemas and that were defined
// before; anything else is refused when the file is read. LibTorch does not check all that its operations ask of their
// arguments. So the sizes of all tensors are foretold when the graph is read, and again before the first run with other
// sizes of inputs, and compared with the operations' contracts (foretell_program.h). Later runs check only what cannot
// be foretold, for the few operations whose contracts ask for it. Run() calls the operations one by one through LibTorch's
// dispatcher, under autograd and autocast, as the module would in Python, so the results are those of eager mode
// (guarded_call.h has a few exceptions). A tensor is released after its last use.
//
// what can fail -> what the caller sees -> the test that shows it (models/imported/exported_graph_test.cc)
//   an operation whose arguments break its contract, or a tensor that fits into no memory -> Error (kUsage) with the
//     operation, its module, the line of the user's code and the argument, before anything is computed
//     -> ExportedGraph.RefusesBeforeItRuns, tests/imported_test.py, test_wrong_operations
//   a graph that does not follow python/FORMAT.md -> Error (kUsage) that names the place -> ExportedGraph.Refuses*
//   an operation that throws, for example for a shape that it does not support -> Error (kUsage) with the operation,
//     its module and the line of the user's code -> ExportedGraph.NamesWhatFailed
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
  // The tensors that a graph uses besides its inputs. The graph shares them with the module that owns them: each run
  // reads the values that they have at that time, on the device that the module was moved to.
  struct Tensors {
    std::map<std::string, at::Tensor> parameters, buffers, constants;
  };

  struct Options {
    // Whether to use activation checkpointing: Run() then keeps only the tensors at the cuts of segments.h for
    // backward, which computes the others again.
    bool checkpoints = false;
    // The ranks that share the statistics of BatchNorm; null: each rank has its own statistics. The object must exist
    // as long as the graph.
    ops::NormRanks* ranks = nullptr;
  };

  // Reads a graph. `where` is for error messages: it names the file, and the graph in the file. Throws Error (kUsage).
  ExportedGraph(const nlohmann::json& graph, const std::string& where, int64_t input_count,
                const Tensors& tensors, const Options& options = {false, nullptr});
  ~ExportedGraph();
  ExportedGraph(ExportedGraph&&) noexcept;
  ExportedGraph& operator=(ExportedGraph&&) noexcept;

  // Checks what the graph would do with inputs of these sizes and dtypes, which may be on META, without computing
  // anything. Returns the output as a tensor on META. Throws Error (kUsage), also if a tensor would have more than
  // `most_bytes`. `rounds` says whether the graph will run under autocast.
  at::Tensor Foretell(const std::vector<at::Tensor>& inputs, int64_t most_bytes,
                      bool rounds = false) const;

  // Returns the graph's output. `inputs` have the dtypes and shapes that the file describes, and are on the device of
  // the parameters. Throws Error (kUsage), and passes on LibTorch's own exceptions if memory runs out.
  at::Tensor Run(const std::vector<at::Tensor>& inputs) const;

  // Runs the graph on a rank that has no samples, so that the rank takes part in the collectives of BatchNorm. `inputs`
  // hold least_batch() dummy samples, which do not count in statistics that the ranks share.
  at::Tensor RunWithoutSamples(const std::vector<at::Tensor>& inputs) const;

  // Returns the smallest number of samples in a batch that the graph takes.
  int64_t least_batch() const;

  // Returns the number of BatchNorm operations in training mode in the graph.
  int64_t batch_norms() const;

  // Returns the weights of the graph's conv2d operations. Returns only tensors of the module: weights that other
  // operations compute are left out.
  std::vector<at::Tensor> ConvolutionWeights() const;

 private:
  at::Tensor Computed(const std::vector<at::Tensor>& inputs) const;
  void ForetellOnce(const std::vector<at::Tensor>& inputs) const;

  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace lockstep
