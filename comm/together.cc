#include "comm/together.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

// The message that one rank sends to the others: its exit status (0 means no error) and its error message, which is cut
// if it is too long.
struct Report {
  int32_t status = 0;
  char message[2044] = {};
};

}  // namespace

bool IsOutOfMemory(const std::exception& exception) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&exception) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) return true;
  // The CUDA libraries and LibTorch's CPU allocator report a lack of memory only in the exception's message.
  const std::string_view what = exception.what();
  for (const std::string_view text :
       {"out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "ALLOCATION_FAILED", "can't allocate memory",
        "Storage size calculation overflowed"}) {
    if (what.find(text) != std::string_view::npos) return true;
  }
  return false;
}

std::string WhatOf(const std::exception& exception) {
  const auto* error = dynamic_cast<const c10::Error*>(&exception);
  return error != nullptr ? error->what_without_backtrace() : exception.what();
}

Error ErrorOf(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  const std::string what = FirstLine(WhatOf(exception));
  if (IsOutOfMemory(exception)) return UsageError("out of memory: {}: {}", kLessMemory, what);
  if (const auto* error = dynamic_cast<const std::filesystem::filesystem_error*>(&exception)) {
    // The path is shortened, because it may be too long for an error message.
    constexpr size_t kMost = 400;
    std::string path = error->path1().string();
    if (path.size() > kMost) path.replace(kMost / 2, path.size() - kMost, "...");
    return UsageError("{}: {}", path, error->code().message());
  }
  const bool of_libtorch = dynamic_cast<const c10::Error*>(&exception) != nullptr;
  return BugError("{}{}", of_libtorch ? "LibTorch: " : "", what);
}

void AgreeOnErrors(const std::optional<Error>& own, Communicator& host) {
  Report report;
  if (own) {
    report.status = static_cast<int32_t>(own->status());
    std::strncpy(report.message, own->what(), sizeof(report.message) - 1);
  }
  const std::vector<Report> reports = GatherValues(report, "errors of the ranks", host);
  const auto failed = [](const Report& r) { return r.status != 0; };
  const auto first = std::find_if(reports.begin(), reports.end(), failed);
  if (first == reports.end()) return;
  const bool same = std::all_of(reports.begin(), reports.end(), [&](const Report& r) {
    return failed(r) && std::strcmp(r.message, first->message) == 0;
  });
  const std::string rank = same ? "" : fmt::format("rank {}: ", first - reports.begin());
  throw Error::OnEveryRank(static_cast<ExitStatus>(first->status), rank + first->message);
}

int64_t FromRankZero(int64_t value, std::string_view what, Communicator& host) {
  const at::Tensor shared = at::full({1}, value, at::kLong);
  host.Broadcast(shared, 0, host.MakeLabel(what)).Wait();
  return shared.item<int64_t>();
}

bool OnAnyRank(bool own, std::string_view what, Communicator& host) {
  if (host.world_size() == 1) return own;
  const at::Tensor ranks = at::full({1}, own ? 1 : 0, at::kInt);
  host.AllReduceSum(ranks, host.MakeLabel(what)).Wait();
  return ranks.item<int>() > 0;
}

void GatherBytes(const void* own, size_t size, void* all, std::string_view what,
                 Communicator& host) {
  const at::Tensor sent = at::empty({static_cast<int64_t>(size)}, at::kByte);
  std::memcpy(sent.mutable_data_ptr(), own, size);
  const at::Tensor received = at::empty({host.world_size() * sent.numel()}, at::kByte);
  host.AllGather(received, sent, host.MakeLabel(what)).Wait();
  std::memcpy(all, received.const_data_ptr(), received.nbytes());
}

std::vector<std::string> GatherTexts(const std::string& own, std::string_view what,
                                     Communicator& host) {
  const Label label = host.MakeLabel(what);
  const at::Tensor size = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  const at::Tensor sizes = at::zeros({host.world_size()}, at::kLong);
  host.AllGather(sizes, size, label).Wait();
  const auto most = std::max<int64_t>(1, sizes.max().item<int64_t>());
  const at::Tensor sent = at::zeros({most}, at::kByte);
  std::memcpy(sent.mutable_data_ptr(), own.data(), own.size());
  const at::Tensor all = at::zeros({host.world_size() * most}, at::kByte);
  host.AllGather(all, sent, label).Wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < host.world_size(); ++rank) {
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + rank * most,
                       static_cast<size_t>(sizes[rank].item<int64_t>()));
  }
  return texts;
}

void RequireSame(const std::vector<std::string>& lines, Communicator& host) {
  const Label label = host.MakeLabel("what the ranks are about to do");
  // Each rank sends the length and the hash of its text. If the lengths and hashes of all ranks are equal, the texts
  // need not be sent.
  const std::string text = fmt::format("{}", fmt::join(lines, "\n"));
  const int64_t own[] = {static_cast<int64_t>(text.size()),
                         static_cast<int64_t>(std::hash<std::string>()(text))};
  const at::Tensor sent = at::zeros({2}, at::kLong);
  std::memcpy(sent.mutable_data_ptr(), own, sizeof(own));
  const at::Tensor all = at::zeros({host.world_size() * 2}, at::kLong);
  host.AllGather(all, sent, label).Wait();
  const at::Tensor first = all.narrow(0, 0, 2).repeat({host.world_size()});
  if (at::equal(all, first)) return;

  const at::Tensor rank_zeros = at::zeros({first[0].item<int64_t>()}, at::kByte);
  if (host.rank() == 0) std::memcpy(rank_zeros.mutable_data_ptr(), text.data(), text.size());
  host.Broadcast(rank_zeros, 0, label).Wait();
  std::vector<std::string> expected(1);
  for (int64_t i = 0; i < rank_zeros.numel(); ++i) {
    const char c = static_cast<char>(rank_zeros.const_data_ptr<uint8_t>()[i]);
    if (c == '\n') {
      expected.emplace_back();
    } else {
      expected.back() += c;
    }
  }
  std::optional<Error> error;
  const size_t both = std::min(lines.size(), expected.size());
  const auto [here, there] = std::mismatch(lines.begin(), lines.begin() + both, expected.begin());
  const auto line_at = [](const auto& position, const auto& end) {
    return position == end ? std::string("nothing more") : *position;
  };
  if (text.size() != static_cast<size_t>(rank_zeros.numel()) || here != lines.begin() + both) {
    error = UsageError(
        "{} where rank 0 has {}: start all ranks with the same program, config and files",
        line_at(here, lines.end()), line_at(there, expected.end()));
  }
  AgreeOnErrors(error, host);
}

}  // namespace lockstep
