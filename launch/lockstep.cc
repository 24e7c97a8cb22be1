#include "launch/main.h"

int main(int argc, char** argv) {
  lockstep::End(lockstep::Main(argc, argv, lockstep::BuiltInModels()));
}
