#include "launch/bundle/bundle.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/kept_files.h"
#include "base/files/output_file.h"
#include "base/files/scratch_folder.h"
#include "base/say.h"
#include "launch/bundle/program_needs.h"
#include "launch/bundle/weak_symbols.h"
#include "launch/machine/shared_memory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kStart[] =
#include "launch/bundle/bundle_start.inc"
    ;
constexpr char kConfig[] =
#include "launch/bundle/bundle_config.inc"
    ;
constexpr char kDigits[] =
#include "launch/bundle/bundle_digits.inc"
    ;
constexpr char kDigitsReadme[] =
#include "launch/bundle/bundle_digits_readme.inc"
    ;

constexpr char kWheelArchive[] =
#include "launch/bundle/bundle_wheel_archive.inc"
    ;

// The files of the Python package. For each file, the array has the file's path in a wheel and the file's text, each
// with a terminating zero byte.
constexpr char kPackage[] =
#include "launch/bundle/bundle_package.inc"
    ;

constexpr char kManifest[] = "manifest.json";

// The programs that are needed to make a bundle, and the Debian and Ubuntu packages that contain them.
constexpr std::pair<const char*, const char*> kTools[] = {{"tar", "tar"},
                                                          {"gzip", "gzip"},
                                                          {"ldd", "libc-bin"},
                                                          {"strip", "binutils"},
                                                          {"objdump", "binutils"},
                                                          {"mpirun", "openmpi-bin"},
                                                          {"ompi_info", "openmpi-bin"}};

constexpr std::pair<const char*, const char*> kPython{"python3", "python3"};

// The folder of a wheel that contains the files of a bundle.
constexpr char kProgramInWheel[] = "lockstep/_program";

std::string ThisProgram() { return fs::read_symlink("/proc/self/exe"); }

// Returns the folder of the bundle to which `program` belongs; an empty string if `program` belongs to no bundle.
std::string BundleOf(const std::string& program) {
  const fs::path folder = fs::path(program).parent_path().parent_path();
  const bool is_bundle = fs::path(program).parent_path().filename() == "bin" &&
                         access((folder / kManifest).c_str(), F_OK) == 0;
  return is_bundle ? folder.string() : "";
}

// The folder in which the torch wheel was installed (site-packages), and the versions in the wheel's file
// torch/version.py.
struct Torch {
  std::string site;
  std::string version;  // such as "2.11.0", without "+cu130"
  std::string cuda;     // such as "13.0"
};

Torch TorchOf(const Libraries& libraries) {
  const auto c10 = libraries.find("libc10.so");
  if (c10 == libraries.end()) throw BugError("the program needs no libc10.so");
  // The library's path is SITE/torch/lib/libc10.so.
  const fs::path package = fs::path(c10->second).parent_path().parent_path();
  Torch torch{.site = package.parent_path(), .version = "", .cuda = ""};
  std::ifstream file(package / "version.py");
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find('\''), end = line.rfind('\'');
    if (begin == end) continue;
    const std::string value = line.substr(begin + 1, end - begin - 1);
    if (line.starts_with("__version__")) torch.version = value.substr(0, value.find('+'));
    if (line.starts_with("cuda")) torch.cuda = value;
  }
  if (torch.version.empty() || torch.cuda.empty()) {
    throw UsageError(
        "{}: names no version with CUDA: a bundle is made with the torch wheel of "
        "third_party/requirements.txt",
        (package / "version.py").string());
  }
  return torch;
}

// A folder in /dev/shm in which the files of a bundle or a wheel are collected before they are packed.
class Stage {
 public:
  explicit Stage(std::string root) : root_(std::move(root)) {}

  std::string Path(const std::string& name) {
    const std::string path = root_ + "/" + name;
    std::error_code error;
    fs::create_directories(fs::path(path).parent_path(), error);
    return path;
  }

  // Writes `text` to the file `name` of this folder. Throws Error (kCheckpoint).
  void Write(const std::string& name, std::string_view text) {
    errno = 0;
    std::ofstream file(Path(name), std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) {
      throw CheckpointError("{}: cannot be written: {}; {}", Path(name), std::strerror(errno),
                            kMoreSharedMemory);
    }
    files_.insert(name);
  }

