// PlanFile: the file that keeps the plans of operations (matrix products, convolutions) from one run to the next. A key
// identifies an operation, and a plan says how to compute the operation. Keys and plans are texts of one line each. The
// code in this file needs no GPU.
//
// Promise: a run never fails because of the file. If the file cannot be read or written, the run goes on without the
// file. All processes that share a file use the same plan for a key, from the first use on: Keep() returns the plan of
// the process that wrote first.
//
// Protocol:
//   1. Each kind of operation, such as "products", has one file for each device, FOLDER/KIND-DEVICE.txt. The device's
//      text names the GPU's model, its multiprocessors and the library's version, because a plan is valid only for
//      these.
//   2. A line is a key, " = ", the key's plan, and the XXH3 checksum of the key, the plan and the device's text. A line
//      is ignored if it is not exactly the line that this program would write, for example because it is cut short,
//      damaged, or from another device or version.
//   3. Keep() locks FOLDER/KIND-DEVICE.txt.lock, reads the file again, because other processes may have written to it,
//      adds its own line, and replaces the file by a new file with all good lines (base/files/new_file.h). Readers find
//      a whole file or no file. Keep() waits at most a second for the lock. If the lock is not free by then, or if the
//      file system does not support locks, Keep() continues without a lock.
//
// what can fail -> what the caller sees -> the test that shows it (ops/plan/plan_file_test.cc)
//   `folder` is empty, or the folder cannot be written -> plans are not kept -> PlanFile.GoesWithoutAFolder
//   the disk is full -> the file stays as it was -> PlanFile.AFullDiskKeepsWhatWasThere
//   the file is truncated, damaged or from another device -> its valid lines are used -> PlanFile.DropsBadLines
//   several processes write at once -> the file has all keys, each with one plan -> PlanFile.ManyWriteAtOnce
//   the library refuses a plan of the file -> the plan is replaced -> PlanFile.ReplacesWhatIsOfNoUse
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::ops {

using PlanTexts = std::map<std::string, std::string>;  // the plan of each key

// PlanLine() converts a key and its plan to a line of the file (without the line end), and ParsePlanLine() converts the
// line back. ParsePlanLine() returns nullopt if the line is damaged or from another device. A key must not contain " =
// ".
std::string PlanLine(const std::string& device, const std::string& key, const std::string& plan);
std::optional<std::pair<std::string, std::string>> ParsePlanLine(const std::string& device,
                                                                 const std::string& line);

class PlanFile {
 public:
  // Makes the path FOLDER/KIND-DEVICE.txt from the arguments. If `folder` is empty, there is no file. `kind` is
  // "products", for example.
  PlanFile(const std::string& folder, std::string_view kind, std::string device);

  const std::string& path() const { return path_; }

  // Returns the plans in the file's valid lines, or no plans if the file cannot be read.
  PlanTexts Read() const;

  // Returns the file's plans, including the plan to use for `key`. If another process has already written a plan for
  // `key`, and is_usable() returns true for the written plan, the written plan is used. Otherwise `plan` is used, and
  // Keep() writes `plan` to the file if the file can be written.
  PlanTexts Keep(const std::string& key, const std::string& plan,
                 const std::function<bool(const std::string&)>& is_usable) const;

 private:
  void Write(const PlanTexts& plans) const;

  std::string device_;
  std::string path_;
};

}  // namespace lockstep::ops
