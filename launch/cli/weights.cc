#include "launch/cli/weights.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/files/output_target.h"
#include "base/files/safetensors.h"
#include "base/say.h"
#include "ckpt/weights.h"

namespace lockstep {
namespace {

std::optional<at::ScalarType> DtypeNamed(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  return std::nullopt;
}

}  // namespace

void ExportWeights(const std::vector<std::string>& sources, const std::string& output,
                   const std::string& dtype) {
  OutputTarget target(output);
  std::vector<Weights> weights;
  for (const std::string& source : sources) weights.push_back(ReadWeights(source));
  TensorsByName tensors = weights.size() == 1 ? weights[0].tensors : MeanOf(weights);
  std::vector<NamedTensor> named;
  bool has_statistics = false;
  for (auto& [name, tensor] : tensors) {
    const std::optional<at::ScalarType> wanted = DtypeNamed(dtype);
    if (wanted && tensor.is_floating_point()) tensor = tensor.to(*wanted);
    has_statistics = has_statistics || name.ends_with("running_mean");
    named.push_back({name, tensor});
  }
  WriteSafetensors(target, named, {{"format", "pt"}});
  if (weights.size() > 1 && has_statistics) {
    Warn(
        fmt::format("{}: BatchNorm's statistics are means, too, not those of the mean weights: "
                    "measure them anew "
                    "(torch.optim.swa_utils.update_bn)",
                    output));
  }
  std::vector<std::string> paths;
  for (const Weights& one : weights) paths.push_back(one.path);
  Print("{}: {} tensors{} of {}\n", output, named.size(), paths.size() == 1 ? "" : ", the mean",
        fmt::join(paths, ", "));
}

}  // namespace lockstep
