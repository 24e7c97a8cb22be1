#include "ops/generated/kernel_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/ceil_divide.h"
#include "ops/generated/kernel_prelude.h"
#include "ops/generated/kernel_text.h"

namespace lockstep::ops {
namespace {

// A term is kept in memory if it is this much smaller than what is computed from it.
constexpr int64_t kSmall = 16;
constexpr int64_t kThreads = 256;
constexpr int kWarp = 32;
// The most sums of one kernel, and the most tensors that it reads with eight lanes: a thread has few registers.
constexpr size_t kMostSums = 8;
constexpr size_t kMostWideTensors = 8;

const char* TypeText(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return "Float16";
    case ElementType::kBFloat16:
      return "Bfloat16";
    case ElementType::kBool:
      return "bool";
    case ElementType::kFloat32:
      break;
  }
  return "float";
}

// Returns how many threads share a row of `packs` packs. Those of a short row are few, so that each adds up some packs,
// and hardly any has nothing to add.
int64_t ThreadsOfRow(int64_t packs) {
  if (packs > 16 * kWarp) return kThreads;
  int64_t threads = kWarp;
  while (threads > 1 &&
         (2 * threads > packs || CeilDivide(packs, threads) * threads * 20 > packs * 23)) {
    threads /= 2;
  }
  return threads;
}

class Planner {
 public:
  Planner(const TensorTerms& terms, const PlanRequest& request)
      : terms_(terms), request_(request), order_(request.order) {
    for (size_t i = 0; i < request.inputs.size(); ++i) tensors_.push_back(request.inputs[i]);
    for (const TermId term : request.given) {
      place_[term] = Add(DenseLayout(ElementType::kFloat32, terms.SizesOf(term), order_));
    }
    plan_.reads.resize(tensors_.size());
    first_made_ = tensors_.size();
  }

  KernelPlan Plan() {
    for (const WantedTerm& wanted : request_.wanted) Visit(wanted.term, ElementsOf(wanted.sizes));
    PlanKernels();
    plan_.made.assign(tensors_.begin() + static_cast<std::ptrdiff_t>(first_made_), tensors_.end());
    return std::move(plan_);
  }

 private:
  int Add(TensorLayout layout) {
    tensors_.push_back(std::move(layout));
    return static_cast<int>(tensors_.size()) - 1;
  }

  bool IsInMemory(TermId term) const {
    return terms_.At(term).primitive == Primitive::kInput || place_.contains(term) ||
           kept_.contains(term);
  }

  // Returns the number of operations with which a kernel computes one element of the term.
  int Cost(TermId term) const {
    if (IsInMemory(term)) return 0;
    int cost = OperandsOf(terms_.At(term).primitive) > 0 ? 1 : 0;
    for (size_t k = 0; k < OperandsOf(terms_.At(term).primitive) && cost < 100; ++k) {
      cost += Cost(terms_.At(term).operands[k]);
    }
    return cost;
  }

  // Decides which terms are kept in memory, so that a kernel over `elements` elements can compute `term`.
  void Visit(TermId term, int64_t elements) {
    const Term& of = terms_.At(term);
    if (of.primitive == Primitive::kInput || place_.contains(term) || kept_.contains(term) ||
        !visited_.emplace(term, elements).second) {
      return;
    }
    if (IsReduction(of.primitive)) {
      Visit(of.operands[0], ElementsOf(terms_.SizesOf(of.operands[0])));
      kept_.insert(term);
      return;
    }
    const int64_t own = ElementsOf(of.sizes);
    const bool is_small = own > 1 && own * kSmall <= elements;
    for (size_t k = 0; k < OperandsOf(of.primitive); ++k) {
      Visit(of.operands[k], is_small ? own : elements);
    }
    if (is_small && Cost(term) > 2) kept_.insert(term);
  }

  // Returns the level of the kernel that can compute the term: kernels of lower levels run before.
  int LevelOf(TermId term) {
    if (const auto known = levels_.find(term); known != levels_.end()) return known->second;
    int level = 0;
    if (terms_.At(term).primitive != Primitive::kInput && !place_.contains(term)) {
      for (size_t k = 0; k < OperandsOf(terms_.At(term).primitive); ++k) {
        const TermId operand = terms_.At(term).operands[k];
        level = std::max(level, LevelOf(operand) + (kept_.contains(operand) ? 1 : 0));
      }
    }
    return levels_[term] = level;
  }

