#include "launch/bundle/bundle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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

std::vector<std::string> WithThisProgram(std::vector<std::string> programs) {
  programs.insert(programs.begin(), ThisProgram());
  return programs;
}

// Returns the folder of the bundle to which `program` (BUNDLE/bin/torch-2.11/lockstep) belongs; an empty string if
// `program` belongs to no bundle.
std::string BundleOf(const std::string& program) {
  const fs::path bin = fs::path(program).parent_path().parent_path();
  const bool is_bundle =
      bin.filename() == "bin" && access((bin.parent_path() / kManifest).c_str(), F_OK) == 0;
  return is_bundle ? bin.parent_path().string() : "";
}

// The folder in which the torch wheel was installed (site-packages), and the versions in the wheel's file
// torch/version.py.
struct Torch {
  std::string site;
  std::string version;  // such as "2.11.0", without "+cu130"
  std::string cuda;     // such as "13.0"
};

Torch TorchOf(const std::string& program, const Libraries& libraries) {
  const auto c10 = libraries.find("libc10.so");
  if (c10 == libraries.end()) {
    throw UsageError("{}: needs no libc10.so of LibTorch, so it is not this program", program);
  }
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
        "{}: names no version with CUDA: a bundle is made with a torch wheel of "
        "third_party/torch",
        (package / "version.py").string());
  }
  return torch;
}

// Returns the part of `torch`'s version that must be the same where the program runs: "2.11" of "2.11.0".
std::string SeriesOf(const Torch& torch) {
  return torch.version.substr(0, torch.version.find('.', torch.version.find('.') + 1));
}

// This program, built with one torch.
struct Build {
  std::string program;  // its path
  Libraries needs;
  Torch torch;
};

// Returns what `programs` need. Throws Error (kUsage) if two of them were built with torches of the same series.
std::vector<Build> BuildsOf(const std::vector<std::string>& programs) {
  std::vector<Build> builds;
  for (const std::string& program : programs) {
    const Libraries needs = LibrariesOf({program}).front();
    builds.push_back({program, needs, TorchOf(program, needs)});
    for (const Build& other : std::span(builds).first(builds.size() - 1)) {
      if (SeriesOf(other.torch) != SeriesOf(builds.back().torch)) continue;
      throw UsageError("{} and {} were both built with torch {}: give one for each torch",
                       other.program, program, SeriesOf(other.torch));
    }
  }
  return builds;
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
  std::string folder = printed(name);
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  const std::string prefix = printed("prefix");
  if (!folder.starts_with(prefix + "/")) return folder;
  return fs::path(mpirun).parent_path().parent_path().string() + folder.substr(prefix.size());
}

// Returns whether `libraries` are those of Open MPI 4, which alone has this one.
bool IsOpenMpi4(const Libraries& libraries) { return libraries.contains("libopen-rte.so.40"); }

