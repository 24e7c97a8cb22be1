#include "models/imported/segments.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "models/imported/memory_groups.h"

namespace lockstep::exported {
namespace {

constexpr int64_t kBeforeAll = -1;  // a position before the first node

// Returns whether the node changes its first argument in place and returns only this argument.
bool IsPlainChange(const Node& node) {
  const c10::FunctionSchema& schema = node.operation->schema();
  return Writes(schema.arguments()[0]) && schema.returns().size() == 1 && !node.results[0].is_list;
}

class Cutter {
 public:
  Cutter(const Program& program, const std::set<int64_t>& trainable)
      : program_(program),
        count_(static_cast<int64_t>(program.nodes.size())),
        arises_(program.values, kBeforeAll),
        last_used_(program.values, kBeforeAll),
        of_module_(program.values, false),
        reached_(program.values, false),
        group_reached_(program.values, false),
        groups_(program),
        once_(program.nodes.size(), false),
        unrepeatable_(program.nodes.size(), false),
        forbidden_(program.nodes.size() + 1, false),
        alive_(program.nodes.size() + 1, 0) {
    for (const auto* tensors : {&program.parameters, &program.buffers, &program.constants}) {
      for (const auto& [name, value] : *tensors) of_module_[value] = true;
    }
    for (int64_t i = 0; i < count_; ++i) FindUses(i);
    last_used_[program.output] = count_;
    for (const int64_t value : trainable) reached_[value] = true;
    for (int64_t i = 0; i < count_; ++i) FindReached(i);
    FindChanges();
    FindAlive();
  }

