#include "tests/fuzz/random_call.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/alias_info.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

using c10::IValue;
using c10::TypeKind;
using Sizes = std::vector<int64_t>;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {  // SplitMix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t end) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(end)); }
  int64_t In(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Chance(int64_t of_hundred) { return Below(100) < of_hundred; }
  template <typename T>
  T One(std::initializer_list<T> of) {
    return *(of.begin() + Below(static_cast<int64_t>(of.size())));
  }

 private:
  uint64_t state_;
};

bool Has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

class Maker {
 public:
  Maker(const c10::FunctionSchema& schema, uint64_t seed, bool gradients)
      : schema_(schema), random_(seed), gradients_(gradients) {
    dtype_ = random_.Chance(70) ? at::kFloat
                                : random_.One({at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                               at::kInt, at::kByte, at::kBool, at::kShort});
    if (Has(schema.name(), "bitwise") || Has(schema.name(), "shift") ||
        Has(schema.name(), "::__")) {
      dtype_ = random_.One({at::kLong, at::kInt, at::kByte, at::kBool});
    }
    sizes_ = SizesOf(random_.Chance(5) ? random_.In(5, 7) : random_.In(0, 4));
  }

  std::vector<IValue> Arguments() {
    std::vector<IValue> arguments;
    const std::vector<std::pair<std::string, IValue>> fit =
        random_.Chance(85) ? Fitting() : std::vector<std::pair<std::string, IValue>>();
    // A mistake replaces about one argument in half of the calls that fit.
    const int64_t wrong =
        random_.Chance(50) ? random_.Below(static_cast<int64_t>(schema_.arguments().size())) : -1;
    for (int64_t i = 0; i < std::ssize(schema_.arguments()); ++i) {
      const c10::Argument& argument = schema_.arguments()[i];
      const auto found =
          std::ranges::find(fit, argument.name(), &std::pair<std::string, IValue>::first);
      if (found != fit.end() && i != wrong) {
        arguments.push_back(found->second);
      } else if (argument.default_value() && random_.Chance(fit.empty() ? 30 : 85)) {
        arguments.push_back(*argument.default_value());
      } else {
        writes_ = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
        arguments.push_back(Value(argument.real_type(), argument.name()));
        writes_ = false;
      }
    }
    return arguments;
  }

 private:
  Sizes SizesOf(int64_t rank) {
    Sizes sizes;
    for (int64_t i = 0; i < rank; ++i) sizes.push_back(random_.Chance(4) ? 0 : random_.In(1, 6));
    if (random_.Chance(5) && rank > 0) sizes[random_.Below(rank)] = random_.In(7, 70);
    return sizes;
  }

  // Returns a tensor of these sizes with random values: integers lie in [low, high].
  at::Tensor Tensor(const Sizes& sizes, at::ScalarType dtype, int64_t low = -3, int64_t high = 9) {
    Sizes whole = sizes;
    const int64_t rank = std::ssize(sizes);
    const int64_t layout = random_.Below(12);
    if (layout == 0 && rank >= 2) std::swap(whole[rank - 1], whole[rank - 2]);
    if (layout == 1 && rank >= 1) whole[random_.Below(rank)] += 2;
    if (layout == 2 && rank >= 1) whole[random_.Below(rank)] = 1;
    at::Tensor tensor = at::empty(whole, at::TensorOptions(dtype));
    Fill(tensor, low, high);
    if (layout == 0 && rank >= 2) tensor = tensor.transpose(rank - 1, rank - 2);
    if (layout == 1) {
      for (int64_t i = 0; i < rank; ++i) {
        tensor = tensor.narrow(i, tensor.size(i) - sizes[i], sizes[i]);
      }
    }
    if (layout == 2) {
      tensor = writes_ ? tensor.expand(sizes).contiguous() : tensor.expand(sizes);
    }
    if (layout == 3 && rank == 4) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
    if (gradients_ && tensor.is_floating_point() && random_.Chance(60)) {
      tensor.requires_grad_();
      if (writes_) tensor = tensor.clone();
    }
    return tensor;
  }

  void Fill(const at::Tensor& tensor, int64_t low, int64_t high) {
    const int64_t count = tensor.numel();
    const int64_t special = random_.Below(20);
    const bool whole = random_.Chance(10);
    if (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt ||
        tensor.scalar_type() == at::kShort || tensor.scalar_type() == at::kByte ||
        tensor.scalar_type() == at::kChar || tensor.scalar_type() == at::kBool) {
      if (tensor.scalar_type() == at::kBool) low = 0, high = 1;
      if (tensor.scalar_type() == at::kByte) low = std::max<int64_t>(low, 0);
      if (high < low) high = low;
      const bool strays = random_.Chance(6);
      for (int64_t i = 0; i < count; ++i) {
        int64_t value = random_.In(low, high);
        if (strays && random_.Chance(30)) {
          value = random_.One<int64_t>({-1, high + 1, -low - 9, 1000, 1 << 20,
                                        std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min()});
        }
        Set(tensor, i, value);
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      double value = static_cast<double>(random_.In(-2000, 2000)) / 1000;
      if (whole) value = static_cast<double>(random_.In(-2, 3));
      if (special == 0 && random_.Chance(20)) {
        value = random_.One<double>({std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity(),
                                     std::numeric_limits<double>::quiet_NaN(), 1e30, -1e30, 1e9});
      }
      Set(tensor, i, value);
    }
  }

  template <typename T>
  static void Set(const at::Tensor& tensor, int64_t i, T value) {
    void* data = tensor.mutable_data_ptr();
    switch (tensor.scalar_type()) {
      case at::kLong:
        static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
        return;
      case at::kInt:
        static_cast<int32_t*>(data)[i] = static_cast<int32_t>(static_cast<int64_t>(value));
        return;
      case at::kShort:
        static_cast<int16_t*>(data)[i] = static_cast<int16_t>(static_cast<int64_t>(value));
        return;
      case at::kByte:
      case at::kChar:
        static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(static_cast<int64_t>(value));
        return;
      case at::kBool:
        static_cast<bool*>(data)[i] = value != 0;
        return;
      case at::kDouble:
        static_cast<double*>(data)[i] = static_cast<double>(value);
        return;
      case at::kHalf:
        static_cast<at::Half*>(data)[i] = static_cast<float>(value);
        return;
      case at::kBFloat16:
        static_cast<at::BFloat16*>(data)[i] = static_cast<float>(value);
        return;
      default:
        static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  }

  // ---- Arguments of which only the type and the name are known -------------------------------------

  IValue Value(const c10::TypePtr& type, const std::string& name) {
    switch (type->kind()) {
      case TypeKind::OptionalType:
        if (random_.Chance(40)) return {};
        return Value(type->expectRef<c10::OptionalType>().getElementType(), name);
      case TypeKind::TensorType:
        return AnyTensor(name);
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return AnyInteger(name);
      case TypeKind::FloatType:
        return AnyNumber();
      case TypeKind::BoolType:
        return random_.Chance(50);
      case TypeKind::NumberType:
        if (random_.Chance(50)) return AnyNumber();
        return random_.Chance(10) ? AnyInteger(name) : random_.In(-3, 9);
      case TypeKind::StringType:
        return std::string(random_.One<const char*>(
            {"constant", "reflect", "replicate", "circular",     "same",   "valid",
             "none",     "tanh",    "sum",       "prod",         "mean",   "amax",
             "amin",     "floor",   "trunc",     "left",         "right",  "linear",
             "nearest",  "ij",      "xy",        "bij,bjk->bik", "ij->ji", "...",
             "ii->i",    "fro",     "nuc",       "multiply",     "add",    "x"}));
      case TypeKind::ScalarTypeType:
        return static_cast<int64_t>(random_.One({at::kFloat, at::kFloat, at::kDouble, at::kLong,
                                                 at::kBool, at::kBFloat16, at::kHalf, at::kByte}));
      case TypeKind::LayoutType:
        return static_cast<int64_t>(at::kStrided);
      case TypeKind::MemoryFormatType:
        return random_.In(0, 3);
      case TypeKind::DeviceObjType:
        return at::Device(at::kCPU);
      case TypeKind::ListType: {
        const c10::TypePtr& element = type->expectRef<c10::ListType>().getElementType();
        const bool numbers =
            element->kind() == TypeKind::IntType || element->kind() == TypeKind::SymIntType;
        const c10::TypePtr boxed = numbers ? c10::IntType::get() : element;
        c10::impl::GenericList list(boxed);
        const int64_t count = random_.Chance(70) ? random_.In(1, 3) : random_.In(0, 6);
        const bool like_sizes = numbers && (name == "size" || name == "shape" || name == "sizes");
        if (like_sizes && random_.Chance(50)) {
          for (const int64_t size : sizes_) list.push_back(random_.Chance(90) ? size : -1);
        } else {
          for (int64_t i = 0; i < count; ++i) list.push_back(Value(element, name));
        }
        return list;
      }
      default:
        return {};
    }
  }

  IValue AnyTensor(const std::string& name) {
    const bool index = Has(name, "ind") || name == "target" || Has(name, "offsets") ||
                       name == "repeats" || name == "sorter" || Has(name, "batch_sizes");
    if (random_.Chance(4)) {
      at::Tensor number = at::scalar_to_tensor(random_.In(-3, 9));
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
      return number;
    }
    Sizes sizes = sizes_;
    switch (random_.Below(10)) {
      case 0:
        sizes = SizesOf(random_.In(0, 5));
        break;
      case 1:
        if (!sizes.empty()) sizes[random_.Below(std::ssize(sizes))] = 1;
        break;
      case 2:
        if (!sizes.empty()) sizes = {sizes[random_.Below(std::ssize(sizes))]};
        break;
      case 3:
        if (!sizes.empty()) sizes.erase(sizes.begin());
        break;
      default:
        break;
    }
    at::ScalarType dtype = dtype_;
    int64_t low = -3, high = 9;
    if (index && random_.Chance(92)) {
      dtype = random_.Chance(90) ? at::kLong : at::kInt;
      low = 0;
      high = sizes_.empty() ? 0 : *std::ranges::min_element(sizes_) - 1;
      if (random_.Chance(30)) high = random_.In(0, 6);
    } else if (name == "mask" || name == "condition" || random_.Chance(3)) {
      dtype = at::kBool;
    } else if (random_.Chance(6)) {
      dtype = random_.One({at::kFloat, at::kDouble, at::kLong, at::kBFloat16, at::kInt, at::kByte});
    }
    return Tensor(sizes, dtype, low, high);
  }

  int64_t AnyInteger(const std::string& name) {
    if (random_.Chance(3)) {
      return random_.One<int64_t>({std::numeric_limits<int64_t>::max(),
                                   std::numeric_limits<int64_t>::min(), 1LL << 31, 1LL << 32,
                                   -(1LL << 31), (1LL << 31) - 1, 1LL << 40, 1 << 20, 1000, -1000});
    }
    if (Has(name, "dim")) {
      const auto rank = static_cast<int64_t>(sizes_.size());
      return random_.Chance(90) && rank > 0 ? random_.In(-rank, rank - 1) : random_.In(-4, 4);
    }
    if (Has(name, "padding")) return random_.In(0, 2) - (random_.Chance(5) ? 2 : 0);
    if (name == "reduction") return random_.In(0, 2) + (random_.Chance(5) ? 3 : 0);
    if (random_.Chance(85)) return random_.In(0, 4);
    return random_.In(-5, 12);
  }

  double AnyNumber() {
    if (random_.Chance(6)) {
      return random_.One<double>({0, std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(), 1e30, -1e9, 1e-30, 2,
                                  3});
    }
    return static_cast<double>(random_.In(random_.Chance(10) ? -1500 : 1, 1500)) / 1000;
  }

  // ---- Arguments that fit together ----------------------------------------------------------------

  using Named = std::vector<std::pair<std::string, IValue>>;

  at::Tensor F(const Sizes& sizes) { return Tensor(sizes, dtype_); }
  at::Tensor MaybeF(const Sizes& sizes) { return random_.Chance(60) ? F(sizes) : at::Tensor(); }
  at::Tensor Index(const Sizes& sizes, int64_t below) {
    return Tensor(sizes, random_.Chance(90) ? at::kLong : at::kInt, 0, below - 1);
  }
  int64_t N(int64_t low = 1, int64_t high = 5) { return random_.In(low, high); }
  Sizes Ns(int64_t count, int64_t low, int64_t high) {
    Sizes numbers;
    for (int64_t i = 0; i < count; ++i) numbers.push_back(random_.In(low, high));
    return numbers;
  }
  static Sizes Cat(Sizes a, const Sizes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static IValue Optional(const at::Tensor& tensor) {
    return tensor.defined() ? IValue(tensor) : IValue();
  }
  static int64_t DigitIn(const std::string& name) {
    for (size_t i = 0; i < name.size(); ++i) {
      if (name[i] >= '1' && name[i] <= '3' && i + 1 < name.size() && name[i + 1] == 'd')
        return name[i] - '0';
    }
    return 2;
  }

  Named Fitting() {
    const std::string name = schema_.name().substr(6);
    const int64_t d = DigitIn(name);
    const auto floats = [&] {
      if (random_.Chance(75)) dtype_ = at::kFloat;
    };
    if (name.starts_with("conv")) {
      floats();
      const bool transposed = Has(name, "transpose");
      const int64_t spatial = name == "convolution" ? N(1, 3) : d;
      const int64_t groups = random_.Chance(70) ? 1 : N(1, 3), in = N(1, 4), out = N(1, 4);
      const Sizes image = Ns(spatial, 2, 9), kernel = Ns(spatial, 1, 3);
      Sizes x{in * groups};
      if (name == "convolution" || random_.Chance(85)) x.insert(x.begin(), N(1, 3));
      Named named{{"input", F(Cat(x, image))},
                  {"stride", Ns(random_.Chance(80) ? spatial : 1, 1, 3)},
                  {"dilation", Ns(spatial, 1, 2)},
                  {"groups", groups}};
      const bool flips = name == "convolution" && random_.Chance(30);
      if (transposed || flips) {
        named.emplace_back("weight", F(Cat({in * groups, out}, kernel)));
      } else {
        named.emplace_back("weight", F(Cat({out * groups, in}, kernel)));
      }
      named.emplace_back("bias", Optional(MaybeF({out * groups})));
      if (name == "convolution") named.emplace_back("transposed", flips);
      if (name == "convolution" || transposed) {
        named.emplace_back("output_padding", Ns(spatial, 0, random_.Chance(70) ? 0 : 1));
      }
      if (schema_.overload_name() != "padding") {
        named.emplace_back("padding", Ns(spatial, 0, 2));
      } else {
        named.emplace_back("padding", std::string(random_.One<const char*>({"same", "valid"})));
      }
      return named;
    }
    if (Has(name, "pool")) {
      floats();
      if (Has(name, "unpool")) {
        const Sizes x = Cat(Ns(random_.Chance(80) ? 2 : 1, 1, 3), Ns(2, 1, 4));
        const Sizes size = Ns(2, 4, 8);
        return {{"self", F(x)}, {"indices", Index(x, size[0] * size[1])}, {"output_size", size}};
      }
      const Sizes x = Cat(Ns(random_.Chance(80) ? 2 : 1, 1, 4), Ns(d, 3, 9));
      Named named{{"self", F(x)}};
      named.emplace_back("output_size", Ns(d, 1, 5));
      named.emplace_back("kernel_size", Ns(d, 2, 3));
      if (random_.Chance(70)) named.emplace_back("stride", Ns(d, 1, 3));
      named.emplace_back("padding", Ns(d, 0, 1));
      return named;
    }
    if (name == "batch_norm" || name == "native_batch_norm" || name == "instance_norm") {
      floats();
      const int64_t c = N(1, 5);
      const Sizes x = Cat({N(1, 4), c}, Ns(random_.In(0, 3), 1, 5));
      const bool stats = random_.Chance(70);
      return {{"input", F(x)},
              {"weight", Optional(MaybeF({c}))},
              {"bias", Optional(MaybeF({c}))},
              {"running_mean", stats ? IValue(Tensor({c}, dtype_)) : IValue()},
              {"running_var", stats ? IValue(Tensor({c}, dtype_)) : IValue()},
              {"momentum", 0.1},
              {"eps", 1e-5}};
    }
    if (name == "layer_norm" || name == "native_layer_norm" || name == "rms_norm" ||
        name == "_fused_rms_norm") {
      floats();
      const Sizes inner = Ns(N(1, 2), 1, 6);
      return {{"input", F(Cat(Ns(random_.In(0, 2), 1, 4), inner))},
              {"normalized_shape", inner},
              {"weight", Optional(MaybeF(inner))},
              {"bias", Optional(MaybeF(inner))},
              {"eps", random_.Chance(50) ? IValue(1e-5) : IValue(0.1)}};
    }
    if (name == "group_norm" || name == "native_group_norm") {
      floats();
      const int64_t groups = N(1, 3), c = groups * N(1, 3), n = N(1, 3);
      const Sizes image = Ns(random_.In(0, 2), 1, 4);
      int64_t area = 1;
      for (const int64_t size : image) area *= size;
      return {{"input", F(Cat({n, c}, image))},
              {"num_groups", groups},
              {"weight", Optional(MaybeF({c}))},
              {"bias", Optional(MaybeF({c}))},
              {"N", n},
              {"C", c},
              {"HxW", area},
              {"group", groups},
              {"eps", 1e-5}};
    }
    if (name == "_weight_norm" || name == "norm_except_dim") {
      floats();
      const Sizes v = Ns(N(1, 4), 1, 5);
      const int64_t dim = random_.Chance(50) ? 0 : std::ssize(v) - 1;
      Sizes g(v.size(), 1);
      g[dim] = v[dim];
      return {{"v", F(v)}, {"g", F(g)}, {"dim", dim}, {"pow", 2}};
    }
    if (name == "scaled_dot_product_attention") {
      floats();
      const Sizes lead = Ns(random_.Chance(70) ? 2 : N(1, 3), 1, 3);
      const int64_t l = N(1, 6), s = N(1, 6), e = N(1, 8);
      Named named{{"query", F(Cat(lead, {l, e}))},
                  {"key", F(Cat(lead, {s, e}))},
                  {"value", F(Cat(lead, {s, random_.Chance(80) ? e : N(1, 8)}))},
                  {"dropout_p", random_.Chance(70) ? 0.0 : 0.3}};
      if (random_.Chance(40)) {
        named.emplace_back("attn_mask", Tensor({l, s}, random_.Chance(50) ? at::kBool : dtype_));
      }
      return named;
    }
    if (name == "lstm" || name == "gru" || name == "rnn_relu" || name == "rnn_tanh")
      return Recurrent(name);
    if (name == "embedding" || name == "embedding_bag") {
      const int64_t words = N(1, 9);
      if (!at::isFloatingType(dtype_)) dtype_ = at::kFloat;
      Named named{{"weight", F({words, N(1, 9)})}};
      if (name == "embedding") {
        named.emplace_back("indices", Index(SizesOf(random_.In(0, 3)), words));
        return named;
      }
      const int64_t count = N(1, 9);
      named.emplace_back("indices", Index({count}, words));
      at::Tensor offsets = at::zeros({N(1, 4)}, at::kLong);
      for (int64_t i = 1; i < offsets.numel(); ++i)
        offsets.mutable_data_ptr<int64_t>()[i] =
            std::min(count, offsets.const_data_ptr<int64_t>()[i - 1] + random_.In(0, 3));
      named.emplace_back("offsets", offsets);
      named.emplace_back("mode", random_.In(0, 2));
      return named;
    }
    if (Has(name, "upsample")) {
      floats();
      Named named{{random_.Chance(50) ? "self" : "input", F(Cat({N(1, 3), N(1, 3)}, Ns(d, 1, 6)))}};
      named[0].first = schema_.arguments()[0].name();
      const bool is_vec = schema_.overload_name() == "vec";
      if (!is_vec || random_.Chance(50)) {
        named.emplace_back("output_size", Ns(d, 1, 9));
        if (is_vec) named.emplace_back("scale_factors", IValue());
      } else {
        named.emplace_back("output_size", IValue());
        std::vector<double> scales;
        for (int64_t i = 0; i < d; ++i) scales.push_back(static_cast<double>(N(3, 25)) / 10);
        named.emplace_back("scale_factors", scales);
      }
      return named;
    }
    if (Has(name, "grid_sampler")) {
      floats();
      const int64_t n = N(1, 3), spatial = Has(name, "3d") ? 3 : Has(name, "2d") ? 2 : N(2, 3);
      return {{"input", F(Cat({n, N(1, 3)}, Ns(spatial, 1, 5)))},
              {"grid", F(Cat(Cat({n}, Ns(spatial, 1, 5)), {spatial}))},
              {"interpolation_mode", random_.In(0, 2)},
              {"padding_mode", random_.In(0, 2)}};
    }
    if (name == "affine_grid_generator") {
      floats();
      const int64_t n = N(1, 3), spatial = N(2, 3);
      return {{"theta", F({n, spatial, spatial + 1})},
              {"size", Cat({n, N(1, 3)}, Ns(spatial, 1, 5))}};
    }
    if (name == "pixel_shuffle" || name == "pixel_unshuffle") {
      const int64_t r = N(1, 3), c = N(1, 3), h = N(1, 3), w = N(1, 3);
      const Sizes lead = Ns(random_.In(0, 2), 1, 3);
      return {{"self", F(name == "pixel_shuffle" ? Cat(lead, {c * r * r, h, w})
                                                 : Cat(lead, {c, h * r, w * r}))},
              {"upscale_factor", r},
              {"downscale_factor", r}};
    }
    if (Has(name, "channel_shuffle")) {
      const int64_t groups = N(1, 3);
      return {{"self", F(Cat({N(1, 3), groups * N(1, 3)}, Ns(N(1, 3), 1, 4)))}, {"groups", groups}};
    }
    if (name == "im2col" || name == "col2im") {
      floats();
      const int64_t n = N(1, 3), c = N(1, 3);
      const Sizes k = Ns(2, 1, 2), image = Ns(2, 3, 6), one{1, 1}, zero{0, 0};
      Named named{{"kernel_size", k},
                  {"dilation", one},
                  {"padding", zero},
                  {"stride", one},
                  {"output_size", image}};
      if (name == "im2col") {
        named.emplace_back("self", F(Cat({n, c}, image)));
      } else {
        named.emplace_back("self",
                           F({n, c * k[0] * k[1], (image[0] - k[0] + 1) * (image[1] - k[1] + 1)}));
      }
      return named;
    }
    if (Has(name, "_pad") && name != "constant_pad_nd") {
      return {{"self", F(Cat(Ns(random_.In(1, 2), 1, 3), Ns(d, 3, 6)))},
              {"padding", Ns(2 * d, 0, 2)}};
    }
    if (name == "constant_pad_nd" || name == "pad") {
      const int64_t rank = N(1, 4);
      return {{"self", F(Ns(rank, 2, 5))},
              {"pad", Ns(2 * N(1, rank), random_.Chance(80) ? 0 : -1, 2)},
              {"mode",
               std::string(random_.Chance(60)
                               ? "constant"
                               : random_.One<const char*>({"reflect", "replicate", "circular"}))}};
    }
    if (Has(name, "nll_loss") || name == "cross_entropy_loss" || name == "multi_margin_loss") {
      if (!at::isFloatingType(dtype_)) dtype_ = at::kFloat;
      const int64_t c = N(1, 6);
      Sizes batch = Ns(name == "nll_loss2d" ? 1 : random_.In(0, 1), 1, 5);
      Sizes more = name == "nll_loss2d" ? Ns(2, 1, 4)
                   : name == "nll_loss_nd" || name == "cross_entropy_loss"
                       ? Ns(random_.In(0, 2), 1, 3)
                       : Sizes();
      if (batch.empty()) more.clear();
      return {{"self", F(Cat(Cat(batch, {c}), more))},
              {"target", Tensor(Cat(batch, more), at::kLong, 0, c - 1)},
              {"weight", Optional(MaybeF({c}))},
              {"reduction", random_.In(0, 2)}};
    }
    if (name == "multilabel_margin_loss") {
      floats();
      const Sizes x = Ns(N(1, 2), 1, 5);
      return {{"self", F(x)}, {"target", Tensor(x, at::kLong, -1, x.back() - 1)}};
    }
    if (name == "searchsorted" || name == "bucketize") {
      const Sizes s = Ns(N(1, 3), 1, 5);
      Sizes x = s;
      x.back() = N(1, 5);
      if (name == "bucketize") return {{"boundaries", F({N(0, 6)})}, {"side", IValue()}};
      if (schema_.overload_name() == "Scalar")
        return {{"sorted_sequence", F({5})},
                {"self", AnyNumber()},
                {"side", IValue()},
                {"sorter", random_.Chance(70) ? IValue() : IValue(Index({5}, 5))}};
      return {{"sorted_sequence", F(random_.Chance(60) ? s : Sizes{5})},
              {"self", F(x)},
              {"sorter", random_.Chance(70) ? IValue() : IValue(Index(s, s.back()))}};
    }
    if (Has(name, "scatter") || name == "gather" || name == "take_along_dim") {
      if (name == "masked_scatter") return {};
      if (Has(name, "select_") || Has(name, "slice_")) return Products(name);
      const Sizes x = Ns(N(1, 4), 1, 5);
      const int64_t dim = random_.Below(std::ssize(x));
      Sizes i = x;
      for (int64_t& size : i) size = N(1, size);
      i[dim] = N(1, 5);
      Named named{
          {"self", F(x)}, {"dim", dim}, {"index", Index(i, x[dim])}, {"indices", Index(i, x[dim])}};
      named.emplace_back("src", F(i));
      named.emplace_back(
          "reduce",
          std::string(schema_.overload_name() == "two"
                          ? random_.One<const char*>({"sum", "prod", "mean", "amax", "amin"})
                          : random_.One<const char*>({"add", "multiply"})));
      return named;
    }
    if (name.starts_with("index_") && !Has(name, "put")) {
      const Sizes x = Ns(N(1, 4), 1, 5);
      const int64_t dim = random_.Below(std::ssize(x));
      const int64_t count = N(1, 5);
      Sizes source = x;
      source[dim] = count;
      return {
          {"self", F(x)},
          {"dim", dim},
          {"index", Index({count}, x[dim])},
          {"source", F(source)},
          {"value", schema_.overload_name() == "int_Tensor" ? IValue(F({})) : IValue(int64_t{1})}};
    }
    if (name == "index" || name == "index_put" || name == "index_put_") {
      const Sizes x = Ns(N(1, 4), 1, 5);
      c10::List<std::optional<at::Tensor>> indices;
      const Sizes shape = Ns(random_.In(0, 2), 1, 4);
      const int64_t count = N(1, std::ssize(x));
      for (int64_t i = 0; i < count; ++i) {
        if (random_.Chance(30)) {
          indices.push_back(std::nullopt);
        } else if (random_.Chance(15)) {
          indices.push_back(Tensor({x[i]}, at::kBool));
        } else {
          indices.push_back(Tensor(shape, at::kLong, -x[i], x[i] - 1));
        }
      }
      return {{"self", F(x)}, {"indices", indices}, {"values", F({})}};
    }
    if (name == "take") {
      return {{"self", F(sizes_)},
              {"index", Index(SizesOf(2), std::max<int64_t>(1, F(sizes_).numel()))}};
    }
    return Products(name);
  }

  Named Products(const std::string& name) {
    const int64_t n = N(), m = N(), k = N(), b = N();
    const auto floats = [&] {
      if (random_.Chance(75)) dtype_ = at::kFloat;
    };
    if (name == "mm") return floats(), Named{{"self", F({n, k})}, {"mat2", F({k, m})}};
    if (name == "bmm") return floats(), Named{{"self", F({b, n, k})}, {"mat2", F({b, k, m})}};
    if (name.starts_with("addmm"))
      return floats(), Named{{"self", F({n, m})}, {"mat1", F({n, k})}, {"mat2", F({k, m})}};
    if (name.starts_with("baddbmm"))
      return floats(),
             Named{{"self", F({b, n, m})}, {"batch1", F({b, n, k})}, {"batch2", F({b, k, m})}};
    if (name.starts_with("addbmm"))
      return floats(),
             Named{{"self", F({n, m})}, {"batch1", F({b, n, k})}, {"batch2", F({b, k, m})}};
    if (name.starts_with("addmv"))
      return floats(), Named{{"self", F({n})}, {"mat", F({n, k})}, {"vec", F({k})}};
    if (name == "mv") return floats(), Named{{"self", F({n, k})}, {"vec", F({k})}};
    if (name == "addr")
      return floats(), Named{{"self", F({n, m})}, {"vec1", F({n})}, {"vec2", F({m})}};
    if (name == "dot" || name == "vdot")
      return floats(), Named{{"self", F({n})}, {"tensor", F({n})}, {"other", F({n})}};
    if (name == "linear")
      return floats(), Named{{"input", F(Cat(SizesOf(random_.In(0, 2)), {k}))},
                             {"weight", F({m, k})},
                             {"bias", Optional(MaybeF({m}))}};
    if (name == "bilinear")
      return floats(), Named{{"input1", F({b, n})},
                             {"input2", F({b, m})},
                             {"weight", F({k, n, m})},
                             {"bias", Optional(MaybeF({k}))}};
    if (name == "matmul" || name == "linalg_matmul")
      return floats(), Named{{"self", F({b, n, k})}, {"other", F({k, m})}};
    if (Has(name, "cholesky") || Has(name, "inv") || name == "matrix_exp") {
      floats();
      at::Tensor x = at::eye(n, at::TensorOptions(at::isFloatingType(dtype_) ? dtype_ : at::kFloat))
                         .add(0.1)
                         .expand({b, n, n})
                         .contiguous();
      return {{"self", x}, {"A", x}, {"input", x}};
    }
    if (name == "linalg_solve") return floats(), Named{{"A", F({b, n, n})}, {"B", F({b, n, m})}};
    if (name == "cdist")
      return floats(), Named{{"x1", F({b, n, k})},
                             {"x2", F({b, m, k})},
                             {"compute_mode",
                              random_.One<IValue>({IValue(), IValue(0), IValue(1), IValue(2)})}};
    if (name == "cross" || name == "linalg_cross") {
      Sizes s = SizesOf(2);
      s.push_back(3);
      return {{"self", F(s)}, {"other", F(s)}, {"dim", int64_t{-1}}};
    }
    if (name == "prelu")
      return floats(), Named{{"self", F({b, n, k})}, {"weight", F({random_.Chance(50) ? 1 : n})}};
    if (name == "glu") {
      Sizes s = SizesOf(3);
      s[1] = 2 * N(1, 3);
      return floats(), Named{{"self", F(s)}, {"dim", int64_t{1}}};
    }
    if (name == "cosine_embedding_loss" || name == "margin_ranking_loss")
      return floats(), Named{{"input1", F({b, n})}, {"input2", F({b, n})}, {"target", F({b})}};
    if (name == "triplet_margin_loss")
      return floats(),
             Named{{"anchor", F({b, n})}, {"positive", F({b, n})}, {"negative", F({b, n})}};
    if (name == "chain_matmul" || name == "linalg_multi_dot") {
      floats();
      const c10::List<at::Tensor> list({F({n, k}), F({k, m}), F({m, b})});
      return {{"matrices", list}, {"tensors", list}};
    }
    if (name == "tensordot")
      return floats(), Named{{"self", F({n, k})},
                             {"other", F({k, m})},
                             {"dims_self", Sizes{1}},
                             {"dims_other", Sizes{0}}};
    if (name == "binary_cross_entropy" || name == "binary_cross_entropy_with_logits") {
      if (!at::isFloatingType(dtype_)) dtype_ = at::kFloat;
      const at::Tensor target = at::sigmoid(F(sizes_)).detach();
      return {{"self", at::sigmoid(F(sizes_))},
              {"target", target},
              {"weight", IValue()},
              {"pos_weight", IValue()},
              {"reduction", random_.In(0, 2)}};
    }
    if (name == "kl_div")
      return floats(),
             Named{{"self", F({n, k})}, {"target", F({n, k})}, {"reduction", random_.In(0, 2)}};
    if (name == "einsum")
      return floats(), Named{{"equation", std::string("bij,bjk->bik")},
                             {"tensors", c10::List<at::Tensor>({F({b, n, k}), F({b, k, m})})},
                             {"path", IValue()}};
    if (name == "split" && schema_.overload_name() == "sizes")
      return {{"self", F({n + m, k})}, {"split_size", Sizes{n, m}}, {"dim", int64_t{0}}};
    if (name == "linalg_matrix_norm")
      return floats(),
             Named{{"self", F({b, n, k})},
                   {"ord", schema_.overload_name() == "str_ord" ? IValue(std::string("fro"))
                                                                : IValue(int64_t{1})},
                   {"dim", Sizes{-2, -1}},
                   {"dtype", IValue()}};
    if (name == "permute")
      return {{"self", F({b, n, k})},
              {"dims", random_.One<IValue>({Sizes{2, 0, 1}, Sizes{0, -1, 1}})}};
    if (name == "slice_scatter")
      return {{"self", F({n, k + 1})}, {"src", F({n, k})}, {"dim", int64_t{1}},
              {"start", int64_t{1}},   {"end", IValue()},  {"step", int64_t{1}}};
    if (name == "unflatten")
      return {{"self", F({n, k * m})},
              {"dim", int64_t{1}},
              {"sizes", random_.One<IValue>({Sizes{k, m}, Sizes{-1, m}})}};
    if (Has(name, "split_with_sizes"))
      return {{"self", F({n + m, k})}, {"split_sizes", Sizes{n, m}}, {"dim", int64_t{0}}};
    if (name.starts_with("masked_fill") && schema_.overload_name() == "Tensor")
      return {{"self", F({n, k})}, {"mask", Tensor({n, k}, at::kBool)}, {"value", F({})}};
    if (name.starts_with("fill") && schema_.overload_name() == "Tensor")
      return {{"self", F(sizes_)}, {"value", F({})}};
    if (name == "div" && schema_.overload_name() == "out") {
      dtype_ = at::kFloat;
      return {{"self", F({n, k})}, {"other", F({n, k})}, {"out", at::zeros({n, k})}};
    }
    if (name == "poisson" || name.starts_with("bernoulli")) {
      dtype_ = at::kFloat;
      return {{"self", at::sigmoid(F(sizes_)).detach()},
              {"p", schema_.overload_name() == "float" || schema_.overload_name() == "p"
                        ? IValue(0.5)
                        : IValue(at::sigmoid(F(sizes_)).detach())},
              {"generator", IValue()}};
    }
    if (name == "one_hot") return {{"self", Index(sizes_, 5)}, {"num_classes", random_.In(4, 7)}};
    if (name == "select_scatter") {
      const Sizes s = Ns(3, 1, 4);
      return {{"self", F(s)},
              {"src", F({s[0], s[2]})},
              {"dim", int64_t{1}},
              {"index", random_.In(-s[1], s[1] - 1)}};
    }
    if (name == "linalg_norm")
      return floats(), Named{{"self", F({n, k})},
                             {"ord", std::string(random_.One<const char*>({"fro", "nuc"}))},
                             {"dim", IValue()},
                             {"dtype", IValue()}};
    if (name == "movedim" || name == "moveaxis")
      return {{"self", F({n, k, m})}, {"source", Sizes{0, 1}}, {"destination", Sizes{2, 0}}};
    if (name == "cov" || name == "corrcoef")
      return floats(), Named{{"self", F({n, k})}, {"fweights", IValue()}, {"aweights", IValue()}};
    if (name == "multinomial") {
      dtype_ = at::kFloat;
      return {{"self", F({n, 5}).abs().detach() + 0.1},
              {"num_samples", random_.In(1, 5)},
              {"generator", IValue()}};
    }
    if ((name == "quantile" || name == "nanquantile") && schema_.overload_name().empty()) {
      dtype_ = at::kFloat;
      return {{"self", F({n, k})},
              {"q", at::sigmoid(F({2})).detach()},
              {"interpolation", std::string("linear")},
              {"dim", IValue()}};
    }
    if (name == "quantile" || name == "nanquantile") {
      dtype_ = at::kFloat;
      return {{"self", F({n, k})},
              {"q", 0.3},
              {"interpolation", std::string("linear")},
              {"dim", IValue()}};
    }
    if (name == "cat" || name == "concat" || name == "stack" || Has(name, "stack") ||
        name == "meshgrid" || name == "broadcast_tensors") {
      const Sizes s = name == "meshgrid" ? Sizes{n} : Ns(N(1, 4), 1, 4);
      c10::List<at::Tensor> list;
      for (int64_t i = 0; i < N(1, 4); ++i) list.push_back(F(s));
      return {{"tensors", list},
              {"dim", random_.Below(std::ssize(s))},
              {"indexing", std::string("ij")}};
    }
    if (name.starts_with("view") || name.starts_with("reshape") || name == "_unsafe_view") {
      return {{"self", F({n, k, m})},
              {"size",
               random_.One<IValue>({Sizes{n * k, m}, Sizes{-1}, Sizes{n, -1}, Sizes{m, k, n}})}};
    }
    return {};
  }

  Named Recurrent(const std::string& name) {
    if (random_.Chance(75)) dtype_ = at::kFloat;
    const int64_t layers = N(1, 2), in = N(1, 5), units = N(1, 5), time = N(1, 4), batch = N(1, 3);
    const bool both = random_.Chance(40), biases = random_.Chance(70), first = random_.Chance(50);
    const int64_t gates = name == "lstm" ? 4 : name == "gru" ? 3 : 1, ways = both ? 2 : 1;
    c10::List<at::Tensor> params;
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t way = 0; way < ways; ++way) {
        params.push_back(F({gates * units, layer == 0 ? in : units * ways}));
        params.push_back(F({gates * units, units}));
        if (biases) params.push_back(F({gates * units})), params.push_back(F({gates * units}));
      }
    }
    const Sizes state{layers * ways, batch, units};
    Named named{{"params", params},      {"has_biases", biases}, {"num_layers", layers},
                {"bidirectional", both}, {"batch_first", first}, {"dropout", 0.0}};
    if (name == "lstm") {
      named.emplace_back("hx", c10::List<at::Tensor>({F(state), F(state)}));
    } else {
      named.emplace_back("hx", F(state));
    }
    named.emplace_back("input", first ? F({batch, time, in}) : F({time, batch, in}));
    return named;
  }

  const c10::FunctionSchema& schema_;
  Random random_;
  bool gradients_;
  bool writes_ = false;
  at::ScalarType dtype_ = at::kFloat;
  Sizes sizes_;
};

}  // namespace

std::vector<IValue> RandomCall(const c10::OperatorHandle& operation, uint64_t seed,
                               bool gradients) {
  return Maker(operation.schema(), seed, gradients).Arguments();
}

}  // namespace lockstep