  // A kernel's domain, and what it computes there.
  struct Job {
    int level = 0;
    bool is_wanted = false;
    Sizes domain;
    Dims reduced = 0;
    Primitive primitive = Primitive::kInput;  // of reductions
    size_t part = 0;

    auto operator<=>(const Job&) const = default;
  };

  void PlanKernels() {
    std::map<Job, std::vector<size_t>> wanted;
    std::map<Job, std::vector<TermId>> kept;
    std::map<Job, size_t> counts;
    for (const TermId term : kept_) {
      const Term& of = terms_.At(term);
      Job job{.level = LevelOf(term)};
      if (IsReduction(of.primitive)) {
        job.domain = terms_.SizesOf(of.operands[0]);
        job.reduced = of.dims;
        job.primitive = of.primitive;
        job.part = counts[job]++ / kMostSums;
      } else {
        job.domain = of.sizes;
      }
      kept[job].push_back(term);
    }
    plan_.results.resize(request_.wanted.size(), -1);
    for (size_t i = 0; i < request_.wanted.size(); ++i) {
      const WantedTerm& of = request_.wanted[i];
      if (SumOf(of)) continue;
      const Job job{.level = LevelOf(of.term) + (kept_.contains(of.term) ? 1 : 0),
                    .is_wanted = true,
                    .domain = of.sizes};
      wanted[job].push_back(i);
      kept[job];
    }
    for (const auto& [job, terms] : kept) {
      if (job.reduced != 0) {
        Reduce(job, terms);
        continue;
      }
      std::vector<std::pair<TermId, int>> stores;
      for (const TermId term : terms) {
        stores.emplace_back(term,
                            Add(DenseLayout(ElementType::kFloat32, terms_.SizesOf(term), order_)));
      }
      const std::vector<std::pair<TermId, int>> small = stores;
      if (job.is_wanted) AddWanted(wanted[job], stores);
      Map(job.domain, stores);
      place_.insert(small.begin(), small.end());
    }
    for (size_t i = 0; i < request_.wanted.size(); ++i) {
      if (const auto sum = SumOf(request_.wanted[i])) plan_.results[i] = place_.at(*sum);
    }
  }

  // Adds tensors for these wanted terms, which are computed by one kernel. Equal terms of one type are one tensor.
  void AddWanted(const std::vector<size_t>& wanted, std::vector<std::pair<TermId, int>>& stores) {
    std::map<std::pair<TermId, ElementType>, int> known;
    for (const size_t i : wanted) {
      const WantedTerm& of = request_.wanted[i];
      const auto [at, is_new] = known.try_emplace({of.term, of.type}, -1);
      if (is_new) {
        at->second = Add(DenseLayout(of.type, of.sizes, order_));
        stores.emplace_back(of.term, at->second);
      }
      plan_.results[i] = at->second;
    }
  }

  // Returns the sum whose tensor in memory is the wanted term's, too; nothing if there is none.
  std::optional<TermId> SumOf(const WantedTerm& wanted) const {
    const auto longer = [](int64_t size) { return size > 1; };
    TermId term = wanted.term;
    while (terms_.At(term).primitive == Primitive::kReshape) term = terms_.At(term).operands[0];
    const bool is_same = kept_.contains(term) && IsReduction(terms_.At(term).primitive) &&
                         wanted.type == ElementType::kFloat32 &&
                         ElementsOf(wanted.sizes) == ElementsOf(terms_.SizesOf(term)) &&
                         std::ranges::count_if(wanted.sizes, longer) <= 1;
    return is_same ? std::optional(term) : std::nullopt;
  }

  // The parameters of a kernel: tensors that it reads or writes.
  class Parameters {
   public:
    explicit Parameters(const std::vector<TensorLayout>& tensors) : tensors_(tensors) {}

    const KernelTensor* Of(int tensor) {
      const auto [at, is_new] = names_.try_emplace(tensor);
      if (is_new) {
        at->second = {.name = fmt::format("p{}", numbers_.size()), .layout = tensors_[tensor]};
        numbers_.push_back(tensor);
      }
      return &at->second;
    }
    const std::vector<int>& numbers() const { return numbers_; }

