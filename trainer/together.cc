#include "trainer/together.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep {
namespace {

// What one rank tells the others: its exit status, 0 for no error, and its message, cut if need be.
struct Report {
  int32_t status = 0;
  char message[2044] = {};
};

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Error ErrorOf(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  // LibTorch's exceptions end in a stack trace.
  if (const auto* error = dynamic_cast<const c10::Error*>(&exception)) {
    return BugError("LibTorch: {}", FirstLine(error->what_without_backtrace()));
  }
  return BugError("{}", FirstLine(exception.what()));
}

void AgreeOnErrors(const std::optional<Error>& own, Communicator& host) {
  Report report;
  if (own) {
    report.status = static_cast<int32_t>(own->status());
    std::strncpy(report.message, own->what(), sizeof(report.message) - 1);
  }
  const at::Tensor sent = at::zeros({sizeof(Report)}, at::kByte);
  std::memcpy(sent.mutable_data_ptr(), &report, sizeof(report));
  const at::Tensor received = at::zeros({host.world_size() * sent.numel()}, at::kByte);
  host.AllGather(received, sent).Wait();
  std::vector<Report> reports(host.world_size());
  std::memcpy(reports.data(), received.const_data_ptr(), received.nbytes());

  const auto failed = [](const Report& r) { return r.status != 0; };
  const auto first = std::find_if(reports.begin(), reports.end(), failed);
  if (first == reports.end()) return;
  const bool same = std::all_of(reports.begin(), reports.end(), [&](const Report& r) {
    return failed(r) && std::strcmp(r.message, first->message) == 0;
  });
  const std::string rank = same ? "" : fmt::format("rank {}: ", first - reports.begin());
  throw Error::OnEveryRank(static_cast<ExitStatus>(first->status), rank + first->message);
}

}  // namespace lockstep
