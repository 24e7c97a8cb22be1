// lockstep export and average: write weights, or the mean of several weights, to a safetensors file for other programs.
#include "ckpt/weights.h"

#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/kept_files.h"
#include "base/files/output_target.h"
#include "base/files/safetensors.h"
#include "base/say.h"
#include "base/small_letters.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/dtype.h"
#include "observe/history/training_folder.h"

namespace lockstep {
namespace {

// Throws Error (kUsage) if the name of an output says that the file has another format than safetensors.
void RequireSafetensorsName(const std::string& output) {
  struct Other {
    std::string_view ending;
    const char* cure;
  };
  static constexpr char kPickled[] =
      "for torch.load() python3 -m lockstep.export --to-torch RUN --output net.pt writes them";
  static constexpr char kArrays[] = "safetensors.numpy.load_file() reads them as arrays of NumPy";
  static constexpr char kNotYet[] =
      "this format is not written yet: from weights in safetensors and its module PyTorch makes it";
  static constexpr Other kOthers[] = {
      {".pt", kPickled},
      {".pth", kPickled},
      {".bin", kPickled},
      {".ckpt", kPickled},
      {".pkl", kPickled},
      {".npz", kArrays},
      {".npy", kArrays},
      {".onnx", kNotYet},
      {".gguf", kNotYet},
      {".h5", kNotYet},
      {".hdf5", kNotYet},
      {".pb", kNotYet},
      {".tflite", kNotYet},
      {".keras", kNotYet},
      {".mlmodel", kNotYet},
      {".engine", kNotYet},
      {".trt", kNotYet},
      {".torchscript", kNotYet},
      {".lsm", "python3 -m lockstep.export MODULE --output net.lsm writes modules, with code"},
  };
  const std::string small = InSmallLetters(output);
  for (const auto& [ending, cure] : kOthers) {
    if (!small.ends_with(ending)) continue;
    throw UsageError("--output {}: weights are written as safetensors: name it {}.safetensors; {}",
                     output, output.substr(0, output.size() - ending.size()), cure);
  }
}

// Writes the mean of the weights of `sources` (ckpt/weights.h) to a safetensors file, under PyTorch's names. `dtype` is
// the type for tensors in floating point: float32, bfloat16 or float16; if `dtype` is empty, tensors keep their types.
// Throws Error (kUsage, kCheckpoint).
void ExportWeights(const std::vector<std::string>& sources, const std::string& output,
                   const std::string& dtype) {
  RequireSafetensorsName(output);
  KeptFiles kept;
  for (const std::string& source : sources) {
    if (std::filesystem::is_regular_file(source)) {
      kept.Add(source, "the weights " + source);
    } else {
      kept.AddRun(ParseRunPoint(source).run_dir);
    }
  }
  OutputTarget target(output, kept);
  std::vector<Weights> weights;
  for (const std::string& source : sources) {
    RefuseFolds(ParseRunPoint(source).run_dir);
    weights.push_back(ReadWeights(source));
  }
  TensorsByName tensors = weights.size() == 1 ? weights[0].tensors : MeanOf(weights);
  std::vector<NamedTensor> named;
  bool has_statistics = false;
  for (auto& [name, tensor] : tensors) {
    if (!dtype.empty() && tensor.is_floating_point()) tensor = tensor.to(DtypeNamed(dtype));
    has_statistics = has_statistics || name.ends_with("running_mean");
    named.push_back({name, tensor});
  }
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (const std::string& graph = weights.back().graph; !graph.empty()) {
    metadata[kGraphOfWeights] = graph;
  }
  WriteSafetensors(target, named, std::move(metadata));
  if (weights.size() > 1 && has_statistics) {
    Warn(
        fmt::format("{}: BatchNorm's statistics are means, too, not those of the mean weights: "
                    "measure them anew "
                    "(torch.optim.swa_utils.update_bn)",
                    output));
  }
  std::vector<std::string> paths;
  for (const Weights& one : weights) paths.push_back(one.Name());
  TellOfOutput(output, fmt::format("{}: {} tensors{} of {}", output, named.size(),
                                   paths.size() == 1 ? "" : ", the mean", fmt::join(paths, ", ")));
}

class ExportCommand final : public LocalCommand {
 public:
  // Makes the command `name`. Its arguments are the names of weights; `least` and `most` limit how many names it takes.
  // `sources` is the help text of these arguments.
  ExportCommand(CLI::App& app, const std::string& name, const std::string& what,
                const std::string& sources, int least, int most)
      : LocalCommand(app, name, what) {
    options().Add("SOURCE", sources_, sources).Required().Take(least, most);
    options().Add("--output", output_, "safetensors file to write").Required();
    options()
        .Add("--dtype", dtype_, "float32, bfloat16 or float16; as it is without")
        .OneOf({"float32", "bfloat16", "float16"});
  }

  bool prints_result() const override { return false; }

 private:
  ExitStatus RunHere(const Invocation&) override {
    ExportWeights(sources_, output_, dtype_);
    return ExitStatus::kDone;
  }

  std::vector<std::string> sources_;
  std::string output_;
  std::string dtype_;
};

}  // namespace

std::unique_ptr<Command> NewExportCommand(CLI::App& app) {
  return std::make_unique<ExportCommand>(
      app, "export", "weights of a run or a checkpoint, for other programs",
      "RUN, RUN@STEP, RUN@best, RUN@last, or a safetensors file", 1, 1);
}

std::unique_ptr<Command> NewAverageCommand(CLI::App& app) {
  constexpr int kMost = 1 << 20;
  return std::make_unique<ExportCommand>(
      app, "average", "the mean of several weights",
      "RUN, RUN@STEP, RUN@best, RUN@last, or a safetensors file, each", 2, kMost);
}

}  // namespace lockstep
