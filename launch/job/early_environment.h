// What the environment holds before the first library is initialised.
//
// LibTorch's threads wait for each other in OpenMP's barriers, by libgomp's default a millisecond awake. Where another
// process has a core, the one that a thread waits for may not run meanwhile: the README's first training, 0.4 s alone,
// took 18 to 58 s of two cores that were shared, nearly all of it in barriers, and takes 1.8 s where they sleep after
// some microseconds. libgomp reads GOMP_SPINCOUNT in its constructor, and no library's API sets it later.
//
// How: the program starts itself again with the variable, before anything is initialised (.preinit_array, System V ABI),
// which takes some milliseconds. Process, arguments, files and signals stay what they are.
//
// what can fail -> what the user sees -> the test that shows it
//   the user has said how to wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT) -> it is left to him
//     -> tests/start_test.py, test_threads_sleep_where_they_wait_long
//   the program cannot be started again -> it goes on as it is -> (needs a system without /proc)
#pragma once

namespace lockstep {

// To be called from .preinit_array, with what that is given. Returns where there is nothing to do, else not.
void StartWithEnvironment(char** arguments, char** environment);

}  // namespace lockstep
