#include "prepare/new/find_data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/hidden_name.h"
#include "base/small_letters.h"
#include "data/arrays/cifar10.h"
#include "data/images/image_names.h"
#include "data/images/image_source.h"
#include "data/tables/csv_bytes.h"
#include "prepare/new/names.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kAccepted[] =
    "a CSV file or a folder with train.csv; a folder with a folder of images for each class, or "
    "with train and val folders of such; folders images and masks; .tar shards; x.npy and y.npy; "
    "MNIST's or CIFAR-10's files; train.bin and val.bin of tokens";

constexpr char kArraysByName[] =
    "an array of inputs and one of targets are named x.npy and y.npy; token numbers without "
    "targets are a token file: array.astype(\"uint16\").tofile(\"train.bin\")";

// Returns what a file is that is no data set, and what to do with it; an empty text for any other file.
std::string CureForFile(const std::string& name) {
  constexpr char kModel[] =
      "a model and no data: give the data, and name the model in the config (lockstep help "
      "pytorch)";
  static const std::map<std::string_view, const char*> kCures{
      {".jsonl", "JSON lines: write them as CSV (in pandas: read_json(lines=True), to_csv)"},
      {".json", "JSON: write it as CSV (in pandas: read_json, to_csv)"},
      {".xlsx", "a spreadsheet: write it as CSV (in pandas: read_excel, to_csv)"},
      {".xls", "a spreadsheet: write it as CSV (in pandas: read_excel, to_csv)"},
      {".ods", "a spreadsheet: write it as CSV (in pandas: read_excel, to_csv)"},
      {".feather", "a Feather table: write it as CSV (in pandas: read_feather, to_csv)"},
      {".arrow", "an Arrow table: write it as CSV (in pandas: read_feather, to_csv)"},
      {".parquet", "a Parquet table: write it as CSV (in pandas: read_parquet, to_csv)"},
      {".pkl", "a pickle: write a table as CSV, and arrays as x.npy and y.npy"},
      {".h5", "HDF5: save its arrays as x.npy and y.npy (numpy.save)"},
      {".hdf5", "HDF5: save its arrays as x.npy and y.npy (numpy.save)"},
      {".mat", "a file of MATLAB: save its arrays as x.npy and y.npy (numpy.save)"},
      {".tfrecord", "TFRecord: write a table as CSV, and images to a folder for each class"},
      {".pbtxt", "a config already: lockstep train trains it"},
      {".lsm", kModel},
      {".onnx", kModel},
      {".pt", kModel},
      {".pth", kModel},
      {".safetensors", kModel}};
  for (const auto& [ending, cure] : kCures) {
    if (InSmallLetters(name).ends_with(ending)) return cure;
  }
  return "";
}

// The part of the data set that a file or folder holds.
enum class Part { kNone, kTrain, kValidation, kTest };

Part PartOf(const std::string& word) {
  static const std::map<std::string, Part> kWords{
      {"train", Part::kTrain},      {"training", Part::kTrain},        {"val", Part::kValidation},
      {"valid", Part::kValidation}, {"validation", Part::kValidation}, {"dev", Part::kValidation},
      {"test", Part::kTest},        {"testing", Part::kTest},          {"t10k", Part::kTest}};
  const auto found = kWords.find(word);
  return found == kWords.end() ? Part::kNone : found->second;
}

