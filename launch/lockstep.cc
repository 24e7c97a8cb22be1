#include "launch/main.h"

int main(int argc, char** argv) { return lockstep::Main(argc, argv, lockstep::BuiltInModels()); }