    std::string Text(const std::set<int>& written) const {
      std::vector<std::string> parts;
      for (const int tensor : numbers_) {
        const KernelTensor& of = names_.at(tensor);
        parts.push_back(fmt::format("{}{}* __restrict__ {}",
                                    written.contains(tensor) ? "" : "const ",
                                    TypeText(of.layout.type), of.name));
      }
      std::string text;
      for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
      return text;
    }

   private:
    const std::vector<TensorLayout>& tensors_;
    std::map<int, KernelTensor> names_;
    std::vector<int> numbers_;
  };

  const KernelTensor* TensorOf(TermId term, Parameters& parameters) {
    const Term& of = terms_.At(term);
    if (of.primitive == Primitive::kInput) return parameters.Of(static_cast<int>(of.number));
    const auto place = place_.find(term);
    return place == place_.end() ? nullptr : parameters.Of(place->second);
  }

  // Returns the tensors that a kernel reads to compute the terms.
  std::set<int> Read(const std::vector<TermId>& computed) const {
    std::set<int> tensors;
    std::set<TermId> seen;
    const auto visit = [&](const auto& self, TermId term) -> void {
      if (!seen.insert(term).second) return;
      const Term& of = terms_.At(term);
      if (of.primitive == Primitive::kInput) {
        tensors.insert(static_cast<int>(of.number));
      } else if (const auto place = place_.find(term); place != place_.end()) {
        tensors.insert(place->second);
      } else {
        for (size_t k = 0; k < OperandsOf(of.primitive); ++k) self(self, of.operands[k]);
      }
    };
    for (const TermId term : computed) visit(visit, term);
    return tensors;
  }

  // Returns the number of neighbours that a thread takes.
  int LanesOf(const Sizes& domain, size_t lane, const std::vector<TermId>& computed) const {
    if (domain.empty()) return 1;
    const std::set<int> read = Read(computed);
    const bool is_narrow = std::ranges::any_of(read, [&](int tensor) {
      return tensors_[tensor].type != ElementType::kFloat32 &&
             ElementsOf(tensors_[tensor].sizes) * kSmall > ElementsOf(domain);
    });
    int lanes = is_narrow && read.size() <= kMostWideTensors ? 8 : 4;
    while (domain[lane] % lanes != 0) lanes /= 2;
    return lanes;
  }

