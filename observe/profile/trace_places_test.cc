#include "observe/profile/trace_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "observe/profile/rank_profile.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The ids of the training thread and of autograd's thread.
constexpr int kTraining = 10;
constexpr int kAutograd = 11;

Json Span(const char* category, const std::string& name, Json thread, double begin, double length,
          Json arguments = Json::object()) {
  return {{"ph", "X"},
          {"cat", category},
          {"name", name},
          {"tid", std::move(thread)},
          {"ts", begin},
          {"dur", length},
          {"args", std::move(arguments)}};
}

Json Range(const std::string& name, double begin, double length) {
  return Span("user_annotation", name, kTraining, begin, length);
}

Json Launch(int64_t correlation, int thread, double begin, const char* name = "cudaLaunchKernel") {
  return Span("cuda_runtime", name, thread, begin, 1, {{"correlation", correlation}});
}

Json Kernel(const std::string& name, int64_t correlation, double begin, double length) {
  return Span("kernel", name, 7, begin, length, {{"correlation", correlation}, {"stream", 7}});
}

Json TraceOf(std::vector<Json> events) { return {{"traceEvents", std::move(events)}}; }

std::string PlaceOf(const Json& trace, size_t event) {
  const Json& arguments = trace["traceEvents"][event]["args"];
  return std::to_string(arguments.value("step", int64_t{0})) + " " + arguments.value("phase", "") +
         " " + arguments.value("module", "");
}

// Returns the ranges of a step of 100 us that begins at `begin`, in us. The forward pass has the module "block" with
// the module "mlp" in it. The operations of the backward pass, which tests add, run on another thread.
std::vector<Json> Step(int number, double begin) {
  return {Range("ProfilerStep#" + std::to_string(number), begin, 100),
          Range("rest", begin + 1, 98),
          Range("forward", begin + 10, 30),
          Range("block", begin + 12, 20),
          Range("mlp", begin + 15, 10),
          Range("backward", begin + 50, 30)};
}

TEST(AddPlaces, AKernelBelongsToTheRangesAroundItsLaunch) {
  std::vector<Json> events = Step(3, 100);
  events.push_back(Launch(1, kTraining, 116));
  events.push_back(Launch(2, kTraining, 113));
  events.push_back(Launch(3, kTraining, 190));
  for (int64_t call = 1; call <= 3; ++call) events.push_back(Kernel("k", call, 300.0 + call, 1));
  Json trace = TraceOf(events);
  AddPlaces(trace, {}, /*on_gpu=*/true);
  EXPECT_EQ(PlaceOf(trace, 9), "3 forward block.mlp");
  EXPECT_EQ(PlaceOf(trace, 10), "3 forward block");
  EXPECT_EQ(PlaceOf(trace, 11), "3 rest ");
}

TEST(AddPlaces, ABackwardOperationBelongsToTheModuleOfItsForward) {
  std::vector<Json> events = Step(3, 100);
  const auto forward = [](int64_t sequence, double begin) {
    return Span("cpu_op", "aten::mm", kTraining, begin, 1,
                {{"Sequence number", sequence}, {"Fwd thread id", 0}});
  };
  events.push_back(
      forward(40, 105));  // an operation before the module, with the next node's sequence number
  events.push_back(forward(40, 117));
  events.push_back(Span("cpu_op", "autograd::engine::evaluate_function: MmBackward0", kAutograd,
                        155, 5, {{"Sequence number", 40}, {"Fwd thread id", 1}}));
  events.push_back(Launch(1, kAutograd, 156));
  events.push_back(Kernel("k", 1, 300, 1));
  Json trace = TraceOf(events);
  AddPlaces(trace, {}, /*on_gpu=*/true);
  EXPECT_EQ(PlaceOf(trace, 10), "3 backward block.mlp");
}