  void Copy(const std::string& from, const std::string& name) {
    errno = 0;
    std::ifstream file(from, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file.good() && !file.eof()) {
      throw UsageError("{}: cannot be read: {}", from, std::strerror(errno));
    }
    if (name.starts_with("lib/libevent")) MakeWeak(bytes, {"arc4random", "arc4random_buf"});
    Write(name, bytes);
  }

  // Copies the files whose names begin with "help-" from the folder `from` to the folder `name`. Open MPI and PMIx read
  // their error messages from these files.
  void CopyHelpTexts(const std::string& from, const std::string& name) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
      const std::string file = entry.path().filename();
      if (file.starts_with("help-")) Copy(entry.path(), name + "/" + file);
    }
  }

  // Adds `name` to files(). Call it for each file that a tool, and not this class, writes into this folder.
  void Add(const std::string& name) { files_.insert(name); }

  void SetExecutable(const std::string& name) { chmod(Path(name).c_str(), 0755); }

  const std::set<std::string>& files() const { return files_; }

 private:
  std::string root_;
  std::set<std::string> files_;
};

// The files of the Open MPI that is installed on this machine.
struct OpenMpi {
  std::vector<std::string> programs;  // mpirun, and the programs that it starts
  std::vector<std::string> plugins;   // Open MPI's plugins
  std::vector<std::string> pmix_plugins;
  // Folders of help texts, each with its folder in a bundle. The launcher of Open MPI 5 (PRRTE) has one of its own.
  std::vector<std::pair<std::string, std::string>> texts;
  std::string settings;  // folder of openmpi-mca-params.conf
  Libraries libraries;   // the libraries that these files and this program need
};

