// Sets the environment variable GOMP_SPINCOUNT before the first library is initialised.
//
// LibTorch's threads wait for each other in OpenMP's barriers. By default libgomp's threads spin for a millisecond
// before they sleep. If other processes occupy the cores, the thread that the spinning threads wait for may not run in
// that millisecond. The first training of the README, in one process, takes 0.4 s if no other process runs. Beside four
// busy processes on two cores the training takes 61 to 89 s, nearly all of this time in barriers. If threads sleep
// after some microseconds, the same training takes 5.3 to 5.9 s beside the busy processes. Without other processes the
// training then processes 6 % fewer samples a second than with libgomp's default. (With OMP_WAIT_POLICY=passive the
// training takes 4.8 to 6.2 s beside the busy processes, but without other processes it takes 3.5 times as long as by
// default.) libgomp reads GOMP_SPINCOUNT in its constructor, and has no function that changes the value later.
//
// How: before any library is initialised (.preinit_array, System V ABI), the program sets GOMP_SPINCOUNT and executes
// itself again. This takes some milliseconds. The process ID, the arguments, the open files and the signal mask of the
// process stay the same.
//
// what can fail -> what the user sees -> the test that shows it
//   the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT -> the program does not change the environment
//     -> tests/start_test.py, test_threads_sleep_where_they_wait_long
//   the program was started through the dynamic loader (ld.so PROGRAM) -> it goes on without the variable
//     -> tests/start_test.py, test_through_the_dynamic_loader
//   the program cannot execute itself again -> it goes on without the variable -> (needs a system without /proc)
#pragma once

namespace lockstep {

// Executes the program again with GOMP_SPINCOUNT set. The function returns only if it has no effect: if the variable is
// set already, if the environment has more than 4096 variables, and in the cases of the table above. Call it from a
// function in .preinit_array, with the arguments that the system passes to that function.
void StartWithEnvironment(char** arguments, char** environment);

}  // namespace lockstep
