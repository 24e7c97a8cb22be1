// Functions that all ranks call together to agree on a value, on an error, or on whether they do the same work. If such
// a function fails, it fails on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace lockstep {

// Does nothing if `own` is empty on all ranks. Otherwise throws on all ranks the error of the first rank that has an
// error (Error::OnEveryRank). The error names that rank, unless all ranks have the same error. Every rank must call
// this function.
void AgreeOnErrors(const std::optional<Error>& own, Communicator& host);

// Returns whether `own` is true on any rank. `what` describes the value in the flight record. Every rank must call this
// function.
bool OnAnyRank(bool own, std::string_view what, Communicator& host);

// Returns rank 0's `value` on every rank. `what` describes the value in the flight record. Every rank must call this
// function.
int64_t FromRankZero(int64_t value, std::string_view what, Communicator& host);

// Copies the `size` bytes at every rank's `own` to `all`, on every rank, in the order of the ranks. `what` describes
// the bytes in the flight record. Every rank must call this function with the same `size`.
void GatherBytes(const void* own, size_t size, void* all, std::string_view what,
                 Communicator& host);

// Returns every rank's value, on every rank, in the order of the ranks. `what` describes the value in the flight
// record. Every rank must call this function.
template <typename Value>
std::vector<Value> GatherValues(const Value& own, std::string_view what, Communicator& host) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(static_cast<size_t>(host.world_size()));
  GatherBytes(&own, sizeof(own), all.data(), what, host);
  return all;
}

// Returns every rank's text, on every rank, in the order of the ranks. `what` describes the text in the flight record.
// Every rank must call this function.
std::vector<std::string> GatherTexts(const std::string& own, std::string_view what,
                                     Communicator& host);

// Compares this rank's `lines`, which say what the rank is about to do, with rank 0's lines. If the lines of any rank
// differ, throws Error (kUsage) on every rank; the error names a rank and the first line that differs. Every rank must
// call this function.
void RequireSame(const std::vector<std::string>& lines, Communicator& host);

// Returns whether `exception` says that the device or the host ran out of memory.
bool IsOutOfMemory(const std::exception& exception);

// Advice for a user whose memory runs out.
inline constexpr char kLessMemory[] =
    "take a smaller model or inputs, precision: BF16, model.activation_checkpointing, or with "
    "several "
    "ranks optimizer.shard";

// Returns the message of an exception. LibTorch's messages end in a stack trace, which is left out.
std::string WhatOf(const std::exception& exception);

// Converts an exception to an Error, which has a message of one line and an exit status.
Error ErrorOf(const std::exception& exception);

// Calls `act` on every rank. If `act` fails on any rank, for example because a file is missing on one machine, this
// function throws that error on all ranks, so no rank goes on. Every rank must call Together().
template <typename Act>
void Together(Communicator& host, const Act& act) {
  std::optional<Error> own;
  try {
    act();
  } catch (const std::exception& exception) {
    own = ErrorOf(exception);
  }
  AgreeOnErrors(own, host);
}

}  // namespace lockstep