std::vector<std::string> SharedObjectsIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".so" &&
        entry.path().filename().string().find("mca_") != std::string::npos) {
      paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

// Returns the folder that `ompi_info --path NAME` prints. If the Open MPI of `mpirun` lies elsewhere than it was
// installed, as PyPI's does, the folder is the one there. Throws Error (kUsage) if ompi_info prints none.
std::string OpenMpiFolder(const std::string& name, const std::string& mpirun) {
  const auto printed = [](const std::string& path) {
    const std::string key = "path:" + path + ":";
    const std::string output = OutputOf({"ompi_info", "--parsable", "--path", path});
    const size_t begin = output.find(key);
    if (begin == std::string::npos) throw UsageError("ompi_info --path {} names no folder", path);
    return FirstLine(std::string_view(output).substr(begin + key.size()));
  };
  const std::string folder = printed(name);
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  const std::string prefix = printed("prefix");
  if (!folder.starts_with(prefix + "/")) return folder;
  return fs::path(mpirun).parent_path().parent_path().string() + folder.substr(prefix.size());
}

// Returns the programs of Open MPI that start ranks on one machine: mpirun, and those that mpirun starts. Throws Error
// (kUsage) if mpirun is of another series than the library in `libraries`, which this program needs.
std::vector<std::string> LaunchersOf(const Libraries& libraries) {
  constexpr char kPackage[] = "openmpi-bin";
  const std::string mpirun = FindTool("mpirun", kPackage);
  const std::string version = FirstLine(OutputOf({mpirun, "--version"}));
  // Only Open MPI 4 has this library. Its mpirun says "mpirun (Open MPI) 4.1.4".
  const bool library_is_4 = libraries.contains("libopen-rte.so.40");
  const bool is_4 = version.find("(Open MPI) 4.") != std::string::npos;
  if (is_4 != library_is_4) {
    throw UsageError(
        "{} is {}, and the program takes a libmpi of Open MPI {}: put that one's mpirun first into "
        "PATH, or that mpirun's libraries into LD_LIBRARY_PATH",
        mpirun, version, library_is_4 ? "4" : "5");
  }
  std::vector<std::string> programs{mpirun};
  if (is_4) {
    programs.push_back(FindTool("orted", kPackage));
    return programs;
  }
  for (const char* name : {"prterun", "prted"}) programs.push_back(FindTool(name, kPackage));
  // PyPI's mpirun only finds out where it is, and then starts this program, which lies beside it.
  const fs::path wrapped = fs::canonical(mpirun).parent_path() / "ompirun_wrapper";
  if (access(wrapped.c_str(), X_OK) == 0) programs.push_back(wrapped);
  return programs;
}

// Finds the files of Open MPI on this machine, and the libraries that these files need. Adds the libraries in `also`,
// which this program needs, to the result. Throws Error (kUsage).
OpenMpi FindOpenMpi(const Libraries& also) {
  OpenMpi mpi;
  mpi.programs = LaunchersOf(also);
  const std::string& mpirun = mpi.programs.front();
  for (const Libraries& libraries : LibrariesOf(mpi.programs)) {
    mpi.libraries.insert(libraries.begin(), libraries.end());
  }
  // If Open MPI has its own libevent or hwloc, mpirun uses the program's, which has the same interface.
  const auto is_of_mpi = [](const std::string& library) {
    return library.starts_with("libopen-") || library.starts_with("libpmix.") ||
           library.starts_with("libprrte.");
  };
  for (const auto& [name, path] : mpi.libraries) {
    const auto other = also.find(name);
    if (other != also.end() && other->second != path && is_of_mpi(name)) {
      throw UsageError(
          "{} takes {} from {} and the program from {}: put the mpirun that the program was built "
          "with first into PATH",
          mpirun, name, path, other->second);
    }
  }
  Libraries both = also;
  both.merge(mpi.libraries);
  mpi.libraries = std::move(both);
  // A plugin that does not use a network may need these libraries besides those in `mpi.libraries`: system libraries,
  // Open MPI's own libraries, libmunge, and libpmix, through which mpirun communicates with its ranks.
  const auto may_be_added = [](const std::string& library) {
    return IsTheSystems(library) || library.starts_with("libmca_common_") ||
           library.starts_with("libpmix.") || library.starts_with("libmunge.");
  };
  // In the packages of Open MPI 5 that we know the libraries themselves have all that others have in plugins.
  const std::string folder = OpenMpiFolder("pkglibdir", mpirun);
  const std::vector<std::string> plugins = SharedObjectsIn(folder);
  if (plugins.empty() && also.contains("libopen-rte.so.40")) {
    throw UsageError("{}: no plugins here", folder);
  }
  const std::vector<Libraries> needs =
      plugins.empty() ? std::vector<Libraries>{} : LibrariesOf(plugins);
  Libraries plugin_libraries;
  for (size_t i = 0; i < plugins.size(); ++i) {
    const bool is_for_one_machine = std::ranges::all_of(needs[i], [&](const auto& library) {
      return mpi.libraries.contains(library.first) || may_be_added(library.first);
    });
    if (!is_for_one_machine) continue;
    mpi.plugins.push_back(plugins[i]);
    plugin_libraries.insert(needs[i].begin(), needs[i].end());
  }
  mpi.libraries.merge(plugin_libraries);
  mpi.settings = OpenMpiFolder("sysconfdir", mpirun);
  const fs::path texts = OpenMpiFolder("pkgdatadir", mpirun);
  mpi.texts = {{texts, "share/openmpi"}, {texts.parent_path() / "prte", "share/prte"}};
  if (const auto pmix = mpi.libraries.find("libpmix.so.2"); pmix != mpi.libraries.end()) {
    const fs::path folder = fs::canonical(pmix->second).parent_path();
    mpi.pmix_plugins = SharedObjectsIn(folder / "pmix");
    const fs::path own = folder.parent_path() / "share/pmix";
    std::error_code error;
    mpi.texts.emplace_back(fs::is_directory(own, error) ? own : texts.parent_path() / "pmix",
                           "share/pmix");
    if (!mpi.pmix_plugins.empty()) {
      for (const Libraries& libraries : LibrariesOf(mpi.pmix_plugins)) {
        mpi.libraries.insert(libraries.begin(), libraries.end());
      }
    }
  }
  return mpi;
}

std::string ManifestText(const std::string& program, const std::string& version, const Torch& torch,
                         const SymbolVersions& symbols,
                         const std::vector<std::pair<std::string, std::string>>& wheel_libraries,
                         const std::set<std::string>& files) {
  // The code of data/images/nvjpeg.h loads this library at run time, if the machine has the library.
  constexpr char kNvjpeg[] = "nvidia/cu13/lib/libnvjpeg.so.13";
  std::vector<std::string> wheel_files{kNvjpeg};
  for (const auto& [name, file] : wheel_libraries) wheel_files.push_back(file);
  const std::map<std::string, Wheel> wheels = WheelsOf(wheel_files, torch.site);
  std::string pip = fmt::format("torch=={}", torch.version);
  if (const auto nvjpeg = wheels.find(kNvjpeg); nvjpeg != wheels.end()) {
    pip += fmt::format(" {}=={}", nvjpeg->second.package, nvjpeg->second.version);
  }
  nlohmann::json by_library = nlohmann::json::object();
  for (const auto& [name, file] : wheel_libraries) {
    const auto wheel = wheels.find(file);
    if (wheel == wheels.end()) {
      throw UsageError(
          "{}/{} belongs to no package that pip installed: a bundle is made with the "
          "wheels of third_party/requirements.txt",
          torch.site, file);
    }
    by_library[name] = {
        {"file", file}, {"package", wheel->second.package}, {"version", wheel->second.version}};
  }
  utsname machine{};
  uname(&machine);
  const nlohmann::json manifest{{"program", program},
                                {"version", version},
                                {"architecture", machine.machine},
                                {"glibc", symbols.glibc},
                                {"glibcxx", symbols.glibcxx},
                                {"torch", torch.version},
                                {"cuda", torch.cuda},
                                {"pip", pip},
                                {"wheels", by_library},
                                {"files", files}};
  return manifest.dump(1) + "\n";
}

// The oldest version of glibc with which the files of a bundle work, and the version of torch with which the program
// was linked.
struct Needs {
  std::string glibc;
  std::string torch;
};

// Copies `program` to bin/NAME of `stage`, where NAME is `name`, and adds all other files of a bundle.
Needs Fill(Stage& stage, const std::string& program, const std::string& name,
           const std::string& version) {
  const Libraries needs = LibrariesOf({program}).front();
  const Torch torch = TorchOf(needs);
  const OpenMpi mpi = FindOpenMpi(needs);

  OutputOf({"strip", "-o", stage.Path("bin/" + name), program});
  stage.Add("bin/" + name);
  std::vector<std::string> programs{name, "bin/" + name};
  for (const std::string& path : mpi.programs) {
    programs.push_back("bin/" + fs::path(path).filename().string());
    stage.Copy(path, programs.back());
  }
  std::vector<std::pair<std::string, std::string>> wheel_libraries;
  for (const auto& [library, path] : mpi.libraries) {
    if (IsTheSystems(library)) continue;
    if (path.starts_with(torch.site + "/")) {
      wheel_libraries.emplace_back(library, path.substr(torch.site.size() + 1));
    } else {
      stage.Copy(path, "lib/" + library);
    }
  }
  for (const auto& [folder, plugins] :
       {std::pair("lib/openmpi/", mpi.plugins), std::pair("lib/pmix/", mpi.pmix_plugins)}) {
    for (const std::string& plugin : plugins) {
      stage.Copy(plugin, folder + fs::path(plugin).filename().string());
    }
  }
  std::vector<std::string> binaries;
  for (const std::string& file : stage.files()) binaries.push_back(stage.Path(file));
  const SymbolVersions symbols = SymbolVersionsOf(binaries);

  for (const auto& [from, to] : mpi.texts) stage.CopyHelpTexts(from, to);
  for (const char* part : {"openmpi", "prte", "pmix"}) {
    const std::string file = fmt::format("{}-mca-params.conf", part);
    const std::string path = mpi.settings + "/" + file;
    if (access(path.c_str(), R_OK) == 0) stage.Copy(path, "etc/" + file);
  }
  stage.Write("examples/digits/train.pbtxt", kConfig);
  stage.Write("examples/digits/digits.csv", kDigits);
  stage.Write("examples/digits/README.md", kDigitsReadme);
  stage.Write(name, kStart);
  for (const std::string& file : programs) stage.SetExecutable(file);
  stage.Write(kManifest,
              ManifestText(name, version, torch, symbols, wheel_libraries, stage.files()));
  return {.glibc = symbols.glibc, .torch = torch.version};
}

void RequireNew(const std::string& archive) {
  struct stat status {};
  if (lstat(archive.c_str(), &status) == 0) {
    throw UsageError("{}: is there already: remove it, or give another name", archive);
  }
  KeptFiles().Require(archive, archive);
}

void RequireNoBundle(const std::string& program) {
  if (const std::string bundle = BundleOf(program); !bundle.empty()) {
    throw UsageError(
        "this program is that of the bundle {}: pack that folder, or make a bundle "
        "where the program was built",
        bundle);
  }
}

void RequireFolder(const ScratchFolder& scratch) {
  if (scratch.path().empty())
    throw UsageError("/dev/shm: no folder can be made there; {}", kMoreSharedMemory);
}

// Writes `bytes` to the file `archive`, completely or not at all. Throws Error (kCheckpoint) if this fails or if the
// file exists already.
void WriteArchive(const std::string& archive, const std::string& bytes) {
  const std::string partial = fmt::format("{}.tmp.{}", archive, getpid());
  try {
    WriteDurably(partial, kInRunFolder,
                 [&](const AppendBytes& append) { append(std::as_bytes(std::span(bytes))); });
    RenameWithoutReplacing(partial, archive, kSaving);
  } catch (...) {
    unlink(partial.c_str());
    throw;
  }
  SyncFolder(ParentFolder(archive), kSaving);
}

// Writes the files of the Python package (kPackage) to `stage`.
void WritePackage(Stage& stage) {
  auto next = [rest = std::string_view(kPackage, sizeof(kPackage) - 1)]() mutable {
    const size_t length = rest.find('\0');
    const std::string_view text = rest.substr(0, length);
    rest.remove_prefix(length == std::string_view::npos ? rest.size() : length + 1);
    return text;
  };
  for (std::string_view path = next(); !path.empty(); path = next()) {
    stage.Write(std::string(path), next());
  }
}

// Converts a version of glibc ("2.34") to the platform tag of a wheel ("manylinux_2_34_x86_64").
std::string PlatformTag(std::string glibc) {
  std::ranges::replace(glibc, '.', '_');
  utsname machine{};
  uname(&machine);
  return fmt::format("manylinux_{}_{}", glibc, machine.machine);
}

}  // namespace

