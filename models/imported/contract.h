// Contracts: what each operation of python/lockstep/operations.txt asks of its arguments.
//
// LibTorch does not check all arguments of all operations. With some arguments an operation would read or write outside
// its tensors, divide by zero, or return what happened to be in memory. The table in contract.cc says what the
// arguments must satisfy, besides having the types of the operation's schema. CheckContract() compares the arguments of
// a call with the table.
//
// what can fail -> what the caller sees -> the test that shows it (models/imported/exported_graph_test.cc)
//   an argument that breaks the contract -> c10::Error that says which argument, and how -> ExportedGraph.RefusesBeforeItRuns
//
// tests/fuzz/operation_calls.cc calls each operation of the list with random arguments that keep the contract.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace lockstep::exported {

// Checks the arguments of a call of `operation`, which are in the order of its schema. The values of tensors on META
// are not checked. Throws c10::Error.
void CheckContract(const c10::OperatorHandle& operation, const std::vector<c10::IValue>& arguments);

// Returns whether the contract of the operation, such as "aten::gather", also asks for values of a tensor, such as
// indices. These are not known before the call.
bool AsksForValues(std::string_view operation);

}  // namespace lockstep::exported
