// lockstep report: writes the web page about runs (observe/page/) into one HTML file, which needs no server and no
// other file.
//
// what can fail -> what the caller sees -> the test that shows it (tests/page_test.py)
//   a folder is no run folder and contains no run folders -> Error (kUsage) -> test_what_has_no_page
//   a file of a run cannot be read -> a warning, and the page has the reason in place of its figures
//     -> tests/packed_input_test.py
//   the file is one of a run -> Error (kUsage) -> tests/outputs_test.py
//   the file cannot be written, or is a folder -> Error (kCheckpoint), before the logs are read
//     -> test_a_report_that_cannot_be_written
#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/files/kept_files.h"
#include "base/files/output_target.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "observe/page/page_data.h"
#include "observe/page/page_html.h"

namespace lockstep {
namespace {

class ReportCommand final : public LocalCommand {
 public:
  explicit ReportCommand(CLI::App& app)
      : LocalCommand(app, "report", "the page of runs as one HTML file, to mail") {
    options()
        .Add("RUN", folders_, "run folders, or folders of run folders")
        .Required()
        .Take(1, kMostRuns);
    options().Add("--output", output_, "HTML file to write; - is standard output").Required();
  }

  bool prints_result() const override { return output_ == kStandardOutput; }

 private:
  ExitStatus RunHere(const Invocation&) override {
    const std::vector<std::string> run_dirs = RunFoldersFor(folders_);
    for (const char* ending : {".pdf", ".png", ".md", ".json", ".csv"}) {
      if (!output_.ends_with(ending)) continue;
      throw UsageError(
          "--output {}: the page is HTML: name an .html file; a browser prints it to PDF, and "
          "lockstep runs --json has the figures",
          output_);
    }
    KeptFiles kept;
    for (const std::string& run_dir : run_dirs) kept.AddRun(run_dir);
    OutputTarget target(output_, kept);
    PageData data(run_dirs, /*live=*/false);
    const std::string page = PageHtml(data.All());
    std::ranges::for_each(data.Unreadable(), Warn);
    target.Write([&](const AppendBytes& append) { append(std::as_bytes(std::span(page))); });
    TellOfOutput(output_, fmt::format("{}: {} run{}", output_, run_dirs.size(),
                                      run_dirs.size() == 1 ? "" : "s"));
    return ExitStatus::kDone;
  }

  std::vector<std::string> folders_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> NewReportCommand(CLI::App& app) {
  return std::make_unique<ReportCommand>(app);
}

}  // namespace lockstep