// Returns the words of a file's name in lower case: "X_train.npy" -> x, train, npy.
std::vector<std::string> WordsOf(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : InSmallLetters(name)) {
    if (c == '_' || c == '-' || c == '.' || c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  std::erase(words, "");
  return words;
}

Part PartOfName(const std::string& name) {
  for (const std::string& word : WordsOf(name)) {
    if (const Part part = PartOf(word); part != Part::kNone) return part;
  }
  return Part::kNone;
}

// The entries of a folder, sorted by name, without hidden ones.
struct Folder {
  std::string path;
  std::vector<std::string> files;
  std::vector<std::string> folders;

  explicit Folder(std::string at) : path(std::move(at)) {
    VisitDirectory(path, [&](std::string_view name, EntryKind kind) {
      if (IsHiddenName(name)) return;
      (kind == EntryKind::kOther ? files : folders).emplace_back(name);
    });
    std::ranges::sort(files);
    std::ranges::sort(folders);
  }

  std::string At(const std::string& name) const {
    return (fs::path(path) / name).lexically_normal().string();
  }

  // Returns whether a file is a table, which may be compressed. The file's name decides, or the file's content if the
  // name is like train.zip or train.gz.
  bool IsTable(const std::string& name) const {
    std::string bare = InSmallLetters(name);
    bool is_packed = false;
    for (const std::string_view packed : {".gz", ".zip"}) {
      if (!bare.ends_with(packed)) continue;
      bare.erase(bare.size() - packed.size());
      is_packed = true;
    }
    if (IsPlainTableName(bare)) return true;
    return is_packed && bare.find('.') == bare.npos && HoldsTable(At(name));
  }

  // Returns whether a file is a sample submission: a table with "submission" in its name.
  bool IsSubmission(const std::string& name) const {
    return InSmallLetters(name).find("submission") != name.npos && IsTable(name);
  }
};

bool HoldsImages(const std::string& path) {
  const Folder folder(path);
  if (std::ranges::any_of(folder.files,
                          [](const std::string& name) { return IsImageName(name); })) {
    return true;
  }
  return std::ranges::any_of(folder.folders,
                             [&](const std::string& name) { return HoldsImages(folder.At(name)); });
}

// Returns whether `path` has class folders with images, or shards.
bool HoldsClasses(const std::string& path) {
  const Folder folder(path);
  if (std::ranges::any_of(folder.files,
                          [](const std::string& name) { return IsShardName(name); })) {
    return true;
  }
  return std::ranges::any_of(folder.folders,
                             [&](const std::string& name) { return HoldsImages(folder.At(name)); });
}

std::optional<FoundData> Table(const Folder& folder, const std::string& train) {
  FoundData found{.kind = DataKind::kTable, .train = {train}};
  for (const std::string& name : folder.files) {
    if (folder.At(name) == train || !folder.IsTable(name)) continue;
    if (folder.IsSubmission(name)) {
      if (found.submission.empty()) found.submission = folder.At(name);
    } else if (PartOfName(name) == Part::kTest && found.test.empty()) {
      found.test = {folder.At(name)};
    }
  }
  return found;
}

std::optional<FoundData> TrainTable(const Folder& folder) {
  for (const std::string& name : folder.files) {
    const bool is_train = PartOfName(name) == Part::kTrain && folder.IsTable(name);
    if (is_train && !folder.IsSubmission(name)) return Table(folder, folder.At(name));
  }
  return std::nullopt;
}

// Finds the only table of a folder without train.csv. Throws Error (kData) if there are several.
std::optional<FoundData> OnlyTable(const Folder& folder) {
  std::vector<std::string> tables;
  for (const std::string& name : folder.files) {
    const bool may_train = PartOfName(name) != Part::kTest && !folder.IsSubmission(name);
    if (may_train && folder.IsTable(name)) tables.push_back(folder.At(name));
  }
  if (tables.empty()) return std::nullopt;
  if (tables.size() > 1) {
    throw DataError("{}: {} tables ({}): call the one to train on train.csv, or give its path",
                    folder.path, tables.size(), fmt::join(tables, ", "));
  }
  return Table(folder, tables[0]);
}

std::optional<FoundData> Images(const Folder& folder) {
  FoundData found{.kind = DataKind::kImages};
  std::map<Part, std::string> parts;
  for (const std::string& name : folder.folders) {
    parts.try_emplace(PartOf(InSmallLetters(name)), folder.At(name));
  }
  for (const std::string& name : folder.files) {
    if (folder.IsSubmission(name)) found.submission = folder.At(name);
  }
  if (const auto train = parts.find(Part::kTrain);
      train != parts.end() && (HoldsClasses(train->second) || HoldsImages(train->second))) {
    found.train = {train->second};
    const auto validation = parts.find(Part::kValidation);
    const auto test = parts.find(Part::kTest);
    if (validation != parts.end()) found.validation = {validation->second};
    if (test != parts.end()) {
      // If there is no validation folder, test images in class folders serve for validation. Test images without
      // classes are to be predicted.
      (found.validation.empty() && HoldsClasses(test->second) ? found.validation
                                                              : found.test) = {test->second};
    }
    return found;
  }
  found.train = {folder.path};
  if (HoldsClasses(folder.path)) return found;
  if (HoldsImages(folder.path)) {
    throw DataError(
        "{}: images that lie in no folder of a class: make a folder for each class, with "
        "the class as its name, and put them there",
        folder.path);
  }
  return std::nullopt;
}

// The role of a file in a pair of arrays.
enum class Role { kNone, kInputs, kTargets };

Role RoleOf(const std::string& name) {
  static const std::set<std::string> kInputs{"x",       "inputs",   "input", "images",
                                             "image",   "features", "data",  "samples",
                                             "signals", "tokens",   "texts"};
  static const std::set<std::string> kTargets{"y",     "labels", "label",   "targets", "target",
                                              "masks", "mask",   "classes", "outputs"};
  for (std::string word : WordsOf(name)) {
    if (kInputs.contains(word)) return Role::kInputs;
    if (kTargets.contains(word)) return Role::kTargets;
    // The lines below recognize words such as xtrain and ytest.
    if (PartOf(word.substr(1)) == Part::kNone) continue;
    if (word[0] == 'x') return Role::kInputs;
    if (word[0] == 'y') return Role::kTargets;
  }
  return Role::kNone;
}

Part PartOfArray(const std::string& name) {
  for (const std::string& word : WordsOf(name)) {
    if (const Part part = PartOf(word); part != Part::kNone) return part;
    if (const Part part = PartOf(word.substr(1)); part != Part::kNone) return part;
  }
  return Part::kNone;
}

// The files of inputs and targets of each part.
using Pairs = std::map<Part, std::pair<std::string, std::string>>;

// Puts a part's inputs and targets into `files` if both exist.
void Take(const Pairs& pairs, Part part, std::vector<std::string>& files) {
  const auto pair = pairs.find(part);
  if (pair == pairs.end() || pair->second.first.empty() || pair->second.second.empty()) return;
  files = {pair->second.first, pair->second.second};
}

std::optional<FoundData> FromPairs(DataKind kind, const Folder& folder, const Pairs& pairs,
                                   const char* example) {
  if (pairs.empty()) return std::nullopt;
  FoundData found{.kind = kind};
  Take(pairs, Part::kNone, found.train);
  if (found.train.empty()) Take(pairs, Part::kTrain, found.train);
  if (found.train.empty()) {
    throw DataError("{}: no pair of inputs and targets: call the two files {}", folder.path,
                    example);
  }
  Take(pairs, Part::kValidation, found.validation);
  Take(pairs, Part::kTest, found.test);
  return found;
}

std::optional<FoundData> Arrays(const Folder& folder) {
  Pairs pairs;
  for (const std::string& name : folder.files) {
    if (!InSmallLetters(name).ends_with(".npy")) continue;
    const Role role = RoleOf(name);
    if (role == Role::kNone) continue;
    auto& [inputs, targets] = pairs[PartOfArray(name)];
    if (role == Role::kInputs) inputs = folder.At(name);
    if (role == Role::kTargets) targets = folder.At(name);
  }
  return FromPairs(DataKind::kNpy, folder, pairs, "x.npy and y.npy");
}

std::optional<FoundData> Mnist(const Folder& folder) {
  Pairs pairs;
  for (const std::string& name : folder.files) {
    const std::string small = InSmallLetters(name);
    const bool images = small.find("idx3-ubyte") != small.npos;
    const bool labels = small.find("idx1-ubyte") != small.npos;
    if (!images && !labels) continue;
    if (small.ends_with(".gz")) {
      throw DataError("{}: the file is compressed: run gunzip on it first", folder.At(name));
    }
    auto& [inputs, targets] = pairs[PartOfName(name)];
    (images ? inputs : targets) = folder.At(name);
  }
  return FromPairs(DataKind::kMnist, folder, pairs,
                   "train-images-idx3-ubyte and train-labels-idx1-ubyte");
}

// Adds the folders of images and of masks in `folder` to `pairs`. A folder belongs to `part` unless its own name says
// another part.
void FindMasks(const Folder& folder, Part part, Pairs& pairs) {
  static const std::set<std::string> kImages{"images", "image", "imgs", "img"};
  static const std::set<std::string> kMasks{"masks",       "mask",         "labels",
                                            "annotations", "segmentation", "segmentations"};
  for (const std::string& name : folder.folders) {
    const Part own = PartOfName(name);
    auto& [images, masks] = pairs[own == Part::kNone ? part : own];
    for (const std::string& word : WordsOf(name)) {
      if (kImages.contains(word)) images = folder.At(name);
      if (kMasks.contains(word)) masks = folder.At(name);
    }
  }
}

std::optional<FoundData> MaskedImages(const Folder& folder) {
  Pairs pairs;
  FindMasks(folder, Part::kNone, pairs);
  for (const std::string& name : folder.folders) {
    const Part part = PartOf(InSmallLetters(name));
    if (part != Part::kNone) FindMasks(Folder(folder.At(name)), part, pairs);
  }
  FoundData found{.kind = DataKind::kMasks};
  Take(pairs, Part::kTrain, found.train);
  if (found.train.empty()) Take(pairs, Part::kNone, found.train);
  if (found.train.empty() || !HoldsImages(found.train[0]) || !HoldsImages(found.train[1])) {
    return std::nullopt;
  }
  Take(pairs, Part::kValidation, found.validation);
  const auto test = pairs.find(Part::kTest);
  if (test != pairs.end() && !test->second.first.empty()) found.test = {test->second.first};
  for (const std::string& name : folder.folders) {
    if (found.test.empty() && PartOf(InSmallLetters(name)) == Part::kTest &&
        HoldsImages(folder.At(name))) {
      found.test = {folder.At(name)};
    }
  }
  return found;
}

bool IsCifar10(const std::string& path) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  const std::string name = InSmallLetters(fs::path(path).filename().string());
  return !error && name.find("batch") != name.npos && bytes > 0 && bytes % kCifar10RecordBytes == 0;
}

