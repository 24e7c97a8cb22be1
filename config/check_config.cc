#include "config/check_config.h"

#include <arpa/inet.h>
#include <google/protobuf/descriptor.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/files/kept_files.h"
#include "base/files/open_file.h"
#include "config/defaults.h"
#include "config/formats/formats.h"
#include "config/kept_inputs.h"
#include "config/peak_learning_rate.h"
#include "config/schema/fields.h"

namespace lockstep {
namespace {

using config::existing_file;
using config::float64;
using config::range;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns why float32 cannot hold `value`, or an empty text if it can. Numbers between 0 and the least normal number
// count as numbers that it cannot hold, because a GPU may take them for 0.
std::string WhyNotFloat32(double value) {
  using Limits = std::numeric_limits<float>;
  const double size = std::abs(value);
  if (size == 0 || (size >= Limits::min() && size <= Limits::max())) return "";
  if (!std::isfinite(value)) return fmt::format("{} is not finite", value);
  return fmt::format("{} is too {} float32, which holds 0 and numbers from {:.2g} to {:.2g}", value,
                     size > 1 ? "large for" : "near 0 for", Limits::min(), Limits::max());
}

class Checker {
 public:
  explicit Checker(const FieldCheck& check)
      : check_(check), config_(check.config()), format_(FormatOf(config_.data())) {}

  void CheckAll(Files files) {
    VisitSetFields(
        config_, "",
        [&](const Message& message, const FieldDescriptor& field, const std::string& name) {
          CheckMeaning(field, name);
          CheckRange(message, field, name);
          CheckFloat32(message, field, name);
          if (files == Files::kMustExist) CheckFiles(message, field, name);
        });
    CheckData();
    CheckModel();
    CheckLoss();
    CheckOptimizer();
    CheckSchedule();
    CheckObserve();
    CheckProfile();
    // With both settings, the ranks would run the collectives of gradient buckets and of BatchNorm in different orders,
    // and could wait for each other forever.
    if (config_.ddp().sync_batch_norm() && config_.ddp().missing_gradient() == config::Ddp::ZERO) {
      Fail("ddp.sync_batch_norm", "does not go with missing_gradient: ZERO");
    }
  }

 private:
  [[noreturn]] void Fail(const std::string& name, const std::string& what) const {
    check_.Fail(name, what);
  }

  void CheckRange(const Message& message, const FieldDescriptor& field,
                  const std::string& name) const {
    if (!field.options().HasExtension(range)) return;
    const config::Range& bounds = field.options().GetExtension(range);
    for (const double value : NumbersOf(message, field)) {
      // The comparisons are written so that NaN fails.
      if (bounds.has_min() && !(value >= bounds.min()))
        Fail(name, fmt::format("{} is less than {}", value, bounds.min()));
      if (bounds.has_above() && !(value > bounds.above()))
        Fail(name, fmt::format("{} is not above {}", value, bounds.above()));
      if (bounds.has_max() && !(value <= bounds.max()))
        Fail(name, fmt::format("{} is more than {}", value, bounds.max()));
      if (bounds.has_below() && !(value < bounds.below()))
        Fail(name, fmt::format("{} is not below {}", value, bounds.below()));
      if (value > 1e300) Fail(name, fmt::format("{} is not finite", value));
    }
  }

  // Fails if float32, in which the kernels compute, cannot hold a number of the field, or rounds it to a bound that the
  // field may not reach.
  void CheckFloat32(const Message& message, const FieldDescriptor& field,
                    const std::string& name) const {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE) return;
    if (field.options().GetExtension(float64)) return;
    const config::Range& bounds = field.options().GetExtension(range);
    for (const double value : NumbersOf(message, field)) {
      if (const std::string why = WhyNotFloat32(value); !why.empty()) Fail(name, why);
      const auto rounded = static_cast<float>(value);
      if (bounds.has_below() && !(rounded < bounds.below())) {
        Fail(name, fmt::format("{} is {} in float32, which is not below {}", value, rounded,
                               bounds.below()));
      }
    }
  }

