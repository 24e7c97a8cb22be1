#include "launch/mpirun.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace lockstep {

std::vector<std::string> MpirunCommand(int ranks, const std::string& program,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"mpirun", "-n", std::to_string(ranks)};
  const auto add = [&](std::initializer_list<std::string> words) {
    command.insert(command.end(), words);
  };
  if (geteuid() == 0) add({"--allow-run-as-root"});
  // mpirun counts cores, not hardware threads, and refuses more ranks than that without a word.
  add({"--oversubscribe"});
  // With two ranks or fewer mpirun binds each to one core, which its loader's threads would share.
  add({"--bind-to", "none"});
  // Only errors of our own, not mpirun's pages about them.
  add({"-quiet"});
  // One machine needs no network and no ssh; shared memory without process_vm_readv works in
  // containers.
  add({"--mca", "plm", "isolated", "--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca",
       "btl_vader_single_copy_mechanism", "none"});
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::string ShellText(const std::vector<std::string>& command) {
  constexpr char kSafe[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  std::string text;
  for (const std::string& word : command) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kSafe) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

void Become(const std::vector<std::string>& command) {
  fmt::print(stderr, "{}\n", ShellText(command));
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  if (errno == ENOENT)
    throw UsageError("mpirun is not installed: apt-get install openmpi-bin, or leave out -n");
  throw UsageError("{} cannot be started: {}", command[0], std::strerror(errno));
}

}  // namespace lockstep
