// lockstep new: writes a config with comments for the user's data files.
#include <filesystem>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/files/kept_files.h"
#include "base/files/output_target.h"
#include "base/say.h"
#include "config/config.h"
#include "launch/cli/command/commands.h"
#include "prepare/new/draft.h"

namespace lockstep {
namespace {

class NewCommand final : public LocalCommand {
 public:
  explicit NewCommand(CLI::App& app)
      : LocalCommand(app, "new",
                     "write a commented config for a table, images, masks, arrays or tokens") {
    options().Add("DATA", request_.data, "file, or folder of files").Required();
    options()
        .Add("--label", request_.labels, "a table's column to predict; several: repeat it")
        .OneEach();
    options()
        .Add("--output", request_.output,
             "config to write, which must not exist; - is standard output")
        .ShowDefault();
    options().Add("--test", request_.test, "file to predict, if it is not test.csv beside DATA");
    options()
        .Add("--task", task_, "what is learnt, if it is not what the label looks like")
        .OneOf({"classification", "multi_label", "regression"});
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    RequireNew();
    OutputTarget target(request_.output, Kept());
    if (task_ == "classification") request_.task = LearnTask::kClassification;
    if (task_ == "multi_label") request_.task = LearnTask::kMultiLabel;
    if (task_ == "regression") request_.task = LearnTask::kRegression;
    const Draft draft = DraftConfig(request_);
    std::vector<std::string> assignments;
    if (!draft.stand_in.empty()) assignments = {"model.imported.file=" + draft.stand_in};
    // LoadConfigText() throws if the config is not valid for training.
    LoadConfigText(request_.output, draft.config, assignments);
    const bool is_printed = request_.output == kStandardOutput;
    for (const std::string& line : draft.found) {
      if (is_printed) Announce(line);
    }
    target.Write(
        [&](const AppendBytes& append) { append(std::as_bytes(std::span(draft.config))); });
    if (is_printed) return ExitStatus::kDone;
    for (const std::string& line : draft.found) Print("{}\n", line);
    Print("{} is written; next:\n", request_.output);
    for (const std::string& command : draft.next) Print("  {}\n", command);
    return ExitStatus::kDone;
  }

  // Returns the data, behind which standard output may append. Any other output is a new file.
  KeptFiles Kept() const {
    KeptFiles kept;
    if (request_.output != kStandardOutput) return kept;
    for (const std::string& path : {request_.data, request_.test}) {
      kept.Add(path, "the data", [](std::string_view name) { return !name.ends_with(".pbtxt"); });
    }
    return kept;
  }

  // Throws Error (kUsage) if the config has no name, or if a file with its name exists, even if it is a dangling
  // symbolic link.
  void RequireNew() const {
    namespace fs = std::filesystem;
    if (request_.output == kStandardOutput) return;
    if (fs::path(request_.output).filename().empty()) {
      throw UsageError("--output \"{}\": is no name of a file: give one such as train.pbtxt",
                       request_.output);
    }
    std::error_code error;
    const fs::file_status status = fs::symlink_status(request_.output, error);
    if (!fs::exists(status)) return;
    throw UsageError("{}: the file exists: {}write another one with --output FILE", request_.output,
                     fs::is_regular_file(status) ? "remove it, or " : "");
  }

  NewRequest request_;
  std::string task_;
};

}  // namespace

std::unique_ptr<Command> NewNewCommand(CLI::App& app) { return std::make_unique<NewCommand>(app); }

}  // namespace lockstep