std::optional<FoundData> Binaries(const Folder& folder) {
  FoundData cifar{.kind = DataKind::kCifar10}, tokens{.kind = DataKind::kTokens};
  for (const std::string& name : folder.files) {
    if (!InSmallLetters(name).ends_with(".bin")) continue;
    const std::string path = folder.At(name);
    const Part part = PartOfName(name);
    if (IsCifar10(path)) {
      (part == Part::kTest ? cifar.test : cifar.train).push_back(path);
    } else if (part != Part::kNone) {
      (part == Part::kTrain  ? tokens.train
       : part == Part::kTest ? tokens.test
                             : tokens.validation)
          .push_back(path);
    }
  }
  if (!cifar.train.empty()) return cifar;
  if (!tokens.train.empty()) return tokens;
  return std::nullopt;
}

// Returns what to do with the files of a folder that holds no data set, if they are of a known kind; otherwise an empty
// text.
std::string CureFor(const Folder& folder) {
  const auto has = [](const Folder& where, const auto& is) {
    return std::ranges::any_of(where.files, is);
  };
  const auto is_array = [](const std::string& name) {
    return InSmallLetters(name).ends_with(".npy");
  };
  if (has(folder, [](const std::string& name) { return name == "config.pbtxt"; })) {
    return "a run's folder, which lockstep evaluate and lockstep predict take";
  }
  if (has(folder, is_array)) return kArraysByName;
  const bool has_texts =
      has(folder, IsTextFile) || std::ranges::any_of(folder.folders, [&](const std::string& name) {
        return has(Folder(folder.At(name)), IsTextFile);
      });
  if (has_texts) {
    return "text files: lockstep prepare tokens FILES --output train.bin makes a file of tokens "
           "for a language model; for texts with a label each see lockstep help text";
  }
  for (const std::string& name : folder.files) {
    const std::string other = CureForFile(name);
    if (!other.empty()) return name + " is " + other;
  }
  return "";
}

