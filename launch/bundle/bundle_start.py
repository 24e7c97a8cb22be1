#!/usr/bin/env -S python3 -S
"""Starts the program of this bundle, with the LibTorch of a torch wheel on this machine.

    lockstep/lockstep -n 2 train mine.pbtxt
    python3 lockstep/lockstep version           with the given Python, and the torch that this Python has
    LOCKSTEP_TORCH=/path/site-packages ...      with the torch of that folder

Promise: the program starts with everything that it needs, or this script prints one line that says what is missing and
what to do, and exits with status 2. No library is loaded twice: libraries are looked for in lib/ of the bundle, in the
folders of the wheels, and then in the machine's own folders, in this order. manifest.json lists the program's needs.
This script does not import torch, because that takes seconds.

what can fail -> what the user sees -> the test that shows it (tests/bundle_test.py)
  there is no torch, or no program fits its version or its CUDA -> the pip command to run, for the nearest version
    -> test_another_torch_is_said, test_the_nearest_torch_is_named
  a library of a wheel, or of the bundle, is missing -> the library's name, and how to get it
    -> test_a_missing_library_is_said
  the machine's glibc or libstdc++ is too old, or the CPU architecture differs -> what the machine has or lacks, and
    what the bundle needs
    -> test_another_machine_is_said
  files of the bundle are not executable -> the script makes them executable, or says what to do
    -> test_files_that_cannot_be_executed
"""

import _signal

# From here on Ctrl-C ends this script without a traceback. The built-in `_signal` is used, because importing `signal`
# takes milliseconds, in which Ctrl-C would print a traceback. By default Python imports `site` before a script starts,
# which takes time, too. Python is therefore started with -S, which leaves `site` out, and this script calls site.main()
# below.
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

if sys.flags.no_site:
    import site

    site.main()

ROOT = os.path.dirname(os.path.realpath(__file__))
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def fail(what):
    sys.stderr.write("lockstep: error: %s\n" % " ".join(what.split()))
    sys.exit(2)


def numbers(version):
    """Returns the numbers of a version, for example [2, 11, 0] for "2.11.0+cu130"."""
    found = []
    for part in version.split("+")[0].split("."):
        digits = ""
        for c in part:
            if not c.isdigit():
                break
            digits += c
        if not digits:
            break
        found.append(int(digits))
    return found


def read_manifest():
    try:
        with open(os.path.join(ROOT, "manifest.json")) as file:
            manifest = json.load(file)
    except (OSError, ValueError) as error:
        fail("%s: %s: unpack the bundle again" % (os.path.join(ROOT, "manifest.json"), error))
    for name in manifest["files"]:
        if not os.path.isfile(os.path.join(ROOT, name)):
            fail("%s is missing: unpack the bundle again" % os.path.join(ROOT, name))
    return manifest


def check_machine(manifest):
    machine = os.uname().machine
    if machine != manifest["architecture"]:
        fail("this bundle is for %s, and this machine is %s: make one there" % (manifest["architecture"], machine))
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        libc = ""
    name, _, version = libc.partition(" ")
    if name != "glibc":
        fail("this machine's libc is not glibc, which the program and torch need: take Debian, Ubuntu or the like")
    if numbers(version) < numbers(manifest["glibc"]):
        fail(
            "this machine has glibc %s and the program needs %s: take a newer system, or make the bundle on an older one"
            % (version, manifest["glibc"])
        )


def check_libstdcxx(manifest, folders):
    """Prints an error and exits with status 2 if libstdc++ is missing or too old.

    Without this check the dynamic loader would print an error of its own and exit with another status.
    """
    usual = ["/lib/%s-linux-gnu" % manifest["architecture"], "/usr/lib/%s-linux-gnu" % manifest["architecture"]]
    for folder in folders + usual + ["/lib64", "/usr/lib64", "/lib", "/usr/lib"]:
        try:
            with open(os.path.join(folder, "libstdc++.so.6"), "rb") as file:
                has_it = manifest["glibcxx"].encode() + b"\0" in file.read()
        except OSError:
            continue
        if not has_it:
            fail(
                "%s/libstdc++.so.6 has no %s, which the program needs: install a newer libstdc++6, or make the bundle "
                "on an older system" % (folder, manifest["glibcxx"])
            )
        return
    fail("this machine has no libstdc++.so.6, which the program and torch need: apt-get install libstdc++6")


