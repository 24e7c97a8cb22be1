// Functions that all ranks call together to agree on a value, on an error, or on whether they do the same. If such a
// function fails, it fails on all ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace lockstep {

// Tells every rank what went wrong on each, if anything, and throws on all of them the error of the
// first rank that has one (Error::OnEveryRank); it names the rank unless all have the same. Every
// rank must call it.
void AgreeOnErrors(const std::optional<Error>& own, Communicator& host);

// Whether `own` is true on any rank; `what`: in words, for the flight record. Every rank must call it.
bool OnAnyRank(bool own, std::string_view what, Communicator& host);

// Rank 0's `value`, on every rank; `what`: in words, for the flight record. Every rank must call it.
int64_t FromRankZero(int64_t value, std::string_view what, Communicator& host);

// Compares lines that say what a rank is about to do with rank 0's. Throws Error (kUsage) on every
// rank where some differ, naming a rank and its first line that does. Every rank must call it.
void RequireSame(const std::vector<std::string>& lines, Communicator& host);

// Whether `exception` says that memory, of the device or the host, ran out.
bool IsOutOfMemory(const std::exception& exception);

// What helps against it.
inline constexpr char kLessMemory[] =
    "take a smaller model or inputs, precision: BF16, model.activation_checkpointing, or with "
    "several "
    "ranks optimizer.shard";

// What an exception says; LibTorch's end in a stack trace, which is left out.
std::string WhatOf(const std::exception& exception);

// An exception as the one line and the status that the user gets.
Error ErrorOf(const std::exception& exception);

// Calls `act` on every rank. No rank goes on unless all succeeded: an error on one, which may be
// that rank's alone (a file that only its machine lacks), is thrown on all.
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