FoundData InFolder(const std::string& path) {
  const Folder folder(path);
  if (folder.files.empty() && folder.folders.empty()) {
    throw DataError("{}: the folder is empty: give {}", path, kAccepted);
  }
  for (const auto& find : {MaskedImages, TrainTable, Images, Arrays, Mnist, Binaries, OnlyTable}) {
    if (auto found = find(folder)) return *found;
  }
  if (const std::string cure = CureFor(folder); !cure.empty()) {
    throw DataError("{}: nothing to train on yet: {}", path, cure);
  }
  throw DataError("{}: nothing to train on: give {}", path, kAccepted);
}

// Finds the data set that consists of the file `path` and other files in the same folder.
// `expected` says which files these are.
FoundData Beside(const std::string& path, std::optional<FoundData> (*find)(const Folder&),
                 const char* expected) {
  const std::string parent = fs::path(path).parent_path().string();
  const auto found = find(Folder(parent.empty() ? "." : parent));
  if (!found) {
    throw DataError("{}: the files beside it make no data set with it: {}", path, expected);
  }
  return *found;
}

FoundData OfFile(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  const std::string small = InSmallLetters(name);
  if (IsShardName(name)) return {.kind = DataKind::kImages, .train = {path}};
  if (IsImageName(name)) {
    throw DataError("{}: one image: give the folder that holds a folder of images for each class",
                    path);
  }
  if (small.ends_with(".npz")) {
    throw DataError("{}: save its arrays as .npy files: x.npy and y.npy", path);
  }
  if (small.ends_with(".npy")) return Beside(path, Arrays, kArraysByName);
  if (const std::string cure = CureForFile(small); !cure.empty()) {
    throw DataError("{}: is {}", path, cure);
  }
  if (small.find("-ubyte") != small.npos)
    return Beside(path, Mnist, "images and labels, as MNIST has");
  if (small.ends_with(".bin")) {
    FoundData found = Beside(path, Binaries, "train.bin, and val.bin if there is one");
    if (found.kind != DataKind::kTokens) return found;
    // The file that the user gives is for training, whatever its name says.
    const auto is_path = [&](const std::string& other) { return fs::equivalent(other, path); };
    found.train = {path};
    std::erase_if(found.validation, is_path);
    std::erase_if(found.test, is_path);
    return found;
  }
  const std::string parent = fs::path(path).parent_path().string();
  FoundData found{.kind = DataKind::kTable, .train = {path}};
  // Other files in the folder belong to the table only if its name says that it is for training.
  if (PartOfName(name) != Part::kTrain) return found;
  const auto beside = Table(Folder(parent.empty() ? "." : parent), path);
  found.test = beside->test;
  found.submission = beside->submission;
  return found;
}

}  // namespace

bool IsTextFile(const std::string& path) {
  const std::string small = InSmallLetters(path);
  return small.ends_with(".txt") || small.ends_with(".md") || small.ends_with(".text");
}

FoundData FindData(const std::string& data, const std::string& test) {
  std::error_code error;
  const fs::file_status status = fs::status(data, error);
  if (!fs::exists(status)) throw DataError("{}: no such file or folder", data);
  if (!fs::is_directory(status) && !fs::is_regular_file(status)) {
    throw DataError("{}: neither a file nor a folder: give {}", data, kAccepted);
  }
  std::string path = data;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  FoundData found = fs::is_directory(status) ? InFolder(path) : OfFile(path);
  if (!test.empty()) {
    if (!fs::exists(test, error)) throw DataError("--test {}: no such file or folder", test);
    if (found.kind == DataKind::kNpy || found.kind == DataKind::kMnist) {
      throw UsageError("--test {}: is for tables, images and tokens", test);
    }
    found.test = {test};
  }
  return found;
}

}  // namespace lockstep