  // Fails if float32 cannot hold the factors by which pixels become numbers. If the numbers of values differ from each
  // other, Preprocessing reports it, which knows the number of channels.
  void CheckPixelFactors() const {
    const auto& mean = config_.data().mean();
    const auto& std = config_.data().std();
    for (int i = 0; i < std::max(mean.size(), std.size()); ++i) {
      const double center = mean.empty() ? 0 : mean[std::min(i, mean.size() - 1)];
      const double spread = std.empty() ? 1 : std[std::min(i, std.size() - 1)];
      const double scale = 1 / (255 * spread), shift = center / spread;
      // A shift that is nearly 0 is as good as none. A scale of 0 would leave nothing of the pixels.
      std::string why = WhyNotFloat32(scale);
      if (why.empty() && std::abs(shift) > 1) why = WhyNotFloat32(shift);
      if (why.empty()) continue;
      Fail(std.empty() ? "data.mean" : "data.std",
           fmt::format(
               "mean {} and std {} make the pixels' scale 1 / (255 std) = {} and their shift "
               "mean / std = {}: {}",
               center, spread, scale, shift, why));
    }
  }

  void CheckFiles(const Message& message, const FieldDescriptor& field,
                  const std::string& name) const {
    if (!field.options().GetExtension(existing_file)) return;
    const bool of_data = name == "data.train" || name == "data.validation";
    for (const std::string& file : StringsOf(message, field)) {
      if (file.empty()) {
        if (field.is_repeated()) Fail(name, "an empty name where a file's is to be");
        continue;
      }
      struct stat status {};
      if (stat(file.c_str(), &status) != 0) {
        if (errno != ENOENT) {
          Fail(name, fmt::format("{}: cannot be looked at: {}", file, std::strerror(errno)));
        }
        Fail(name, fmt::format("no such {}: {}", of_data ? format_.Noun(file) : "file", file));
      }
      const std::string why =
          of_data ? format_.WhyNot(file, status.st_mode) : WhyNoPlainFile(status.st_mode);
      if (!why.empty()) Fail(name, fmt::format("{}: {}", file, why));
    }
  }

  void CheckFolds() const {
    const config::Data& data = config_.data();
    const config::Folds& folds = data.folds();
    if (folds.count() > 0 && (data.validation_size() > 0 || data.validation_fraction() > 0)) {
      Fail("data.folds.count",
           fmt::format("data.{} is given too: a fold is held back instead, so leave it out",
                       data.validation_size() > 0 ? "validation" : "validation_fraction"));
    }
    if (folds.count() == 1) Fail("data.folds.count", "is 1: a fold needs others to train on");
    if (folds.count() > 0 && folds.fold() >= folds.count()) {
      Fail("data.folds.fold", fmt::format("is {}, and the last of {} folds is {}", folds.fold(),
                                          folds.count(), folds.count() - 1));
    }
    CheckColumn("data.folds.group", folds.group(), folds.by() == config::Folds::GROUP, "GROUP");
  }

  void CheckSampling() const {
    const config::Sampling& sampling = config_.data().sampling();
    if (sampling.by() == config::Sampling::BALANCED &&
        (config_.data().task() != config::Data::CLASSIFICATION || PredictsTokens(config_.data()))) {
      Fail("data.sampling.by", "BALANCED is for CLASSIFICATION of whole samples");
    }
    if (sampling.by() != config::Sampling::ONCE && !config_.data().shuffle()) {
      Fail("data.shuffle", "samples that are drawn have no order: leave it out");
    }
    CheckColumn("data.sampling.column", sampling.column(),
                sampling.by() == config::Sampling::WEIGHTED, "WEIGHTED");
  }

  // Checks `column`, the value of the field `name`, which names a column of a table. `wanted` says whether the config
  // has chosen the option `kind`, which needs the column; if not, the field must be empty.
  void CheckColumn(const std::string& name, const std::string& column, bool wanted,
                   const char* kind) const {
    if (!wanted) {
      if (!column.empty()) Fail(name, fmt::format("is for {}", kind));
      return;
    }
    if (config_.data().format() != config::Data::CSV) Fail(name, "is for CSV");
    if (column.empty()) Fail(name, fmt::format("name a column: {} needs it", kind));
  }