def where_to_look():
    """Returns the folders from which this Python imports packages; if $LOCKSTEP_TORCH is set, only that folder."""
    named = os.environ.get("LOCKSTEP_TORCH")
    if named:
        named = os.path.abspath(named)
        # $LOCKSTEP_TORCH may also be the folder of the package torch itself.
        if os.path.basename(named) == "torch" and os.path.isdir(os.path.join(named, "lib")):
            named = os.path.dirname(named)
        return [named]
    return [folder for folder in sys.path[1:] if os.path.isdir(folder)]


def version_of(site, package):
    """Returns the version of `package`, as pip installed it in `site`; None if `site` does not have the package."""
    begin = package.replace("-", "_") + "-"
    try:
        for name in os.listdir(site):
            if name.startswith(begin) and name.endswith(".dist-info"):
                return name[len(begin) : -len(".dist-info")]
    except OSError:
        pass
    return None


def torch_versions(site):
    """Returns the version of the torch in `site` (or "of no version") and its CUDA version (or None if unknown)."""
    version, cuda = version_of(site, "torch"), None
    try:
        with open(os.path.join(site, "torch", "version.py")) as file:
            for line in file:
                name, _, value = line.partition("=")
                value = value.strip().strip("'\"")
                if name.strip() == "__version__":
                    version = value
                elif name.split(":")[0].strip() == "cuda":
                    cuda = value
    except OSError:
        pass
    return version or "of no version", cuda


def nearest_program(programs, version):
    """Returns the program that was built with the torch nearest to `version`; of two, the one with the newer torch."""

    def place(name):
        major, minor = (numbers(name) + [0, 0])[:2]
        return major * 1000 + minor

    return min(programs, key=lambda program: (abs(place(program["torch"]) - place(version)), -place(program["torch"])))


def find_torch(manifest, sites):
    """Returns the first of the folders `sites` that has torch, which is the torch that this Python would import, and
    the program of the manifest that was built with this torch.

    Prints an error and exits with status 2 if there is no torch, or if no program fits its version (such as 2.11) and
    CUDA.
    """
    programs = manifest["programs"]
    wanted = " or ".join("torch %s for CUDA %s" % (program["torch"], program["cuda"]) for program in programs)
    elsewhere = ", or set LOCKSTEP_TORCH to a site-packages folder that has it"
    for site in sites:
        if not os.path.isdir(os.path.join(site, "torch")):
            continue
        version, cuda = torch_versions(site)
        program = nearest_program(programs, version)
        if numbers(version)[:2] != numbers(program["torch"])[:2]:
            fail(
                "torch %s in %s: the program needs %s: pip install %s%s"
                % (version, site, wanted, program["pip"], elsewhere)
            )
        if cuda != program["cuda"]:
            # Without --force-reinstall, pip would keep an installed 2.11.0+cu128, because this version satisfies
            # "torch==2.11.0".
            fail(
                "torch %s in %s is built for %s: the program needs %s: pip install --force-reinstall %s%s"
                % (version, site, "the CPU alone" if cuda in (None, "None") else "CUDA " + cuda, wanted,
                   program["pip"], elsewhere)
            )
        return site, program
    place = sites[0] if os.environ.get("LOCKSTEP_TORCH") else sys.executable
    newest = max(programs, key=lambda program: numbers(program["torch"]))
    fail("no torch in %s: the program needs %s: pip install %s%s" % (place, wanted, newest["pip"], elsewhere))