TEST(AddPlaces, ABackwardOperationWithoutForwardOperationBelongsToTheRangeBefore) {
  std::vector<Json> events = Step(3, 100);
  // The ranges "block" and "mlp" began at the sequence numbers 40 and 41. No operation in a module has the number 41.
  events[3]["args"]["Sequence number"] = 40;
  events[4]["args"]["Sequence number"] = 41;
  events.push_back(Span("cpu_op", "aten::view", kTraining, 105, 1,
                        {{"Sequence number", 41}, {"Fwd thread id", 0}}));
  for (const int64_t sequence : {40, 42}) {
    events.push_back(Span("cpu_op", "autograd::engine::evaluate_function: Own", kAutograd,
                          155 + 5.0 * (sequence - 40), 5,
                          {{"Sequence number", sequence}, {"Fwd thread id", 1}}));
    events.push_back(Launch(sequence, kAutograd, 156 + 5.0 * (sequence - 40)));
    events.push_back(Kernel("k", sequence, 300, 1));
  }
  Json trace = TraceOf(events);
  AddPlaces(trace, {}, /*on_gpu=*/true);
  EXPECT_EQ(PlaceOf(trace, 9), "3 backward block");
  EXPECT_EQ(PlaceOf(trace, 12), "3 backward block.mlp");
}

TEST(AddPlaces, KernelsOfAGraphBelongToItsNodes) {
  std::vector<Json> events = Step(5, 100);
  events.push_back(Range("graph 64", 140, 5));
  events.push_back(Launch(1, kTraining, 141, "cudaGraphLaunch"));
  // The kernels run in another order than the order of their capture, as kernels on two streams may do.
  events.push_back(Kernel("a", 1, 301, 1));
  events.push_back(Kernel("b", 1, 300, 1));
  events.push_back(Kernel("a", 1, 302, 1));
  events.push_back(Span("gpu_memset", "Memset (Device)", 7, 303, 1, {{"correlation", 1}}));
  Json trace = TraceOf(events);
  AddPlaces(trace,
            {{"graph 64",
              {{"a", "forward/block", 12},
               {"a", "backward/block/mlp", 0},
               {"b", "update", 0},
               {"Memset", "rest", 0}}},
             {"graph 8", {{"a", "update", 0}}}},
            /*on_gpu=*/true);
  EXPECT_EQ(PlaceOf(trace, 8), "5 forward block");
  EXPECT_EQ(trace["traceEvents"][8]["args"]["flops"], 12);
  EXPECT_EQ(PlaceOf(trace, 9), "5 update ");
  EXPECT_EQ(PlaceOf(trace, 10), "5 backward block.mlp");
  EXPECT_EQ(PlaceOf(trace, 11), "5 rest ");
}

TEST(AddPlaces, KernelsWithoutNamesAreTakenInTheirOrder) {
  std::vector<Json> events = Step(5, 100);
  events.push_back(Range("graph 64", 140, 5));
  events.push_back(Launch(1, kTraining, 141, "cudaGraphLaunch"));
  events.push_back(Kernel("b", 1, 301, 1));
  events.push_back(Kernel("a", 1, 300, 1));
  Json trace = TraceOf(events);
  AddPlaces(trace, {{"graph 64", {{"", "forward", 0}, {"", "update", 0}}}}, /*on_gpu=*/true);
  EXPECT_EQ(PlaceOf(trace, 9), "5 forward ");
  EXPECT_EQ(PlaceOf(trace, 8), "5 update ");
}

TEST(AddPlaces, AnOperationsOwnTimeIsWithoutTheOperationsWithinIt) {
  std::vector<Json> events = Step(3, 100);
  events.push_back(Span("cpu_op", "outer", kTraining, 116, 8));
  events.push_back(Span("cpu_op", "inner", kTraining, 117, 3));
  events.push_back(Span("cpu_op", "inner", kTraining, 121, 2));
  Json trace = TraceOf(events);
  AddPlaces(trace, {}, /*on_gpu=*/false);
  EXPECT_EQ(trace["traceEvents"][6]["args"]["self_us"], 3);
  EXPECT_EQ(trace["traceEvents"][7]["args"]["self_us"], 3);
  EXPECT_EQ(PlaceOf(trace, 8), "3 forward block.mlp");
}