  void CheckData() const {
    const config::Data& data = config_.data();
    constexpr int64_t kMostNumbers = int64_t{1} << 31;
    int64_t numbers = 1;
    for (const int64_t size : data.input_shape()) {
      if (__builtin_mul_overflow(numbers, size, &numbers) || numbers > kMostNumbers) {
        Fail("data.input_shape",
             fmt::format("[{}] is more than the {} numbers that a sample may have",
                         fmt::join(data.input_shape(), ", "), kMostNumbers));
      }
    }
    if (data.train_size() == 0 && format_.needs_files()) {
      Fail("data.train", "name at least one file to train on");
    }
    if (data.validation_size() > 0 && data.validation_fraction() > 0) {
      Fail("data.validation_fraction", "data.validation is given too: choose one of the two");
    }
    CheckFolds();
    CheckSampling();
    if (data.standardize_targets() && data.task() != config::Data::REGRESSION) {
      Fail("data.standardize_targets", "is for REGRESSION");
    }
    if (data.target_mean_size() != data.target_std_size() ||
        (data.target_mean_size() > 0 && !data.standardize_targets())) {
      Fail(
          "data.target_mean",
          "goes with data.target_std and data.standardize_targets, which compute it: leave it out");
    }
    if (format_.pair(data)) {
      if (data.train_size() != 2) Fail("data.train", format_.PairText(data));
      if (data.validation_size() != 0 && data.validation_size() != 2) {
        Fail("data.validation", format_.PairText(data));
      }
    }
    if (!HoldsPixels(data) && data.mean_size() + data.std_size() > 0) {
      Fail(data.mean_size() > 0 ? "data.mean" : "data.std",
           "is for pixels; for CSV use data.csv.scaling");
    }
    CheckPixelFactors();
    const bool has_classes = data.task() == config::Data::CLASSIFICATION;
    const bool has_masks = data.task() == config::Data::SEGMENTATION;
    if (!has_classes && PredictsTokens(data)) {
      Fail("data.task", "tokens are for the next token's CLASSIFICATION");
    }
    if (has_masks && HoldsTokens(data)) Fail("data.task", "SEGMENTATION is for images");
    if (has_masks && data.input_shape_size() != 0 && data.input_shape_size() != 3) {
      Fail("data.input_shape", "images have three numbers: channels, height, width");
    }
    if (has_masks && data.classes() > kIgnoredPixel) {
      Fail("data.classes", fmt::format("SEGMENTATION has at most {}", kIgnoredPixel));
    }
    if (!format_.Has(data.task())) {
      Fail("data.task",
           fmt::format("{} holds {}", FormatName(data),
                       format_.Has(config::Data::REGRESSION) ? "no masks" : "classes of samples"));
    }
    if (!has_classes && !has_masks && config_.model().label_smoothing() > 0) {
      Fail("model.label_smoothing", "is for classes");
    }
    if (has_masks && data.augment().cutmix() > 0) {
      Fail("data.augment.cutmix", "is for one class of each image, not for masks");
    }
    format_.Check(check_);
  }

  // Fails if the user has set `field` although it holds the options of a model or a format that the config does not
  // use.
  void CheckMeaning(const FieldDescriptor& field, const std::string& name) const {
    if (!check_.IsSet(name)) return;
    if (const std::string why = WhyNoMeaning(config_, field); !why.empty()) Fail(name, why);
  }

  void CheckObserve() const {
    const config::Observe& observe = config_.observe();
    if (observe.histograms_every_steps() > 0 && !observe.tensorboard()) {
      Fail("observe.histograms_every_steps",
           "needs observe.tensorboard: true, which writes the histograms");
    }
    const std::string& file = observe.prometheus_file();
    if (!file.empty() && !file.ends_with(".prom")) {
      Fail("observe.prometheus_file",
           fmt::format("{}: the run replaces and removes this file: give it a name of its own that "
                       "ends in .prom",
                       file));
    }
    if (!file.empty()) CheckReplaces("observe.prometheus_file", file);
    CheckAddress("observe.prometheus_address", observe.prometheus_address());
    CheckAddress("observe.page_address", observe.page_address());
  }

