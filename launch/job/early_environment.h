// Sets environment variables before the first library is initialised.
//
// LibTorch's threads wait for each other in OpenMP's barriers. By libgomp's default they wait a millisecond without
// sleeping. If other processes have the cores, the thread that they wait for may not run in that time. The README's
// first training, in one process, takes 0.4 s if no other process runs. Beside four busy processes on two cores the
// training took 61 to 89 s, nearly all of this time in barriers. If threads sleep after some microseconds, the same
// training takes 5.3 to 5.9 s, and without other processes it makes 6 % fewer samples a second than with libgomp's
// default. (With OMP_WAIT_POLICY=passive the training takes 4.8 to 6.2 s beside the busy processes, but without other
// processes it takes 3.5 times as long as by default.) libgomp reads GOMP_SPINCOUNT in its constructor, and no
// library's API sets it later.
//
// How: the program starts itself again with the variable, before anything is initialised (.preinit_array, System V
// ABI). This takes some milliseconds. Process, arguments, files and signals stay the same.
//
// what can fail -> what the user sees -> the test that shows it
//   the user has said how to wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT) -> it is left to him
//     -> tests/start_test.py, test_threads_sleep_where_they_wait_long
//   it was started through the dynamic loader (ld.so PROGRAM) -> it goes on as it is
//     -> tests/start_test.py, test_through_the_dynamic_loader
//   the program cannot be started again -> likewise -> (needs a system without /proc)
#pragma once

namespace lockstep {

// Call it from .preinit_array with the arguments of that call. If the variable has to be set, the program starts again
// and this function does not return.
void StartWithEnvironment(char** arguments, char** environment);

}  // namespace lockstep
