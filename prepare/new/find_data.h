// Finds out what kind of data a user's training files hold, by their names and first bytes.
//
// The kinds, in the order in which they are looked for in a folder: folders of images and of their masks (images/ and
// masks/, also with train, val or test in or above their names), a table (train.csv, with test.csv and a
// *submission*.csv beside it, each also as .csv.gz, .csv.zip, .gz or .zip), folders of images (train/ with val/, or
// class folders), tar shards of images, arrays (x.npy and y.npy, with train, val or test in their names), MNIST's idx
// files, CIFAR-10's batches, token files (train.bin, val.bin), a table with another name if it is the only table.
//
// what can fail -> what the caller sees -> the test that shows it (tests/new_test.py)
//   no such file, nothing in the folder that can be trained on, several tables, an array without its targets -> Error
//     (kData, kUsage) that says what was found and which files would be accepted -> test_mistakes_are_one_line
#pragma once

#include <string>
#include <vector>

namespace lockstep {

enum class DataKind { kTable, kImages, kMasks, kNpy, kMnist, kCifar10, kTokens };

struct FoundData {
  DataKind kind = DataKind::kTable;
  std::vector<std::string> train;
  std::vector<std::string> validation;  // empty: a part of the training samples must be held back
  std::vector<std::string> test;        // files to predict or to evaluate on
  std::string submission;               // a sample submission file; empty: none
};

// Returns whether the name of a file says that it holds text, such as "a.txt". A table may have such a name, too.
bool IsTextFile(const std::string& path);

// Finds the data set of `data`, a file or a folder. `test` is the user's test file; empty: none. Throws Error (kData,
// kUsage).
FoundData FindData(const std::string& data, const std::string& test);

}  // namespace lockstep
