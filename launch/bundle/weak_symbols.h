// Changes a shared library so that it can be loaded on a machine with an older glibc, which lacks a function that the
// library refers to.
//
// Why: Debian 12's libevent refers to arc4random_buf, which glibc has had since version 2.36. libevent calls this
// function only for the random numbers of its DNS client. Open MPI needs libevent, but not its DNS client. Because of
// this reference, a program that was built on Debian 12 needs glibc 2.36. Without the reference, glibc 2.34 is enough.
//
// How: MakeWeak() makes the reference to the function weak. The dynamic loader sets a weak reference to null if no
// library has the function. If only this reference needs a certain version of glibc, MakeWeak() replaces that version
// in the library by a version that another reference needs. (If that version were only marked as weak, each start of
// the program would print a warning.) No library has the function in the replacing version, so the reference is null on
// every machine. A call of the function therefore crashes even on the machine that runs the tests.
//
// what can fail -> what the caller sees -> the test that shows it
//   the program calls one of the functions after all -> the process crashes -> tests/bundle_test.py trains without them
//   the bytes are no 64-bit ELF file, or are cut short -> Error (kBug)
//     -> launch/bundle/weak_symbols_test.cc, WeakSymbols.RefusesWhatIsNoLibrary
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Makes the library's references to `functions` weak. `library` holds the bytes of a shared library's file. Functions
// to which the library has no reference are ignored. Throws Error (kBug).
void MakeWeak(std::string& library, const std::vector<std::string>& functions);

}  // namespace lockstep
