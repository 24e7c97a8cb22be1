// `lockstep bundle`: packs this program into one archive (a bundle) for a machine that has only a torch wheel, or into
// a wheel that pip installs beside torch.
//
// Promise: the archive unpacks to one folder. The program in this folder runs from any path. It needs a machine of the
// same CPU architecture, a glibc and a libstdc++ that are new enough, and a Python that has a torch wheel. The wheel's
// torch must have the same first two version numbers (such as 2.11), and must be built for the same CUDA, as a torch with
// which the program was linked: a bundle may have the program several times, linked with several torches, and the start
// script takes the one that fits. The program runs as one process, or as several ranks that the bundle's own mpirun
// starts. The libraries of the wheels and of glibc are not in the bundle but only on the machine, so none of them is
// loaded twice. Two bundles of the same program have the same bytes. The archive is written completely or not at all,
// and never replaces an existing file.
//
// How: the bundle contains the program that runs (/proc/self/exe), so a user's program with models of its own can
// bundle itself.
//   1. ldd tells which libraries the program, mpirun, the programs that mpirun starts and Open MPI's plugins need. A
//      plugin counts as a plugin of a network if it needs a library that none of these programs needs (FindOpenMpi()
//      lists exceptions). Plugins of networks are left out, because the ranks that a bundle starts run on one machine.
//      Open MPI is the one whose mpirun is first in PATH, of series 4 or 5
//   2. the needed libraries are copied into the bundle, except the libraries of glibc, of the wheels and of the
//      compiler (libstdc++ and libgcc_s, because torch needs the machine's own versions)
//   3. objdump tells which versions of glibc and libstdc++ the bundle's programs, libraries and plugins need. These
//      versions, and the libraries, versions and packages of the wheels, go into manifest.json. The start script
//      (launch/bundle/bundle_start.py) compares manifest.json with the machine
//   4. tar and gzip write the archive to memory. Its bytes are then written to a temporary file beside the final path,
//      and this file gets the final name when all bytes are on the disk
//
//   lockstep/lockstep             the start script
//   lockstep/bin/                 mpirun, and orted (Open MPI 5: prterun, prted); torch-2.11/: the program that was linked
//                                 with torch 2.11, stripped
//   lockstep/lib/                 libraries; openmpi/ and pmix/: plugins, which packages of Open MPI 5 may not have
//   lockstep/share/, etc/         Open MPI's, PMIx's and PRRTE's texts and settings
//   lockstep/examples/digits/     a config and its data
//   lockstep/manifest.json        the list of the bundle's files, and the versions that the bundle needs
//
// A wheel contains the files of a bundle, in the folder lockstep/_program, and the modules of the Python package
// (python/lockstep). These modules start the program through the start script. The wheel's platform tag names the
// newest version of glibc that the wheel's files need. launch/bundle/wheel_archive.py writes the wheel with Python's
// zipfile.
//
// what can fail -> what the user sees -> the test that shows it (tests/bundle_test.py)
//   a file with the archive's name exists -> Error (kUsage); that file is left as it is -> test_nothing_is_replaced
//   strip, tar, mpirun or another tool is not installed -> Error (kUsage) that names its package
//     -> test_a_missing_tool_is_said
//   this program was started from a bundle -> Error (kUsage) -> test_a_bundle_makes_no_bundle
//   the archive cannot be written (no such folder, no permission, disk full) -> Error (kCheckpoint); no part of the
//     archive is left
//     -> test_an_archive_that_cannot_be_written
//   mpirun is of another series than the program's libmpi -> Error (kUsage) that names both
//     -> test_an_mpirun_of_another_series
//   mpirun and this program use two libraries of Open MPI with the same name -> Error (kUsage) that names both paths
//     -> (needs a broken machine)
//   two programs were linked with the same torch, or one with none -> Error (kUsage) that names them
//     -> test_another_program_must_fit
//   a wheel with that name exists, or its folder does not exist -> Error (kUsage)
//     -> tests/python_test.py, test_a_wheel_that_cannot_be_made
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Packs this program, whose version is `version`, into the file `archive`. `also` are the paths of the same program,
// built with other torches. Throws Error (kUsage, kCheckpoint).
void MakeBundle(const std::string& archive, const std::string& version,
                const std::vector<std::string>& also);

// Packs this program and `also`, as MakeBundle() does, into a wheel in `folder`, which must exist. Throws Error (kUsage,
// kCheckpoint).
void MakeWheel(const std::string& folder, const std::string& version,
               const std::vector<std::string>& also);

// If this program belongs to a bundle, returns the path of the bundle's start script, through which other processes
// must start the program. Otherwise returns `program`.
std::string StartScriptOr(const std::string& program);

}  // namespace lockstep