  Cuts Cut() {
    // With this length, the number of segments is about the number of nodes in each segment.
    const auto length = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count_))));
    Cuts cuts{.once = once_};
    int64_t begin = 0;
    while (begin < count_) {
      const int64_t end = NextCut(begin, length);
      cuts.segments.push_back(SegmentOf(begin, end));
      begin = end;
    }
    // For each trainable tensor of the module: the first segment that uses it; -1: none.
    std::vector<int64_t> users(program_.values, -1);
    for (size_t s = 0; s < cuts.segments.size(); ++s) {
      Segment& segment = cuts.segments[s];
      segment.twice = s + 1 < cuts.segments.size();
      for (size_t i = segment.begin; i < segment.end; ++i) {
        if (unrepeatable_[i]) segment.twice = false;
        for (const int64_t value : ValuesOf(program_.nodes[i])) {
          if (!of_module_[value] || !IsReached(value)) continue;
          const auto user = static_cast<int64_t>(s);
          if (users[value] == -1) users[value] = user;
          if (users[value] != user) segment.twice = cuts.segments[users[value]].twice = false;
        }
      }
    }
    return cuts;
  }

 private:
  // Records where values are defined and last used, and which nodes change values in place.
  void FindUses(int64_t number) {
    const Node& node = program_.nodes[number];
    for (const int64_t result : ResultsOf(node)) arises_[result] = number;
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      for (const int64_t value : ValuesOf(node.arguments[i])) {
        last_used_[value] = number;
        if (!node.operation) continue;
        if (Writes(node.operation->schema().arguments()[i]))
          changes_.push_back({.node = number, .value = value});
      }
    }
  }

  // Marks the values that may need a gradient. If an in-place change gives a tensor a gradient, all values that share
  // its memory may need one.
  void FindReached(int64_t number) {
    const Node& node = program_.nodes[number];
    if (node.IsNumber() || !node.grad) return;
    const bool reached =
        std::ranges::any_of(ValuesOf(node), [&](int64_t value) { return IsReached(value); });
    if (!reached) return;
    for (const int64_t result : ResultsOf(node)) reached_[result] = true;
    if (!node.operation) return;
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      if (!Writes(node.operation->schema().arguments()[i])) continue;
      for (const int64_t value : ValuesOf(node.arguments[i])) {
        group_reached_[groups_.Of(value)] = true;
      }
    }
  }

  bool IsReached(int64_t value) const {
    return reached_[value] || group_reached_[groups_.Of(value)];
  }

  // Forbids cuts between the definition of a tensor and its last in-place change. Also finds the nodes that must not be
  // computed twice: nodes that read a tensor of the module before another node changes it, because in the second
  // computation they would read the changed tensor.
  void FindChanges() {
    std::vector<int64_t> first(program_.values, std::numeric_limits<int64_t>::max());
    std::vector<int64_t> last_change(program_.values, kBeforeAll);
    std::vector<bool> has_module(program_.values, false);
    for (int64_t value = 0; value < program_.values; ++value) {
      const int64_t group = groups_.Of(value);
      first[group] = std::min(first[group], arises_[value]);
      if (of_module_[value]) has_module[group] = true;
    }
    for (const Change& change : changes_) {
      const int64_t group = groups_.Of(change.value);
      last_change[group] = std::max(last_change[group], change.node);
      if (!has_module[group]) continue;
      if (IsPlainChange(program_.nodes[change.node])) {
        once_[change.node] = true;
      } else {
        unrepeatable_[change.node] = true;
      }
    }
    // For each cut: how many ranges of forbidden cuts begin at it, minus how many such ranges end at it.
    std::vector<int64_t> begins(count_ + 2, 0);
    for (int64_t group = 0; group < program_.values; ++group) {
      if (last_change[group] == kBeforeAll || has_module[group]) continue;
      ++begins[first[group] + 1];
      --begins[last_change[group] + 1];
    }
    int64_t ranges = 0;
    for (int64_t cut = 0; cut <= count_; ++cut) forbidden_[cut] = (ranges += begins[cut]) > 0;
    for (int64_t i = 0; i < count_; ++i) {
      for (const int64_t value : ValuesOf(program_.nodes[i])) {
        const int64_t group = groups_.Of(value);
        if (has_module[group] && i < last_change[group] && !once_[i]) unrepeatable_[i] = true;
      }
    }
  }

  // Counts the values that may need a gradient and are alive at each cut. Forbids cuts at which two of them share
  // memory: they would become separate tensors, although one is a view of the other.
  void FindAlive() {
    std::vector<std::vector<int64_t>> arising(count_ + 1), dying(count_ + 1);
    for (int64_t value = 0; value < program_.values; ++value) {
      if (of_module_[value] || !IsReached(value) || last_used_[value] <= arises_[value]) continue;
      arising[arises_[value] + 1].push_back(value);
      dying[last_used_[value]].push_back(value);
    }
    std::vector<int64_t> in_group(program_.values, 0);
    int64_t alive = 0, shared = 0;
    for (int64_t cut = 0; cut <= count_; ++cut) {
      if (cut > 0) {
        for (const int64_t value : dying[cut - 1]) {
          --alive;
          if (--in_group[groups_.Of(value)] == 1) --shared;
        }
      }
      for (const int64_t value : arising[cut]) {
        ++alive;
        if (++in_group[groups_.Of(value)] == 2) ++shared;
      }
      alive_[cut] = alive;
      // A cut is also forbidden if no value that may need a gradient is alive at this cut: the segment after it would
      // have no such input, and would therefore be computed only once.
      if (shared > 0 || alive == 0) forbidden_[cut] = true;
    }
  }

  // Returns the end of the segment that begins at `begin`: the cut with the fewest values alive. Among cuts with
  // equally many values alive, returns the one that makes the segment's length nearest to `length` nodes. The first
  // segment keeps all its activations, so its wanted length is one node.
  int64_t NextCut(int64_t begin, int64_t length) const {
    const int64_t wanted = begin == 0 ? 1 : length;
    const auto is_better = [&](int64_t a, int64_t b) {
      const auto off = [&](int64_t cut) { return std::abs(cut - begin - wanted); };
      return alive_[a] != alive_[b] ? alive_[a] < alive_[b] : off(a) < off(b);
    };
    int64_t best = count_;
    for (int64_t cut = begin + std::max<int64_t>(1, wanted / 2); cut < count_; ++cut) {
      if (cut > begin + 2 * length && best < count_) break;
      if (!forbidden_[cut] && (best == count_ || is_better(cut, best))) best = cut;
    }
    return best;
  }

  Segment SegmentOf(int64_t begin, int64_t end) const {
    Segment segment{.begin = static_cast<size_t>(begin), .end = static_cast<size_t>(end)};
    std::set<int64_t> used;
    for (int64_t i = begin; i < end; ++i) {
      for (const int64_t value : ValuesOf(program_.nodes[i])) {
        if (!of_module_[value] && arises_[value] < begin) used.insert(value);
      }
      for (const int64_t value : ResultsOf(program_.nodes[i])) {
        if (last_used_[value] < end) continue;
        (IsReached(value) ? segment.outputs : segment.made).push_back(value);
      }
    }
    for (const int64_t value : used) {
      (IsReached(value) ? segment.inputs : segment.given).push_back(value);
    }
    return segment;
  }

  struct Change {
    int64_t node;
    int64_t value;
  };

  const Program& program_;
  int64_t count_;
  std::vector<int64_t> arises_, last_used_;  // for each value: the defining node, the last user
  // For each value: whether it is a tensor of the module, and whether it may need a gradient.
  std::vector<bool> of_module_, reached_;
  std::vector<bool> group_reached_;  // for each group: whether a value of it may need a gradient
  MemoryGroups groups_;
  std::vector<Change> changes_;  // in-place changes
  // For each node: whether it changes a tensor of the module in place (Cuts::once), and whether it must not be computed
  // twice.
  std::vector<bool> once_, unrepeatable_;
  std::vector<bool> forbidden_;  // for each cut: whether it is forbidden; cut i is before node i
  std::vector<int64_t> alive_;   // for each cut: the number of values that FindAlive() counts
};

}  // namespace

Cuts CutsOf(const Program& program, const std::set<int64_t>& trainable) {
  return Cutter(program, trainable).Cut();
}

}  // namespace lockstep::exported