  // Fails if a run that replaces `file`, the value of the field `name`, would replace its config, a file that the config
  // names, or the state of a run.
  void CheckReplaces(const std::string& name, const std::string& file) const {
    KeptFiles kept;
    kept.Add(check_.path(), "the config");
    KeepFilesOf(config_, "the config", kept);
    const std::string why = kept.WhyNot(file);
    if (why.empty()) return;
    Fail(name, fmt::format("{}: {}, which a run does not replace: name another file", file, why));
  }

  void CheckProfile() const {
    const config::Profile& profile = config_.profile();
    if (profile.every() > 0 && profile.every() <= profile.steps()) {
      Fail("profile.every",
           fmt::format("{} is not more than profile.steps, {}: a profile would begin "
                       "before the last one has ended",
                       profile.every(), profile.steps()));
    }
    if (profile.every() > 0 && profile.first_step() == 0) {
      Fail("profile.every", "needs profile.first_step, the first step to profile");
    }
  }

  void CheckAddress(const std::string& field, const std::string& value) const {
    in6_addr address{};
    if (inet_pton(AF_INET, value.c_str(), &address) == 1 ||
        inet_pton(AF_INET6, value.c_str(), &address) == 1) {
      return;
    }
    Fail(field,
         fmt::format("\"{}\" is no IPv4 or IPv6 address in numbers, such as 127.0.0.1 or 0.0.0.0",
                     value));
  }

  void CheckModel() const {
    if (config_.model().name() == "torchscript" && config_.model().torchscript().file().empty()) {
      Fail("model.torchscript.file", "name a file that torch.jit.save wrote");
    }
    if (config_.replace_head() && config_.init_from().empty()) {
      Fail("replace_head", "needs init_from: without it every layer starts at random");
    }
  }

  void CheckLoss() const {
    const config::Loss& loss = config_.loss();
    const config::Loss defaults;
    const auto type = loss.type();
    const auto task = config_.data().task();
    const std::string of_task = config::Data::Task_Name(task);
    const std::string of_type = "type: " + config::Loss::Type_Name(type);
    const bool is_own = type == config::Loss::OF_TASK;
    const bool is_focal = type == config::Loss::FOCAL;
    const bool has_numbers = task == config::Data::REGRESSION;
    const bool has_labels = task == config::Data::MULTI_LABEL;
    if (PredictsTokens(config_.data()) &&
        (!is_own || loss.class_weight_size() > 0 || loss.balanced())) {
      Fail("loss", "tokens have the loss of the next token: leave it out");
    }
    if (!is_own && is_focal == has_numbers) {
      Fail("loss.type",
           fmt::format("{} is not for data.task: {}: take {}", config::Loss::Type_Name(type),
                       of_task, has_numbers ? "MAE, HUBER or QUANTILE" : "FOCAL"));
    }
    RequireDefault("loss.gamma", loss.gamma(), defaults.gamma(), is_focal, of_type);
    RequireDefault("loss.delta", loss.delta(), defaults.delta(), type == config::Loss::HUBER,
                   of_type);
    RequireDefault("loss.quantile", loss.quantile(), defaults.quantile(),
                   type == config::Loss::QUANTILE, of_type);
    RequireDefault("loss.class_weight", loss.class_weight_size(), 0, !has_numbers && !has_labels,
                   "data.task: " + of_task + (has_labels ? ", which has positive_weight" : ""));
    RequireDefault("loss.positive_weight", loss.positive_weight_size(), 0, has_labels,
                   "data.task: " + of_task + (has_numbers ? "" : ", which has class_weight"));
    RequireDefault("loss.balanced", loss.balanced(), false,
                   has_labels || task == config::Data::CLASSIFICATION,
                   "data.task: " + of_task + (has_numbers ? "" : ": give loss.class_weight"));
    const auto& weights = loss.class_weight();
    if (!weights.empty() &&
        std::ranges::all_of(weights, [](double weight) { return weight == 0; })) {
      Fail("loss.class_weight",
           "all weights are 0: nothing would be trained: give a class a weight above 0");
    }
    if (loss.balanced() && loss.class_weight_size() + loss.positive_weight_size() > 0) {
      Fail("loss.balanced", "weights are given too: choose one of the two");
    }
    if (is_focal && config_.model().label_smoothing() > 0) {
      Fail("model.label_smoothing", "does not go with loss { type: FOCAL }");
    }
  }