  void AddKernel(const std::string& head, const std::string& body, const Parameters& parameters,
                 const std::set<int>& written, PlannedKernel kernel) {
    kernel.text =
        fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}({}) {{\n{}{}}}\n",
                    kThreads, kKernelName, parameters.Text(written), head, body);
    kernel.tensors = parameters.numbers();
    for (const int tensor : kernel.tensors) {
      if (static_cast<size_t>(tensor) < first_made_) plan_.reads[tensor] = true;
    }
    plan_.kernels.push_back(std::move(kernel));
  }

  // Adds the kernel that computes the terms, each into its tensor, element by element.
  void Map(const Sizes& domain, const std::vector<std::pair<TermId, int>>& stores) {
    const std::vector<size_t> order = OrderFor(domain.size(), order_);
    const size_t lane = order.empty() ? 0 : order.back();
    std::vector<TermId> computed;
    std::set<int> written;
    for (const auto& [term, tensor] : stores) {
      computed.push_back(term);
      written.insert(tensor);
    }
    const int lanes = LanesOf(domain, lane, computed);
    Parameters parameters(tensors_);
    KernelText text(
        terms_, [&](TermId term) { return TensorOf(term, parameters); }, domain, lane, lanes);
    std::string per_lane, after;
    for (size_t k = 0; k < stores.size(); ++k) {
      const auto& [term, tensor] = stores[k];
      per_lane += fmt::format("      y{}[l] = {};\n", k, text.Value(term));
      const KernelTensor* const to = parameters.Of(tensor);
      std::string offset;
      for (const size_t i : order) {
        if (domain[i] == 1) continue;
        offset += fmt::format("{}i{} * {}", offset.empty() ? "" : " + ", i, to->layout.strides[i]);
      }
      after += fmt::format("    Store<{}>(y{}, {} + ({}));\n", lanes, k, to->name,
                           offset.empty() ? "0" : offset);
    }
    std::string declared;
    for (size_t k = 0; k < stores.size(); ++k)
      declared += fmt::format("    float y{}[{}];\n", k, lanes);
    const int64_t groups = ElementsOf(domain) / lanes;
    const std::string head =
        fmt::format("  const int n = blockIdx.x * {} + threadIdx.x;\n  if (n < {}) {{\n{}",
                    kThreads, groups, IndicesText("n", order, domain, lane, lanes));
    const std::string body =
        fmt::format("{}{}#pragma unroll\n    for (int l = 0; l < {}; ++l) {{\n{}{}    }}\n{}  }}\n",
                    text.loads(), declared, lanes, text.lanes(), per_lane, after);
    PlannedKernel kernel;
    kernel.grid_x = static_cast<unsigned>(CeilDivide(groups, kThreads));
    kernel.block_x = kThreads;
    AddKernel(head, body, parameters, written, kernel);
  }

  // Adds the kernels that reduce the operands of these terms, which have one domain, over the same dimensions.
  void Reduce(const Job& job, const std::vector<TermId>& terms) {
    const Sizes& domain = job.domain;
    const std::vector<size_t> order = OrderFor(domain.size(), order_);
    const size_t lane = order.back();
    std::vector<size_t> kept, reduced;
    int64_t results = 1, summed = 1;
    for (const size_t i : order) {
      const bool is_reduced = (job.reduced & (1U << i)) != 0;
      (is_reduced ? reduced : kept).push_back(i);
      (is_reduced ? summed : results) *= domain[i];
    }
    std::vector<TermId> operands;
    for (const TermId term : terms) operands.push_back(terms_.At(term).operands[0]);
    const int lanes = LanesOf(domain, lane, operands);
    const bool by_rows = (job.reduced & (1U << lane)) != 0;
    const char* const by = job.primitive == Primitive::kSum ? "Add" : "Greatest";

    // The threads of a block: x and y. With rows, x goes over the reduced elements, and with columns over the results.
    int64_t x = 0, y = 0, blocks = 0, steps = 0;
    if (by_rows) {
      x = ThreadsOfRow(summed / lanes);
      y = kThreads / x;
      blocks = CeilDivide(results, y);
      steps = CeilDivide(summed / lanes, x);
    } else {
      x = kWarp;
      while (x > 4 && x / 2 >= results / lanes) x /= 2;
      y = kThreads / x;
      blocks = CeilDivide(results / lanes, x);
      steps = CeilDivide(summed, y);
    }
    // Enough blocks for all multiprocessors, unless each would then have hardly anything to add.
    const int64_t wanted_blocks = int64_t{4} * request_.multiprocessors;
    const int64_t shares = std::clamp<int64_t>(std::min(wanted_blocks / blocks, steps / 8), 1, 64);

    Parameters parameters(tensors_);
    std::set<int> written;
    KernelText text(
        terms_, [&](TermId term) { return TensorOf(term, parameters); }, domain, lane, lanes);
    std::string declared, per_lane, after;
    std::vector<std::pair<int, int>> parts;  // the tensor of the shares, and that of the result
    for (size_t k = 0; k < terms.size(); ++k) {
      const int result = Add(DenseLayout(ElementType::kFloat32, terms_.SizesOf(terms[k]), order_));
      const int to = shares == 1 ? result
                                 : Add({.type = ElementType::kFloat32,
                                        .sizes = {shares, results},
                                        .strides = {results, 1}});
      if (shares > 1) parts.emplace_back(to, result);
      written.insert(to);
      const std::string value = text.Value(operands[k]);
      if (by_rows) {
        declared += fmt::format("  float a{} = {}::First();\n", k, by);
        per_lane += fmt::format("      a{0} = {1}::Of(a{0}, {2});\n", k, by, value);
        after += fmt::format(
            "  a{0} = OverRow<{1}, {2}>(a{0});\n  if (threadIdx.x == 0 && k < {3}) {4}[blockIdx.y "
            "* {3} + k] = a{0};\n",
            k, by, x, results, parameters.Of(to)->name);
      } else {
        declared += fmt::format(
            "  float a{0}[{1}];\n#pragma unroll\n  for (int l = 0; l < {1}; ++l) a{0}[l] = "
            "{2}::First();\n",
            k, lanes, by);
        per_lane += fmt::format("      a{0}[l] = {1}::Of(a{0}[l], {2});\n", k, by, value);
        after += fmt::format(
            "  OverColumn<{1}, {2}, {3}, {4}>(a{0});\n  if (threadIdx.y == 0 && k < {5}) "
            "Store<{2}>(a{0}, {6} + "
            "blockIdx.y * {7} + k * {2});\n",
            k, by, lanes, x, y, results / lanes, parameters.Of(to)->name, results);
      }
      results_.emplace_back(terms[k], result);
    }
    const int64_t places = by_rows ? results : results / lanes;
    const int64_t over = by_rows ? summed / lanes : summed;
    const char* const other = by_rows ? "x" : "y";
    const std::string head = fmt::format(
        "  const int k = blockIdx.x * {} + threadIdx.{};\n{}  if (k < {}) {{\n{}"
        "#pragma unroll 2\n  for (int n = blockIdx.y * {} + threadIdx.{}; n < {}; n += {}) {{\n{}",
        by_rows ? y : x, by_rows ? "y" : "x", declared, places,
        IndicesText("k", kept, domain, lane, lanes), by_rows ? x : y, other, over,
        (by_rows ? x : y) * shares, IndicesText("n", reduced, domain, lane, lanes));
    const std::string body = fmt::format(
        "{}#pragma unroll\n    for (int l = 0; l < {}; ++l) {{\n{}{}    }}\n  }}\n  }}\n{}",
        text.loads(), lanes, text.lanes(), per_lane, after);
    PlannedKernel kernel;
    kernel.grid_x = static_cast<unsigned>(blocks);
    kernel.grid_y = static_cast<unsigned>(shares);
    kernel.block_x = static_cast<unsigned>(x);
    kernel.block_y = static_cast<unsigned>(y);
    AddKernel(head, body, parameters, written, kernel);
    for (const auto& [from, to] : parts) AddShares(from, to, by, shares, results);
    for (const auto& [term, tensor] : results_) {
      place_[term] = tensor;
      plan_.sums.push_back(term);
      plan_.tensors_of_sums.push_back(tensor);
    }
    results_.clear();
  }

  // Adds the kernel that reduces the shares of several blocks.
  void AddShares(int from, int to, const char* by, int64_t shares, int64_t results) {
    Parameters parameters(tensors_);
    const std::string read = parameters.Of(from)->name;
    const std::string write = parameters.Of(to)->name;
    const std::string body = fmt::format(
        "  const int k = blockIdx.x * {0} + threadIdx.x;\n  if (k >= {1}) return;\n  float a = "
        "{2}::First();\n"
        "#pragma unroll 8\n  for (int s = 0; s < {3}; ++s) a = {2}::Of(a, {4}[s * {1} + k]);\n  "
        "{5}[k] = a;\n",
        kThreads, results, by, shares, read, write);
    PlannedKernel kernel;
    kernel.grid_x = static_cast<unsigned>(CeilDivide(results, kThreads));
    kernel.block_x = kThreads;
    AddKernel("", body, parameters, {to}, kernel);
  }

  const TensorTerms& terms_;
  const PlanRequest& request_;
  std::vector<size_t> order_;
  std::vector<TensorLayout> tensors_;
  size_t first_made_ = 0;
  std::map<TermId, int> place_;  // the tensors of terms that are in memory
  std::set<TermId> kept_;        // terms that the plan keeps in memory
  std::set<std::pair<TermId, int64_t>> visited_;
  std::map<TermId, int> levels_;
  std::vector<std::pair<TermId, int>> results_;
  KernelPlan plan_;
};

}  // namespace

bool CanPlan(const TensorTerms& terms, const PlanRequest& request) {
  constexpr int64_t kMostElements = int64_t{1} << 30;
  std::vector<TermId> results;
  for (const WantedTerm& wanted : request.wanted) results.push_back(wanted.term);
  const std::vector<bool> needed = terms.NeededBy(results);
  for (size_t i = 0; i < needed.size(); ++i) {
    const Sizes& sizes = terms.SizesOf(static_cast<TermId>(i));
    if (needed[i] &&
        (sizes.size() > kMostDims || ElementsOf(sizes) > kMostElements || ElementsOf(sizes) == 0)) {
      return false;
    }
  }
  return std::ranges::all_of(request.inputs, [](const TensorLayout& input) {
    int64_t last = 0;
    for (size_t i = 0; i < input.sizes.size(); ++i) last += (input.sizes[i] - 1) * input.strides[i];
    return last <= 2 * kMostElements - 2;
  });
}

KernelPlan PlanOf(const TensorTerms& terms, const PlanRequest& request) {
  return Planner(terms, request).Plan();
}

}  // namespace lockstep::ops
