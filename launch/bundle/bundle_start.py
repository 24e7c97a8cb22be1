#!/usr/bin/env -S python3 -S
"""Starts the program of this bundle, with the LibTorch of a torch wheel on this machine.

    lockstep/lockstep -n 2 train mine.pbtxt
    python3 lockstep/lockstep version           with another Python, and with the torch that this one has
    LOCKSTEP_TORCH=/path/site-packages ...      with the torch of that folder

Promise: the program starts with everything that it needs, or one line says what is missing and what to do, with
status 2. Nothing is loaded twice: the program's libraries are found in lib/ of the bundle, in the wheels' folders, and
else where the machine has them, in this order. manifest.json lists the program's needs. Nothing is imported from
torch: that takes seconds.

what can fail -> what the user sees -> the test that shows it (tests/bundle_test.py)
  no torch, another version, another CUDA -> the pip line that helps -> test_another_torch_is_said
  a library of a wheel, or of the bundle, is missing -> its name, and what brings it -> test_a_missing_library_is_said
  the machine's libc or libstdc++ is too old, another CPU -> which, and which are needed
    -> test_another_machine_is_said
  files that may not be executed -> they are made so, or what to do -> test_files_that_cannot_be_executed
  a user without a home, for whom mpirun would crash -> nothing -> test_no_library_is_loaded_twice
"""

import _signal

# Ctrl-C ends this script without a word. `signal` would take milliseconds, in which it does not, and so would the
# site's packages, which Python (-S) leaves to this script.
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
    """2.11.0+cu130 as [2, 11, 0]."""
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
    """The loader's own words would come from the middle of the start, with another status."""
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
    """The folders that this Python imports packages from, or the one that its user names."""
    named = os.environ.get("LOCKSTEP_TORCH")
    if named:
        named = os.path.abspath(named)
        # The package's own folder will do.
        if os.path.basename(named) == "torch" and os.path.isdir(os.path.join(named, "lib")):
            named = os.path.dirname(named)
        return [named]
    return [folder for folder in sys.path[1:] if os.path.isdir(folder)]


def version_of(site, package):
    """Returns the version of a package that pip installed in `site`; nothing: there is none."""
    begin = package.replace("-", "_") + "-"
    try:
        for name in os.listdir(site):
            if name.startswith(begin) and name.endswith(".dist-info"):
                return name[len(begin) : -len(".dist-info")]
    except OSError:
        pass
    return None


def torch_versions(site):
    """Its version, and that of the CUDA that it was built for, where that is known."""
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


def find_torch(manifest, sites):
    """The folder that holds the package that this Python would import."""
    wanted = "torch %s for CUDA %s" % (manifest["torch"], manifest["cuda"])
    elsewhere = ", or set LOCKSTEP_TORCH to a site-packages folder that has it"
    for site in sites:
        if not os.path.isdir(os.path.join(site, "torch")):
            continue
        version, cuda = torch_versions(site)
        if numbers(version)[:2] != numbers(manifest["torch"])[:2]:
            fail(
                "torch %s in %s: the program needs %s: pip install %s%s"
                % (version, site, wanted, manifest["pip"], elsewhere)
            )
        if cuda != manifest["cuda"]:
            # pip takes 2.11.0+cu128 for 2.11.0.
            fail(
                "torch %s in %s is built for %s: the program needs %s: pip install --force-reinstall %s%s"
                % (version, site, "the CPU alone" if cuda in (None, "None") else "CUDA " + cuda, wanted,
                   manifest["pip"], elsewhere)
            )
        return site
    place = sites[0] if os.environ.get("LOCKSTEP_TORCH") else sys.executable
    fail("no torch in %s: the program needs %s: pip install %s%s" % (place, wanted, manifest["pip"], elsewhere))


def find_libraries(manifest, torch, sites):
    """The folders of the wheels' libraries, those of the program first."""
    folders = []
    sites = [torch] + [site for site in sites if site != torch]
    for name in sorted(manifest["wheels"]):
        wheel = manifest["wheels"][name]
        for site in sites:
            if os.path.isfile(os.path.join(site, wheel["file"])):
                break
        else:
            fail(
                "%s is not in %s: pip install --force-reinstall %s==%s"
                % (wheel["file"], torch, wheel["package"], wheel["version"])
            )
        # These two are asked for what their version has.
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
    # These folders hold libraries that are loaded when they are first called: nvJPEG, parts of cuDNN.
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
    """Some notebooks unpack what is uploaded without the files' modes."""
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
    torch = find_torch(manifest, sites)
    library_path = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders = [os.path.join(ROOT, "lib")] + find_libraries(manifest, torch, sites)
    folders += [folder for folder in library_path if folder not in folders]  # the GPU's driver, on some machines
    check_libstdcxx(manifest, folders)
    make_executable(os.path.join(ROOT, "bin"))
    environment = dict(
        os.environ,
        LD_LIBRARY_PATH=":".join(folders),
        # A command of the program may start this script again, which then finds the same Python.
        PATH=":".join(
            [os.path.join(ROOT, "bin"), os.path.dirname(sys.executable), os.environ.get("PATH") or STANDARD_PATH]
        ),
        # Where Open MPI, PMIx and hwloc look for their plugins and texts.
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
        HWLOC_PLUGINS_PATH=os.path.join(ROOT, "lib/hwloc"),
    )
    # mpirun crashes for a user without one, as containers may have.
    if os.path.expanduser("~") == "~":
        environment["HOME"] = "/"
    program = os.path.join(ROOT, "bin", manifest["program"])
    try:
        os.execve(program, [program] + sys.argv[1:], environment)
    except OSError as error:
        fail("%s cannot be started: %s: copy the bundle to where files may be executed, cp -r %s /tmp"
             % (program, error.strerror, ROOT))


main()