Json TwoSteps(double slower_us) {
  std::vector<Json> events;
  int64_t call = 0;
  for (const int step : {1, 2}) {
    const double begin = 1000.0 * step;
    for (Json& event : Step(step, begin)) events.push_back(std::move(event));
    events.push_back(Launch(++call, kTraining, begin + 16));
    events.push_back(
        Kernel("void at::native::product<float>(float*)", call, begin + 20, 60 + slower_us));
    events.push_back(Launch(++call, kTraining, begin + 51));
    events.push_back(Kernel("void lockstep::ops::Sum()", call, begin + 200, 10.0 * step));
  }
  Json trace = TraceOf(std::move(events));
  AddPlaces(trace, {}, /*on_gpu=*/true);
  return trace;
}

TEST(ProfileOf, GivesTheFiguresOfAStep) {
  const RankProfile profile = ProfileOf(TwoSteps(0), /*on_gpu=*/true, 0);
  EXPECT_EQ(profile.steps, 2);
  // The work of the steps lasts from 1020 to 1210 and from 2020 to 2220.
  EXPECT_DOUBLE_EQ(profile.step_ms, 0.195);
  EXPECT_DOUBLE_EQ(profile.busy_share, 150.0 / 390);
  EXPECT_DOUBLE_EQ(profile.attributed_share, 1);
  EXPECT_DOUBLE_EQ(profile.fused_share, 0.2);
  EXPECT_DOUBLE_EQ(profile.libtorch_share, 0.8);
  ASSERT_THAT(profile.kernels, SizeIs(2));
  const KernelRow& product = profile.kernels[0];
  EXPECT_EQ(product.phase, "forward");
  EXPECT_EQ(product.module, "block.mlp");
  EXPECT_DOUBLE_EQ(product.ms, 0.06);
  EXPECT_DOUBLE_EQ(product.calls, 1);
  EXPECT_DOUBLE_EQ(product.share, 120.0 / 390);
  EXPECT_EQ(product.remark, "");
  const KernelRow& sum = profile.kernels[1];
  EXPECT_EQ(sum.phase, "backward");
  EXPECT_DOUBLE_EQ(sum.ms, 0.015);
  EXPECT_DOUBLE_EQ(sum.median_ms, 0.02);
}

TEST(ProfileOf, AShareIsOfTheStepAndNotOfTheWork) {
  // Two operations at the ends of a step that otherwise waits: 3 us and 1 us of 100 us.
  std::vector<Json> events = Step(3, 100);
  events.push_back(Span("cpu_op", "outer", kTraining, 100, 4));
  events.push_back(Span("cpu_op", "inner", kTraining, 102, 1));
  events.push_back(Span("cpu_op", "last", kTraining, 199, 1));
  Json trace = TraceOf(std::move(events));
  AddPlaces(trace, {}, /*on_gpu=*/false);
  RankProfile profile = ProfileOf(trace, /*on_gpu=*/false, 0);
  profile.device = "CPU";
  EXPECT_DOUBLE_EQ(profile.step_ms, 0.1);
  EXPECT_DOUBLE_EQ(profile.busy_share, 0.05);
  ASSERT_THAT(profile.kernels, SizeIs(3));
  EXPECT_EQ(profile.kernels[0].name, "outer");
  EXPECT_DOUBLE_EQ(profile.kernels[0].share, 0.03);
  EXPECT_EQ(profile.kernels[0].remark, "");
  EXPECT_THAT(TableOf(profile, 3), HasSubstr("step of 0.100 ms, operations run in 5.0 % of it"));
}

TEST(ProfileOf, AKernelThatTakesMostOfAStepIsRemarked) {
  EXPECT_THAT(ProfileOf(TwoSteps(200), /*on_gpu=*/true, 0).kernels[0].remark,
              HasSubstr("% of the step"));
}

