// The file that keeps from one run to the next by which plan an operation is computed: a product's, a
// convolution's. A key says which operation, and a plan how; both are texts of one line. Nothing here needs a GPU.
//
// Promise: no file ever makes a run fail: where none can be read or written, there is none. All who share a
// file use the same plan of a key, from the first use on: Keep() gives the plan of whoever came first.
//
// Protocol:
//   1. A device's file is FOLDER/KIND-DEVICE.txt. The device's text names the GPU's model, its
//      multiprocessors and the library's version: a plan means nothing elsewhere.
//   2. A line is a key, " = ", its plan, and XXH3 of those and the device's text. A line that is not what this
//      program would write for what it says is passed over: cut short, damaged, of another device or version.
//   3. Keep() locks FOLDER/KIND-DEVICE.txt.lock, reads what others have written meanwhile, adds its line,
//      and replaces the file by all that is good (base/files/new_file.h): readers find a whole file or none.
//      It waits a second for the lock and then goes on without; so it does where there are no locks.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/ops/plan/plan_file_test.cc)
//   no home, a folder that cannot be written -> plans that are not kept -> PlanFile.GoesWithoutAFolder
//   a full disk -> the file as it was -> PlanFile.AFullDiskKeepsWhatWasThere
//   a file that is cut short, damaged or of another device -> its good lines -> PlanFile.DropsBadLines
//   several write at once -> one plan of a key, and all keys -> PlanFile.ManyWriteAtOnce
//   a plan that the library refuses -> it is replaced -> PlanFile.ReplacesWhatIsOfNoUse
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::ops {

using PlanTexts = std::map<std::string, std::string>;  // by key

// A line without its end, and back; nothing: it is none of this device's. There is no " = " in a key.
std::string PlanLine(const std::string& device, const std::string& key, const std::string& plan);
std::optional<std::pair<std::string, std::string>> ParsePlanLine(const std::string& device,
                                                                 const std::string& line);

class PlanFile {
 public:
  // An empty folder: no file. kind: "products".
  PlanFile(const std::string& folder, std::string_view kind, std::string device);

  const std::string& path() const { return path_; }

  // What it has now; it is read whole.
  PlanTexts Read() const;

  // Returns what it has now, with the plan to use for `key`: the one that someone has put there, if it
  // `is_usable`; else `plan`, which is there from now on, if it can be.
  PlanTexts Keep(const std::string& key, const std::string& plan,
                 const std::function<bool(const std::string&)>& is_usable) const;

 private:
  void Write(const PlanTexts& plans) const;

  std::string device_;
  std::string path_;
};

}  // namespace lockstep::ops
