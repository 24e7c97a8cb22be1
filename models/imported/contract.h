// Contracts: what each operation of python/lockstep/operations.txt asks of its arguments.
//
// LibTorch does not check all arguments of all operations. With some arguments an operation would read or write outside
// its tensors, divide by zero, or return what happened to be in memory. The table in contract.cc says what the
// arguments must satisfy, besides having the types of the operation's schema. CheckContract() compares the arguments of
// a call with the table.
//
// what can fail -> what the caller sees -> the test that shows it (models/imported/exported_graph_test.cc)
//   an argument that breaks the contract -> c10::Error that says which argument, and how -> ExportedGraph.RefusesBeforeItRuns
//   dtypes that differ only because of autocast -> likewise, in the call -> ExportedGraph.ChecksUnderAutocast*
//   numbers that follow from strides -> likewise, in the call -> ExportedGraph.ChecksAgainWhatFollowsFromStrides
//
// tests/fuzz/operation_calls.cc calls each operation of the list with random arguments that keep the contract.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace lockstep::exported {

// Tensors have at most this number of dimensions, which is more than any model has. LibTorch's kernels for GPUs have
// tables of at most 25.
constexpr int64_t kMostDimensions = 16;

// The parts of a contract, by when they are known.
struct Parts {
  // Types, sizes and numbers, which are foretold.
  bool sizes = true;
  // Dtypes that must be the same, which are foretold if there is no autocast.
  bool dtypes = true;
  // Values and strides of tensors, which only the call itself knows.
  bool values = true;
};

// Checks these parts of the contract for the arguments of a call of `operation`, which are in the order of its schema.
// The values of tensors on META are not checked. Throws c10::Error.
void CheckContract(const c10::OperatorHandle& operation, const std::vector<c10::IValue>& arguments,
                   Parts parts = {});

// Returns the parts that the contract of an operation, such as "aten::gather", has and that may not be foretold.
Parts UnforeseenParts(const std::string& operation);

// Checks, immediately before a call on `device`, those of the parts that were not foretold. `autocast` says whether the
// call runs under autocast where autocast is on. Throws c10::Error.
void CheckUnforeseen(const c10::OperatorHandle& operation,
                     const std::vector<c10::IValue>& arguments, Parts parts, at::Device device,
                     bool autocast);

}  // namespace lockstep::exported
