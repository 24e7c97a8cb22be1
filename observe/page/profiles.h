// Profiles: reads the summaries of a run's profiles, RUN/profiles/STEP/summary.json.
//
// Promise: a file is read again only when it has changed. If there are more than 6 profiles, only the first profile and
// the 5 newest profiles are read.
//
// what can fail -> what the caller sees -> the test that shows it (observe/page/profiles_test.cc)
//   a summary is not JSON, too long, a link or a pipe, or cannot be read -> an object with step and `why_not`
//     -> ProfilesTest.SaysWhatCannotBeRead
//   there are no profiles -> an empty list -> ProfilesTest.ReadsTheFirstAndTheNewest
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

class Profiles {
 public:
  explicit Profiles(const std::string& run_dir) : folder_(run_dir + "/profiles") {}

  // Reads the summaries that have changed. Returns whether any summary has changed.
  bool Refresh();

  // Returns a list with the summary of each profile, in the order of their steps.
  nlohmann::ordered_json Json() const;

  // Returns a line for each of these summaries that cannot be read.
  std::vector<std::string> Unreadable() const;

  // Returns how many profiles the run has, including those that were not read.
  size_t count() const { return count_; }

 private:
  struct Summary {
    std::filesystem::file_time_type changed;
    uintmax_t bytes = 0;
    nlohmann::ordered_json json;
    bool operator==(const Summary& other) const {
      return changed == other.changed && bytes == other.bytes;
    }
  };

  std::string PathOf(int64_t step) const {
    return folder_ + "/" + std::to_string(step) + "/summary.json";
  }

  std::string folder_;
  std::map<int64_t, Summary> summaries_;  // by step
  size_t count_ = 0;
};

}  // namespace lockstep
