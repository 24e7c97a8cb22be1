// Changes a shared library so that it can be loaded on a machine with an older glibc, which lacks a function that the
// library names.
//
// Why: Debian 12's libevent names arc4random_buf, which glibc has since 2.36. libevent needs it only for random
// numbers of its DNS client. Open MPI needs libevent, but not its DNS client. Because of this reference, a program that
// was built on Debian 12 needs glibc 2.36. Without the reference, glibc 2.34 is enough.
//
// How: the reference becomes a weak one, which the loader leaves at null if it finds no such function. The version of
// glibc that only this reference needs is replaced by a version that another reference needs. (If that version were
// only marked as weak, each start would print a warning.) The reference is therefore null everywhere, so a wrong call
// would also crash on the machine where we test.
//
// what can fail -> what the caller sees -> the test that shows it
//   a function that is called after all -> the process crashes -> tests/bundle_test.py trains without it
//   it is no ELF file of 64 bits, or cut short -> Error (kBug)
//     -> launch/bundle/weak_symbols_test.cc, WeakSymbols.RefusesWhatIsNoLibrary
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Makes the references of `library`, which holds the bytes of a file, to `functions` weak. Functions to which the
// library has no reference are ignored.
void MakeWeak(std::string& library, const std::vector<std::string>& functions);

}  // namespace lockstep
