#include "tests/faults/power_cut.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A file or a folder. Like an inode, a Node does not contain its own name.
struct Node {
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  bool is_folder = false;
  std::vector<Names> names{{}};  // folder: the names at the last sync, and after each later change
  std::string synced_bytes, bytes;  // file: the content at the last sync, and now
};

// The place of a path: the folder that contains it, and the name in that folder.
struct Place {
  std::shared_ptr<Node> folder;
  std::string name;

  std::shared_ptr<Node> node() const {
    const auto found = folder->names.back().find(name);
    return found == folder->names.back().end() ? nullptr : found->second;
  }
  void Set(std::shared_ptr<Node> node) const {
    Node::Names names = folder->names.back();
    if (node) {
      names[name] = std::move(node);
    } else {
      names.erase(name);
    }
    folder->names.push_back(std::move(names));
  }
};

Place PlaceOf(const std::shared_ptr<Node>& root, const std::string& path) {
  Place place{.folder = root, .name = ""};
  for (const fs::path& part : fs::path(path)) {
    if (part.empty() || part == ".") continue;
    if (!place.name.empty()) place.folder = place.node();
    place.name = part.string();
    if (!place.folder) throw std::runtime_error("no such folder: " + path);
  }
  return place;
}

void Sync(Node& node) {
  node.synced_bytes = node.bytes;
  node.names = {node.names.back()};
}

void Make(const Node& node, RecordedCalls::Kept kept, std::mt19937& random, const fs::path& path) {
  using Kept = RecordedCalls::Kept;
  if (!node.is_folder) {
    std::string bytes = kept == Kept::kNothing ? node.synced_bytes : node.bytes;
    if (kept == Kept::kSome && node.bytes != node.synced_bytes) {
      bytes = node.bytes.substr(0, random() % (node.bytes.size() + 1));
      if (random() % 2 == 0) std::fill(bytes.begin(), bytes.end(), '\0');
      // Bytes that were synced survive the power failure.
      bytes.replace(0, std::min(bytes.size(), node.synced_bytes.size()), node.synced_bytes);
    }
    std::ofstream(path, std::ios::binary) << bytes;
    return;
  }
  fs::create_directories(path);
  const size_t last = node.names.size() - 1;
  const size_t change = kept == Kept::kNothing ? 0
                        : kept == Kept::kAll   ? last
                                               : random() % (last + 1);
  for (const auto& [name, child] : node.names[change]) Make(*child, kept, random, path / name);
}

}  // namespace

RecordedCalls::RecordedCalls(const std::string& log, std::string root) : root_(std::move(root)) {
  std::ifstream file(log, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Call call;
    words >> call.name;
    for (std::string word; words >> word;) {
      if (word.starts_with("/")) {
        call.paths.push_back(word);
      } else {
        call.numbers.push_back(std::stoll(word));
      }
    }
    if (call.name == "write" || call.name == "say") {
      call.bytes.resize(call.numbers.back());
      file.read(call.bytes.data(), static_cast<std::streamsize>(call.bytes.size()));
    }
    calls_.push_back(std::move(call));
  }
}

std::string RecordedCalls::SaidIn(size_t calls) const {
  std::string said;
  for (size_t i = 0; i < calls; ++i) {
    if (calls_[i].name == "say") said += calls_[i].bytes;
  }
  return said;
}

void RecordedCalls::Restore(size_t calls, Kept kept, std::mt19937& random,
                            const std::string& folder) const {
  const auto root = std::make_shared<Node>();
  root->is_folder = true;
  const auto place_of = [&](const std::string& path) {
    return PlaceOf(root, fs::path(path).lexically_relative(root_).string());
  };
  for (size_t i = 0; i < calls; ++i) {
    const Call& call = calls_[i];
    if (call.name == "say") continue;
    const Place place = place_of(call.paths.front());
    const std::shared_ptr<Node> node = place.name.empty() ? root : place.node();
    if (call.name == "create") {
      if (!node) place.Set(std::make_shared<Node>());
    } else if (call.name == "mkdir") {
      const auto made = std::make_shared<Node>();
      made->is_folder = true;
      place.Set(made);
    } else if (call.name == "write") {
      node->bytes.resize(std::max<size_t>(node->bytes.size(), call.numbers[0] + call.numbers[1]));
      node->bytes.replace(call.numbers[0], call.numbers[1], call.bytes);
    } else if (call.name == "truncate") {
      node->bytes.resize(call.numbers[0]);
    } else if (call.name == "sync") {
      Sync(*node);
    } else if (call.name == "rename") {
      const Place to = place_of(call.paths[1]);
      if (to.folder != place.folder) throw std::runtime_error("renamed into another folder");
      Node::Names names = place.folder->names.back();
      names.erase(place.name);
      names[to.name] = node;
      place.folder->names.push_back(std::move(names));  // a rename is one change
    } else {
      place.Set(nullptr);  // unlink, rmdir
    }
  }
  Make(*root, kept, random, folder);
}

}  // namespace lockstep