void MakeBundle(const std::string& archive, const std::string& version) {
  const std::string program = ThisProgram();
  if (!archive.ends_with(".tar.gz") && !archive.ends_with(".tgz")) {
    throw UsageError("{}: a bundle is a tar file: give it a name that ends in .tar.gz", archive);
  }
  RequireNew(archive);
  RequireNoBundle(program);
  // The tools are looked for first, so that an error about a missing tool comes before any work is done.
  for (const auto& [tool, package] : kTools) FindTool(tool, package);

  const ScratchFolder scratch;
  RequireFolder(scratch);
  const std::string name = fs::path(program).filename();
  Stage stage(scratch.path() + "/" + name);
  Fill(stage, program, name, version);
  const std::string bytes = OutputOf({"tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                                      "--numeric-owner", "--mode=u+rw,go=u,go-w", "--format=ustar",
                                      "-I", "gzip -n", "-C", scratch.path(), "-cf", "-", name});
  WriteArchive(archive, bytes);
  Print("{}: {:.1f} MB, {} files; tar -xzf it anywhere and run {}/{}\n", archive,
        bytes.size() * 1e-6, stage.files().size(), name, name);
}

void MakeWheel(const std::string& folder, const std::string& version) {
  const std::string program = ThisProgram();
  RequireNoBundle(program);
  for (const auto& [tool, package] : kTools) FindTool(tool, package);
  FindTool(kPython.first, kPython.second);
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError("{}: is no folder: --wheel takes one that is there", folder);
  }

  const ScratchFolder scratch;
  RequireFolder(scratch);
  const std::string name = fs::path(program).filename();
  Stage stage(fmt::format("{}/{}", scratch.path(), kProgramInWheel));
  const Needs needs = Fill(stage, program, name, version);
  Stage package(scratch.path());
  WritePackage(package);
  const std::string tag = "py3-none-" + PlatformTag(needs.glibc);
  const std::string wheel =
      (fs::path(folder) / fmt::format("lockstep-{}-{}.whl", version, tag)).string();
  RequireNew(wheel);
  const std::string bytes = OutputOf({kPython.first, "-I", "-S", "-c", kWheelArchive,
                                      scratch.path(), "lockstep", version, tag, needs.torch, name});
  WriteArchive(wheel, bytes);
  Print("{}: {:.1f} MB, {} files; pip install it beside torch {}\n", wheel, bytes.size() * 1e-6,
        stage.files().size() + package.files().size(), needs.torch);
}

std::string StartScriptOr(const std::string& program) {
  const std::string real = ThisProgram();
  const std::string bundle = BundleOf(real);
  return bundle.empty() ? program : bundle + "/" + fs::path(real).filename().string();
}

}  // namespace lockstep
