// lockstep predict: writes a run's predictions for files, as CSV, as JSON lines or as an array.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/output_target.h"
#include "base/files/scratch_folder.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "use/trained_run.h"

namespace lockstep {
namespace {

constexpr char kStandardInput[] = "-";
constexpr char kNameOfInput[] = "standard input";

// Copies standard input to a temporary file, because the code that predicts reads its files more than once. The file
// exists as long as this object.
class InputFile {
 public:
  // Reads standard input to its end. Throws Error (kCheckpoint) if the file cannot be written.
  InputFile()
      : folder_(std::filesystem::temp_directory_path()), path_(folder_.path() + "/standard_input") {
    if (folder_.path().empty()) {
      throw CheckpointError("--input -: no folder can be made in {}: set TMPDIR",
                            std::filesystem::temp_directory_path().string());
    }
    WriteFileAtomically(path_, [](const AppendBytes& append) {
      std::array<std::byte, 1 << 16> piece;
      while (const size_t bytes = std::fread(piece.data(), 1, piece.size(), stdin)) {
        append(std::span(piece).first(bytes));
      }
    });
  }

  const std::string& path() const { return path_; }

 private:
  ScratchFolder folder_;
  std::string path_;
};

class PredictCommand final : public RankCommand {
 public:
  explicit PredictCommand(CLI::App& app)
      : RankCommand(app, "predict",
                    "predictions of a run's weights, as CSV, JSON lines or an array") {
    request_.output = "predictions.csv";
    options().Add("RUN", run_, kRunPoint).Required();
    options().Add("--input", request_.files,
                  "files to predict, with or without labels; - is standard input");
    options().Add(
        "--held-back", request_.held_back,
        "predict what training held back, instead of files; of folds all samples, each by "
        "the fold that has not seen it");
    options()
        .Add("--output", request_.output,
             "file to write: CSV, or JSON lines (.jsonl), or an array (.npy, for masks, too); a "
             "folder (masks/) for the masks of images as PNG files; - is standard output")
        .ShowDefault();
    options()
        .Add("--format", request_.format, "its format, whatever its name is")
        .OneOf({"csv", "jsonl", "npy", "png"});
    options().Add("--weights", weights_, kOtherWeights);
    options().Add("--probabilities", request_.probabilities,
                  "a column for each class, with its probability");
    options().Add("--id", request_.id, "the input's column that names the samples");
    options().Add("--keep", request_.keep, "columns of the input that the output has, too");
    options().Add("--submission", request_.submission,
                  "a competition's sample submission: its columns, ids and order");
  }

  bool prints_result() const override { return request_.output == kStandardOutput; }

 private:
  void Check(StartedCommand&) const override {
    CheckSource(request_);
    CheckRequest(request_, RunsNamed(run_, weights_).front().config.data());
  }

  void Begin() override { CheckSource(request_); }

  ExitStatus RunAsRank(Job& job, const Invocation& invocation) override {
    const std::vector<NamedRun> runs = RunsNamed(run_, weights_, job);
    const World world = Connect(job, runs.front().config);
    PredictionRequest request = request_;
    std::optional<InputFile> input;
    const auto dash = std::ranges::find(request.files, kStandardInput);
    if (dash != request.files.end()) {
      if (world.size() > 1) {
        throw Error::OnEveryRank(ExitStatus::kUsage,
                                 "--input -: one rank reads standard input: leave out -n");
      }
      *dash = input.emplace().path();
    }
    // Lines about standard input must not name the file of InputFile.
    const auto shown = [&](std::string line) {
      const std::string path = input ? input->path() : "";
      for (size_t at = 0; !path.empty() && (at = line.find(path, at)) != line.npos;) {
        line.replace(at, path.size(), kNameOfInput);
      }
      return line;
    };
    RunPredictions done;
    try {
      done = PredictRuns(runs, request, invocation.extensions, world);
    } catch (const Error& error) {
      if (!input) throw;
      throw Error(error.status(), shown(error.what()));
    }
    const auto& [weights, samples, contents, remarks] = done;
    if (world.rank() == 0) {
      for (const std::string& line : RemarksOfFolds(remarks)) Warn(shown(line));
      TellOfOutput(request.output,
                   fmt::format("{}: {} predictions{}{}",
                               prints_result() ? "standard output" : request.output, samples,
                               weights.empty() ? "" : ", weights of " + weights,
                               contents.empty() ? "" : fmt::format(" ({})", contents)));
    }
    return ExitStatus::kDone;
  }

  std::string run_;
  std::string weights_;
  PredictionRequest request_;
};

}  // namespace

std::unique_ptr<Command> NewPredictCommand(CLI::App& app) {
  return std::make_unique<PredictCommand>(app);
}

}  // namespace lockstep