  // Fails if `has_meaning` is false and `value` is not the default: the field `name` then has no effect for `kind`,
  // which is, for example, an optimizer's type.
  template <typename Value>
  void RequireDefault(const std::string& name, const Value& value, const Value& by_default,
                      bool has_meaning, const std::string& kind) const {
    if (has_meaning || value == by_default) return;
    Fail(name, "has no meaning for " + kind);
  }

  void CheckOptimizer() const {
    const config::Optimizer& optimizer = config_.optimizer();
    const config::Optimizer defaults;
    const std::string type = config::Optimizer::Type_Name(optimizer.type());
    const bool sgd = optimizer.type() == config::Optimizer::SGD;
    const bool lars = optimizer.type() == config::Optimizer::LARS;
    const bool by_norm = lars || optimizer.type() == config::Optimizer::LAMB;
    const bool adam = !sgd && !lars;
    RequireDefault("optimizer.momentum", optimizer.momentum(), defaults.momentum(), !adam, type);
    RequireDefault("optimizer.nesterov", optimizer.nesterov(), defaults.nesterov(), sgd, type);
    RequireDefault("optimizer.beta1", optimizer.beta1(), defaults.beta1(), adam, type);
    RequireDefault("optimizer.beta2", optimizer.beta2(), defaults.beta2(), adam, type);
    RequireDefault("optimizer.epsilon", optimizer.epsilon(), defaults.epsilon(), adam, type);
    RequireDefault("optimizer.trust", optimizer.trust(), defaults.trust(), lars, type);
    if (optimizer.nesterov() && optimizer.momentum() == 0) {
      Fail("optimizer.nesterov", "needs optimizer.momentum above 0");
    }
    if (by_norm && optimizer.shard()) {
      Fail("optimizer.shard", "does not go with " + type + ", which needs whole parameters' norms");
    }
    if (optimizer.clip_value() > 0 && optimizer.clip_norm() > 0) {
      Fail("optimizer.clip_value", "optimizer.clip_norm is given too: choose one of the two");
    }
    RequireDefault("optimizer.scaling_batch", optimizer.scaling_batch(), defaults.scaling_batch(),
                   optimizer.lr_scaling() != config::Optimizer::OFF, "lr_scaling: OFF");
    if (const std::string why = WhyNotFloat32(PeakLearningRate(config_)); !why.empty()) {
      Fail("optimizer.lr_scaling",
           fmt::format("lr {} scaled by global_batch / scaling_batch = {} / {}: {}", optimizer.lr(),
                       config_.global_batch(), optimizer.scaling_batch(), why));
    }
  }

  void CheckSchedule() const {
    const config::Schedule& schedule = config_.schedule();
    const config::Schedule defaults;
    const auto type = schedule.type();
    const std::string kind = "a rate of type " + config::Schedule::Type_Name(type);
    RequireDefault("schedule.final_fraction", schedule.final_fraction(), defaults.final_fraction(),
                   type == config::Schedule::COSINE || type == config::Schedule::LINEAR ||
                       type == config::Schedule::ONE_CYCLE,
                   kind);
    RequireDefault("schedule.factor", schedule.factor(), defaults.factor(),
                   type == config::Schedule::STEP || type == config::Schedule::PLATEAU, kind);
    RequireDefault("schedule.every_steps", schedule.every_steps(), defaults.every_steps(),
                   type == config::Schedule::STEP, kind);
    RequireDefault("schedule.patience", schedule.patience(), defaults.patience(),
                   type == config::Schedule::PLATEAU, kind);
    RequireDefault("schedule.first_fraction", schedule.first_fraction(), defaults.first_fraction(),
                   type == config::Schedule::RANGE_TEST, kind);
    if (type == config::Schedule::PLATEAU && !Validates(config_)) {
      Fail("schedule.type", "PLATEAU follows the validation loss: set data.validation_fraction");
    }
  }

  const FieldCheck& check_;
  const config::Config& config_;
  const Format& format_;
};

}  // namespace

bool Validates(const config::Config& config) {
  const config::Data& data = config.data();
  return data.validation_size() > 0 || data.validation_fraction() > 0 || data.folds().count() > 0;
}

void CheckConfig(const FieldCheck& check, Files files) { Checker(check).CheckAll(files); }

}  // namespace lockstep
