// Lets a shared library be loaded where the newest of the functions that it names does not exist.
//
// Why: Debian 12's libevent names arc4random_buf, which glibc has since 2.36, for random numbers of its DNS client
// alone. Open MPI needs libevent, and not that; without it what is built on Debian 12 runs with glibc 2.34.
//
// How: the reference becomes a weak one, which the loader leaves at null where it finds nothing; and a version of glibc
// that nothing else needs takes the name of one that something does. (Marked as weak it would be warned of in each
// start.) So it is null everywhere, and a call would crash where it is tested, too.
//
// what can fail -> what the caller sees -> the test that shows it
//   a function that is called after all -> the process crashes -> tests/bundle_test.py trains without it
//   it is no ELF file of 64 bits, or cut short -> Error (kBug)
//     -> launch/bundle/weak_symbols_test.cc, WeakSymbols.RefusesWhatIsNoLibrary
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Makes the references of `library` (a file's bytes) to `functions` weak; those that it has none to do not matter.
void MakeWeak(std::string& library, const std::vector<std::string>& functions);

}  // namespace lockstep