TEST(ProfileOf, IsTheSameFromItsJson) {
  const RankProfile profile = ProfileOf(TwoSteps(0), /*on_gpu=*/true, 1e12);
  EXPECT_EQ(JsonOf(RankProfileOf(nlohmann::ordered_json::parse(JsonOf(profile).dump()))),
            JsonOf(profile));
}

TEST(ProfileOf, OnACpuAPhasesTimeIsWithoutThePhasesWithinIt) {
  std::vector<Json> events = Step(1, 100);
  events.push_back(Span("user_annotation", "exchange", kTraining, 155, 4));
  // This range is of an evaluation, and lies outside of the step.
  events.push_back(Span("user_annotation", "read", kTraining, 300, 50));
  events.push_back(Span("cpu_op", "aten::mm", kTraining, 116, 8));
  Json trace = TraceOf(events);
  AddPlaces(trace, {}, /*on_gpu=*/false);
  const RankProfile profile = ProfileOf(trace, /*on_gpu=*/false, 0);
  EXPECT_THAT(profile.phases_ms,
              testing::IsSupersetOf({testing::Pair("rest", testing::DoubleEq(0.038)),
                                     testing::Pair("backward", testing::DoubleEq(0.026)),
                                     testing::Pair("exchange", testing::DoubleEq(0.004)),
                                     testing::Pair("read", testing::DoubleEq(0))}));
}

TEST(ProfileOf, ModulesWithACommonNameAreOne) {
  const auto module_of = [](const std::vector<std::string>& modules) {
    Json trace = TraceOf({});
    int64_t number = 0;
    for (const std::string& module : modules) {
      ++number;
      Json kernel = Kernel("k", number, 10.0 * number, 1);
      kernel["args"]["step"] = 1;
      kernel["args"]["module"] = module;
      trace["traceEvents"].push_back(std::move(kernel));
    }
    return ProfileOf(trace, /*on_gpu=*/true, 0).kernels.at(0).module;
  };
  EXPECT_EQ(module_of({"h.0.mlp"}), "h.0.mlp");
  EXPECT_EQ(module_of({"h.0.mlp", "", "h.11.mlp"}), "h.*.mlp");
  EXPECT_EQ(module_of({"h.0.mlp", "h.0.attention"}), "h.*");
  EXPECT_EQ(module_of({"layer1.0", "layer2.13"}), "layer*.*");
  EXPECT_EQ(module_of({"conv1", "fc"}), "");
}

TEST(ProfileOf, OfNothingIsEmpty) {
  const RankProfile profile = ProfileOf(TraceOf({}), /*on_gpu=*/true, 0);
  EXPECT_THAT(profile.kernels, IsEmpty());
  EXPECT_EQ(profile.step_ms, 0);
}

TEST(SlowerSince, NamesTheKernel) {
  RankProfile before = ProfileOf(TwoSteps(0), /*on_gpu=*/true, 0);
  RankProfile after = ProfileOf(TwoSteps(30), /*on_gpu=*/true, 0);
  EXPECT_THAT(SlowerSince(before, after),
              ElementsAre("product<float> in forward takes 0.090 ms a step, and took 0.060 ms in "
                          "the first profile"));
  EXPECT_THAT(SlowerSince(after, before), IsEmpty());
  EXPECT_THAT(SlowerSince(before, before), IsEmpty());
  // On a CPU the threshold is higher, because times on a CPU vary more.
  before.device = after.device = "CPU";
  EXPECT_THAT(SlowerSince(before, after), IsEmpty());
}

TEST(ShortName, LeavesOutWhatNobodyReads) {
  EXPECT_EQ(ShortName("void at::native::(anonymous namespace)::reduce<float, 4>(float*, int)", 60),
            "reduce<float, 4>");
  EXPECT_EQ(ShortName("Memcpy DtoD (Device -> Device)", 60), "Memcpy DtoD (Device -> Device)");
  EXPECT_EQ(ShortName("sm90_gemm_bf16_128x256", 10), "sm90_ge...");
}

}  // namespace
}  // namespace lockstep