def find_libraries(program, torch, sites):
    """Returns the folders of the wheels' libraries: torch/lib first, then the folders of the other libraries that the
    program links, and then those of libraries that are loaded at run time.

    Prints an error and exits with status 2 if a linked library is missing, or if NCCL or cuDNN is too old or has
    another major version.
    """
    folders = []
    sites = [torch] + [site for site in sites if site != torch]
    for name in sorted(program["wheels"]):
        wheel = program["wheels"][name]
        for site in sites:
            if os.path.isfile(os.path.join(site, wheel["file"])):
                break
        else:
            fail(
                "%s is not in %s: pip install --force-reinstall %s==%s"
                % (wheel["file"], torch, wheel["package"], wheel["version"])
            )
        # The program uses functions that older versions of NCCL and cuDNN do not have.
        if name.startswith(("libnccl.", "libcudnn.")):
            found, needed = version_of(site, wheel["package"]), wheel["version"]
            if found is None or numbers(found)[:1] != numbers(needed)[:1] or numbers(found) < numbers(needed):
                fail(
                    "%s %s in %s: the program needs %s: pip install %s==%s"
                    % (wheel["package"], found or "is not", site, needed, wheel["package"], needed)
                )
        folder = os.path.dirname(os.path.join(site, wheel["file"]))
        if folder not in folders:
            folders.append(folder)
    folders.sort(key=lambda folder: not folder.endswith("/torch/lib"))
    # The folders nvidia/*/lib hold libraries that are loaded only when they are needed: nvJPEG and parts of cuDNN.
    for site in sites:
        try:
            packages = sorted(os.listdir(os.path.join(site, "nvidia")))
        except OSError:
            continue
        for package in packages:
            folder = os.path.join(site, "nvidia", package, "lib")
            if folder not in folders and os.path.isdir(folder):
                folders.append(folder)
    return folders


def make_executable(folder):
    """Makes the files in `folder` executable, because some notebook services drop file modes on unpacking."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            continue
        try:
            os.chmod(path, 0o755)
        except OSError as error:
            fail("%s may not be executed: %s: copy the bundle to where it may, cp -r %s /tmp"
                 % (path, error.strerror, ROOT))


def main():
    manifest = read_manifest()
    check_machine(manifest)
    sites = where_to_look()
    torch, program = find_torch(manifest, sites)
    library_path = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders = [os.path.join(ROOT, "lib")] + find_libraries(program, torch, sites)
    # The folders of LD_LIBRARY_PATH are kept, because on some machines the GPU driver's libraries are in one of them.
    folders += [folder for folder in library_path if folder not in folders]
    check_libstdcxx(manifest, folders)
    path = os.path.join(ROOT, program["file"])
    make_executable(os.path.join(ROOT, "bin"))
    make_executable(os.path.dirname(path))
    environment = dict(
        os.environ,
        LD_LIBRARY_PATH=":".join(folders),
        # The folder of this Python precedes the user's PATH, so that `env` starts the same Python if the program starts
        # this script again.
        PATH=":".join(
            [os.path.join(ROOT, "bin"), os.path.dirname(sys.executable), os.environ.get("PATH") or STANDARD_PATH]
        ),
        # These variables name the folders in which Open MPI, PMIx, PRRTE (the launcher of Open MPI 5) and hwloc look for
        # their plugins and help texts, and the program that the mpirun of Open MPI 5 starts.
        OPAL_PREFIX=ROOT,
        OPAL_LIBDIR=os.path.join(ROOT, "lib"),
        OPAL_PKGLIBDIR=os.path.join(ROOT, "lib/openmpi"),
        OPAL_PKGDATADIR=os.path.join(ROOT, "share/openmpi"),
        OPAL_SYSCONFDIR=os.path.join(ROOT, "etc"),
        PMIX_PREFIX=ROOT,
        PMIX_LIBDIR=os.path.join(ROOT, "lib"),
        PMIX_PKGLIBDIR=os.path.join(ROOT, "lib/pmix"),
        PMIX_PKGDATADIR=os.path.join(ROOT, "share/pmix"),
        PMIX_SYSCONFDIR=os.path.join(ROOT, "etc"),
        PRTE_PREFIX=ROOT,
        PRTE_LIBDIR=os.path.join(ROOT, "lib"),
        PRTE_PKGLIBDIR=os.path.join(ROOT, "lib/prte"),
        PRTE_PKGDATADIR=os.path.join(ROOT, "share/prte"),
        PRTE_SYSCONFDIR=os.path.join(ROOT, "etc"),
        OMPI_PRTERUN=os.path.join(ROOT, "bin/prterun"),
        HWLOC_PLUGINS_PATH=os.path.join(ROOT, "lib/hwloc"),
    )
    try:
        os.execve(path, [path] + sys.argv[1:], environment)
    except OSError as error:
        fail("%s cannot be started: %s: copy the bundle to where files may be executed, cp -r %s /tmp"
             % (path, error.strerror, ROOT))


main()