// Returns the programs of Open MPI that start ranks on one machine: mpirun, and those that mpirun starts. Throws Error
// (kUsage) if mpirun is of another series than the library in `libraries`, which this program needs.
std::vector<std::string> LaunchersOf(const Libraries& libraries) {
  constexpr char kPackage[] = "openmpi-bin";
  const std::string mpirun = FindTool("mpirun", kPackage);
  const bool is_4 = IsOpenMpi4(LibrariesOf({mpirun}).front());
  if (is_4 != IsOpenMpi4(libraries)) {
    throw UsageError(
        "{} is of Open MPI {}, and the program takes a libmpi of Open MPI {}: put that one's "
        "mpirun "
        "first into PATH, or that mpirun's libraries into LD_LIBRARY_PATH",
        mpirun, is_4 ? "4" : "5", is_4 ? "5" : "4");
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

// Finds the files of Open MPI on this machine, and the libraries that these files need. Adds the libraries that `builds`
// need to the result. Throws Error (kUsage) if mpirun and a program need libraries of Open MPI that have one name and are
// not one file, or if two programs need such libraries that do not come with torch.
OpenMpi FindOpenMpi(const std::vector<Build>& builds) {
  OpenMpi mpi;
  mpi.programs = LaunchersOf(builds.front().needs);
  const std::string& mpirun = mpi.programs.front();
  for (const Libraries& libraries : LibrariesOf(mpi.programs)) {
    mpi.libraries.insert(libraries.begin(), libraries.end());
  }
  const auto is_of_mpi = [](const std::string& library) {
    return library.starts_with("libopen-") || library.starts_with("libpmix.") ||
           library.starts_with("libprrte.");
  };
  Libraries of_programs;
  for (const Build& build : builds) {
    for (const auto& [name, path] : build.needs) {
      const auto mpis = mpi.libraries.find(name);
      if (mpis != mpi.libraries.end() && mpis->second != path && is_of_mpi(name)) {
        throw UsageError(
            "{} takes {} from {} and the program from {}: put the mpirun that the program was "
            "built with first into PATH",
            mpirun, name, mpis->second, path);
      }
      const auto [other, is_new] = of_programs.try_emplace(name, path);
      if (is_new || other->second == path || path.starts_with(build.torch.site + "/")) continue;
      throw UsageError("{} takes {} from {} and {} from {}: build both on the same machine",
                       builds.front().program, name, other->second, build.program, path);
    }
  }
  // If Open MPI has its own libevent or hwloc, mpirun uses the program's, which has the same interface.
  of_programs.merge(mpi.libraries);
  mpi.libraries = std::move(of_programs);
  // A plugin that does not use a network may need these libraries besides those in `mpi.libraries`: system libraries,
  // Open MPI's own libraries, libmunge, and libpmix, through which mpirun communicates with its ranks.
  const auto may_be_added = [](const std::string& library) {
    return IsTheSystems(library) || library.starts_with("libmca_common_") ||
           library.starts_with("libpmix.") || library.starts_with("libmunge.");
  };
  // In the packages of Open MPI 5 that we know the libraries themselves have all that others have in plugins.
  const std::string folder = OpenMpiFolder("pkglibdir", mpirun);
  const std::vector<std::string> plugins = SharedObjectsIn(folder);
  if (plugins.empty() && IsOpenMpi4(builds.front().needs)) {
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

// Returns the part of the manifest that the start script reads if it finds the torch of `build`: `file` is the program's
// path in the bundle, and `wheel_libraries` are the names of libraries and their paths below the folder of the wheels.
nlohmann::json ManifestOf(const Build& build, const std::string& file,
                          const std::vector<std::pair<std::string, std::string>>& wheel_libraries) {
  const Torch& torch = build.torch;
  std::vector<std::string> wheel_files;
  for (const auto& [name, path] : wheel_libraries) wheel_files.push_back(path);
  // The code of data/images/nvjpeg.h loads this library at run time, if the machine has the library.
  const std::string major = torch.cuda.substr(0, torch.cuda.find('.'));
  // The wheels of CUDA 12 have a folder each.
  const std::string nvjpeg_file =
      fmt::format("nvidia/{}/lib/libnvjpeg.so.{}", major == "12" ? "nvjpeg" : "cu" + major, major);
  wheel_files.push_back(nvjpeg_file);
  const std::map<std::string, Wheel> wheels = WheelsOf(wheel_files, torch.site);
  std::string pip = fmt::format("torch=={}", torch.version);
  if (const auto nvjpeg = wheels.find(nvjpeg_file); nvjpeg != wheels.end()) {
    pip += fmt::format(" {}=={}", nvjpeg->second.package, nvjpeg->second.version);
  }
  nlohmann::json by_library = nlohmann::json::object();
  for (const auto& [name, path] : wheel_libraries) {
    const auto wheel = wheels.find(path);
    if (wheel == wheels.end()) {
      throw UsageError(
          "{}/{} belongs to no package that pip installed: a bundle is made with the "
          "wheels of third_party/torch",
          torch.site, path);
    }
    by_library[name] = {
        {"file", path}, {"package", wheel->second.package}, {"version", wheel->second.version}};
  }
  return {{"file", file},
          {"torch", torch.version},
          {"cuda", torch.cuda},
          {"pip", pip},
          {"wheels", by_library}};
}

// The oldest version of glibc with which the files of a bundle work, and the series of torch for which it has a program.
struct Needs {
  std::string glibc;
  std::vector<std::string> torches;
};

// Copies the programs of `builds` to bin/torch-SERIES/NAME of `stage`, where NAME is `name`, and adds all other files of
// a bundle.
Needs Fill(Stage& stage, const std::vector<Build>& builds, const std::string& name,
           const std::string& version) {
  const OpenMpi mpi = FindOpenMpi(builds);
  std::vector<std::string> executables{name};
  for (const std::string& path : mpi.programs) {
    executables.push_back("bin/" + fs::path(path).filename().string());
    stage.Copy(path, executables.back());
  }
  nlohmann::json programs = nlohmann::json::array();
  Needs needs;
  std::set<std::string> in_wheels;
  for (const Build& build : builds) {
    needs.torches.push_back(SeriesOf(build.torch));
    const std::string file = fmt::format("bin/torch-{}/{}", needs.torches.back(), name);
    OutputOf({"strip", "-o", stage.Path(file), build.program});
    stage.Add(file);
    executables.push_back(file);
    std::vector<std::pair<std::string, std::string>> wheel_libraries;
    for (const auto& [library, path] : build.needs) {
      if (IsTheSystems(library) || !path.starts_with(build.torch.site + "/")) continue;
      wheel_libraries.emplace_back(library, path.substr(build.torch.site.size() + 1));
      in_wheels.insert(path);
    }
    programs.push_back(ManifestOf(build, file, wheel_libraries));
  }
  for (const auto& [library, path] : mpi.libraries) {
    if (!IsTheSystems(library) && !in_wheels.contains(path)) stage.Copy(path, "lib/" + library);
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
  needs.glibc = symbols.glibc;

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
  for (const std::string& file : executables) stage.SetExecutable(file);
  utsname machine{};
  uname(&machine);
  const nlohmann::json manifest{{"version", version},     {"architecture", machine.machine},
                                {"glibc", symbols.glibc}, {"glibcxx", symbols.glibcxx},
                                {"programs", programs},   {"files", stage.files()}};
  stage.Write(kManifest, manifest.dump(1) + "\n");
  return needs;
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

void MakeBundle(const std::string& archive, const std::string& version,
                const std::vector<std::string>& also) {
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
  Fill(stage, BuildsOf(WithThisProgram(also)), name, version);
  const std::string bytes = OutputOf({"tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                                      "--numeric-owner", "--mode=u+rw,go=u,go-w", "--format=ustar",
                                      "-I", "gzip -n", "-C", scratch.path(), "-cf", "-", name});
  WriteArchive(archive, bytes);
  Print("{}: {:.1f} MB, {} files; tar -xzf it anywhere and run {}/{}\n", archive,
        bytes.size() * 1e-6, stage.files().size(), name, name);
}

void MakeWheel(const std::string& folder, const std::string& version,
               const std::vector<std::string>& also) {
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
  const Needs needs = Fill(stage, BuildsOf(WithThisProgram(also)), name, version);
  Stage package(scratch.path());
  WritePackage(package);
  const std::string tag = "py3-none-" + PlatformTag(needs.glibc);
  const std::string wheel =
      (fs::path(folder) / fmt::format("lockstep-{}-{}.whl", version, tag)).string();
  RequireNew(wheel);
  const std::string bytes =
      OutputOf({kPython.first, "-I", "-S", "-c", kWheelArchive, scratch.path(), "lockstep", version,
                tag, fmt::format("{}", fmt::join(needs.torches, ",")), name});
  WriteArchive(wheel, bytes);
  Print("{}: {:.1f} MB, {} files; pip install it beside torch {}\n", wheel, bytes.size() * 1e-6,
        stage.files().size() + package.files().size(), fmt::join(needs.torches, ", "));
}

std::string StartScriptOr(const std::string& program) {
  const std::string real = ThisProgram();
  const std::string bundle = BundleOf(real);
  return bundle.empty() ? program : bundle + "/" + fs::path(real).filename().string();
}

}  // namespace lockstep
