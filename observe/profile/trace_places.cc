#include "observe/profile/trace_places.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

using Json = nlohmann::json;

struct Span {
  double begin = 0, end = 0;
  std::string name;
};

// The nested ranges of one thread.
class Timeline {
 public:
  void Add(Span span) { spans_.push_back(std::move(span)); }

  // Sorts the ranges and finds the parent of each range. Must be called after all calls of Add().
  void Settle() {
    // If two ranges begin at the same time, the range that ends later is the outer range.
    std::ranges::sort(spans_, [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<int> open;
    for (size_t i = 0; i < spans_.size(); ++i) {
      while (!open.empty() && spans_[open.back()].end <= spans_[i].begin) open.pop_back();
      parent_.push_back(open.empty() ? -1 : open.back());
      open.push_back(static_cast<int>(i));
    }
  }

  // Calls `act` with the names of the ranges around `time`, the innermost first.
  template <typename Act>
  void Around(double time, const Act& act) const {
    const auto after = std::ranges::upper_bound(spans_, time, {}, &Span::begin);
    int at = static_cast<int>(after - spans_.begin()) - 1;
    for (; at >= 0; at = parent_[at]) {
      if (time <= spans_[at].end) act(spans_[at].name);
    }
  }

 private:
  std::vector<Span> spans_;
  std::vector<int> parent_;  // for each range: the index of the range around it; -1: none
};

struct Place {
  std::optional<int64_t> step;
  std::string phase;
  std::string module;
  std::string graph;  // the name of the range of a graph's launch
};

// Adds the range `name` to `place`. Must be called for all ranges around the place, from the innermost to the
// outermost.
void TakeRange(const std::string& name, Place& place) {
  if (name.starts_with(kStepRange)) {
    if (!place.step) place.step = std::strtoll(name.c_str() + kStepRange.size(), nullptr, 10);
  } else if (name.starts_with(kGraphRange)) {
    place.graph = name;
  } else if (IsTracePhase(name)) {
    if (place.phase.empty()) place.phase = name;
  } else {
    place.module = place.module.empty() ? name : name + "." + place.module;
  }
}

// Returns the place of a graph's node, from the node's path.
Place PlaceOf(const GraphNode& node) {
  Place place;
  size_t end = node.path.size();
  while (end != std::string::npos && end > 0) {
    const size_t slash = node.path.rfind('/', end - 1);
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    TakeRange(node.path.substr(begin, end - begin), place);
    end = slash;
  }
  return place;
}

std::string_view Category(const Json& event) {
  const auto category = event.find("cat");
  return category != event.end() && category->is_string()
             ? std::string_view(category->get_ref<const std::string&>())
             : std::string_view();
}

bool IsSpan(const Json& event) {
  const auto phase = event.find("ph");
  return phase != event.end() && *phase == "X" && event.contains("ts") && event.contains("dur");
}

// Returns the event's argument `name`; nothing if the event has no such argument or if the argument is not an integer.
std::optional<int64_t> Argument(const Json& event, const char* name) {
  const auto arguments = event.find("args");
  if (arguments == event.end()) return std::nullopt;
  const auto value = arguments->find(name);
  if (value == arguments->end() || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

// Returns the name that the event's graph node has (GraphNode::name).
std::string NodeName(const Json& event) {
  const std::string& name = event["name"].get_ref<const std::string&>();
  if (Category(event) == "kernel") return name;
  return name.substr(0, name.find(' '));
}

class Places {
 public:
  explicit Places(Json& trace) : events_(trace["traceEvents"]) {
    for (const Json& event : events_) {
      if (IsSpan(event)) Take(event);
    }
    for (auto& [thread, timeline] : ranges_) timeline.Settle();
    for (auto& [thread, timeline] : backwards_) timeline.Settle();
  }

  // Returns the place in which `thread` was at `time`.
  Place At(const Json& thread, double time) const {
    Place place = Ranges(thread, time);
    const auto backward = backwards_.find(thread);
    if (backward != backwards_.end()) {
      int64_t sequence = -1;
      backward->second.Around(time, [&](const std::string& name) {
        if (sequence < 0) sequence = std::strtoll(name.c_str(), nullptr, 10);
      });
      // Forward operations that a backward pass computes again (activation checkpointing) have ranges of their own,
      // from which `place` already has its module.
      if (sequence >= 0 && place.module.empty()) place.module = ModuleOf(sequence);
    }
    if (place.phase.empty() || !place.step) {
      const Place training = Ranges(training_thread_, time);
      if (place.phase.empty()) place.phase = training.phase;
      if (!place.step) place.step = training.step;
    }
    return place;
  }

  // Returns the place in which the call with this correlation number was made.
  std::optional<Place> OfCall(int64_t correlation) const {
    const auto call = calls_.find(correlation);
    if (call == calls_.end()) return std::nullopt;
    return At(call->second.first, call->second.second);
  }

 private:
  void Take(const Json& event) {
    const std::string_view category = Category(event);
    const Json& thread = event["tid"];
    const double begin = event["ts"].get<double>();
    const std::string& name = event["name"].get_ref<const std::string&>();
    const Span span{begin, begin + event["dur"].get<double>(), name};
    if (category == "user_annotation") {
      ranges_[thread].Add(span);
      if (name.starts_with(kStepRange)) training_thread_ = thread;
      if (const auto sequence = Argument(event, "Sequence number")) {
        double& last = begins_[thread][*sequence];
        last = std::max(last, begin);
      }
    } else if (category == "cuda_runtime" || category == "cuda_driver") {
      if (const auto correlation = Argument(event, "correlation")) {
        calls_[*correlation] = {thread, begin};
      }
    } else if (category == "cpu_op") {
      const auto sequence = Argument(event, "Sequence number");
      if (!sequence || *sequence < 0) return;
      if (name.starts_with("autograd::engine::evaluate_function")) {
        backwards_[thread].Add({span.begin, span.end, std::to_string(*sequence)});
      } else if (Argument(event, "Fwd thread id").value_or(0) == 0) {
        // Several operations may have the same number, because they record the number that the next node of autograd
        // will get. The last of them makes the node.
        auto& last = forwards_[*sequence];
        if (last.first.is_null() || last.second < begin) last = {thread, begin};
      }
    }
  }

  // Returns the module in whose forward pass the autograd node with this sequence number was made.
  std::string ModuleOf(int64_t sequence) const {
    double begin = -1;
    if (const auto begins = begins_.find(training_thread_); begins != begins_.end()) {
      const auto after = begins->second.upper_bound(sequence);
      if (after != begins->second.begin()) begin = std::prev(after)->second;
    }
    const auto forward = forwards_.find(sequence);
    if (forward != forwards_.end() && forward->second.second > begin) {
      return Ranges(forward->second.first, forward->second.second).module;
    }
    return begin < 0 ? std::string() : Ranges(training_thread_, begin).module;
  }

  Place Ranges(const Json& thread, double time) const {
    Place place;
    const auto found = ranges_.find(thread);
    if (found != ranges_.end()) {
      found->second.Around(time, [&](const std::string& name) { TakeRange(name, place); });
    }
    return place;
  }

  Json& events_;
  std::map<Json, Timeline> ranges_;     // the ranges of each thread
  std::map<Json, Timeline> backwards_;  // autograd's operations; their names are sequence numbers
  std::map<int64_t, std::pair<Json, double>> forwards_;  // thread and time, by sequence number
  std::map<int64_t, std::pair<Json, double>> calls_;     // thread and time, by correlation number
  // The times at which ranges began, by thread and by the sequence number at that time.
  std::map<Json, std::map<int64_t, double>> begins_;
  Json training_thread_;
};

void Write(Json& event, const Place& place, int64_t flops) {
  Json& arguments = event["args"];
  if (place.step) arguments["step"] = *place.step;
  if (!place.phase.empty()) arguments["phase"] = place.phase;
  if (!place.module.empty()) arguments["module"] = place.module;
  if (flops > 0) arguments["flops"] = flops;
}

// Adds places to the kernels, copies and memsets of one launch of a graph. `nodes` are the graph's nodes.
void AddPlacesInGraph(std::vector<Json*>& kernels, const std::vector<GraphNode>& nodes,
                      const Place& launch) {
  std::ranges::sort(kernels, {}, [](const Json* event) { return (*event)["ts"].get<double>(); });
  std::map<std::string, std::vector<const GraphNode*>> by_name;
  for (const GraphNode& node : nodes) by_name[node.name].push_back(&node);
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::string name = NodeName(*kernels[i]);
    const auto named = by_name.find(name);
    const GraphNode* node = nullptr;
    if (named != by_name.end()) {
      const size_t nth = seen[name]++;
      if (nth < named->second.size()) node = named->second[nth];
    } else if (by_name.contains("") && nodes.size() == kernels.size()) {
      node = &nodes[i];
    }
    Place place = launch;
    if (node != nullptr) {
      const Place captured = PlaceOf(*node);
      if (!captured.phase.empty()) place.phase = captured.phase;
      place.module = captured.module;
    }
    Write(*kernels[i], place, node == nullptr ? 0 : node->flops);
  }
}

void AddPlacesOfKernels(Json& events, const Places& places, const NodesOfGraphs& graphs) {
  std::map<int64_t, std::vector<Json*>> by_call;
  for (Json& event : events) {
    if (!IsSpan(event) || !IsDeviceWork(event)) continue;
    if (const auto correlation = Argument(event, "correlation")) {
      by_call[*correlation].push_back(&event);
    }
  }
  for (auto& [correlation, kernels] : by_call) {
    auto place = places.OfCall(correlation);
    if (!place) continue;
    if (place->graph.empty()) {
      for (Json* kernel : kernels) Write(*kernel, *place, 0);
      continue;
    }
    // If the graph was replaced after its launch, its nodes are not known, and its kernels get no phase.
    const auto graph = graphs.find(place->graph);
    if (graph == graphs.end()) place->phase.clear();
    AddPlacesInGraph(kernels, graph == graphs.end() ? std::vector<GraphNode>() : graph->second,
                     *place);
  }
}

void AddPlacesOfOperations(Json& events, const Places& places) {
  std::map<Json, std::vector<Json*>> by_thread;
  for (Json& event : events) {
    if (IsSpan(event) && Category(event) == "cpu_op") by_thread[event["tid"]].push_back(&event);
  }
  for (auto& [thread, operations] : by_thread) {
    const auto begin_of = [](const Json* event) { return (*event)["ts"].get<double>(); };
    const auto length_of = [](const Json* event) { return (*event)["dur"].get<double>(); };
    std::ranges::sort(operations, [&](const Json* a, const Json* b) {
      return begin_of(a) != begin_of(b) ? begin_of(a) < begin_of(b) : length_of(a) > length_of(b);
    });
    std::vector<Json*> open;
    for (Json* operation : operations) {
      while (!open.empty() &&
             begin_of(open.back()) + length_of(open.back()) <= begin_of(operation)) {
        open.pop_back();
      }
      if (!open.empty()) {
        Json& outer = (*open.back())["args"]["self_us"];
        outer = std::max(0.0, outer.get<double>() - length_of(operation));
      }
      (*operation)["args"]["self_us"] = length_of(operation);
      Write(*operation, places.At(thread, begin_of(operation)), 0);
      open.push_back(operation);
    }
  }
}

}  // namespace

bool IsTracePhase(std::string_view range) {
  return std::ranges::find(kTracePhases, range) != std::end(kTracePhases);
}

bool IsDeviceWork(const Json& event) {
  const std::string_view category = Category(event);
  return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
}

void AddPlaces(Json& trace, const NodesOfGraphs& graphs, bool on_gpu) {
  const Places places(trace);
  if (on_gpu) {
    AddPlacesOfKernels(trace["traceEvents"], places, graphs);
  } else {
    AddPlacesOfOperations(trace["traceEvents"], places);
  }
}

}  // namespace lockstep
