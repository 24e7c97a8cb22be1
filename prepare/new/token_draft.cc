// Drafts a config for token files, with a small GPT-2.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/dataset/split.h"
#include "data/tokens/tokens.h"
#include "prepare/new/draft.h"

namespace lockstep {
namespace {

// The number of different tokens that a token file can hold.
constexpr int64_t kTokens = 65'536;
constexpr int64_t kGpt2Vocabulary = 50'257;
constexpr int64_t kBytesVocabulary = 257;

struct Sizes {
  int64_t layers, heads, width;
};

// Returns the sizes of a GPT-2, which are larger for more tokens: its layers have 0.8, 11 or 85 million parameters. A
// model that is much larger than the text would memorize the text.
Sizes SizesFor(int64_t tokens) {
  if (tokens < 1'000'000) return {.layers = 4, .heads = 4, .width = 128};
  if (tokens < 30'000'000) return {.layers = 6, .heads = 6, .width = 384};
  return {.layers = 12, .heads = 12, .width = 768};
}

// Returns the greatest token of the samples.
int64_t GreatestToken(const Dataset& samples) {
  std::vector<int64_t> input(samples.spec().shape[0]), target(samples.spec().shape[0]);
  int64_t greatest = 0;
  for (int64_t i = 0; i < samples.size(); ++i) {
    samples.Read(i, 0, reinterpret_cast<std::byte*>(input.data()),
                 reinterpret_cast<std::byte*>(target.data()));
    greatest = std::max({greatest, *std::ranges::max_element(input), target.back()});
  }
  return greatest;
}

std::shared_ptr<const Dataset> Open(const std::vector<std::string>& files, int64_t length) {
  return MapTokens({.files = files, .length = length, .classes = kTokens});
}

int64_t TokensOf(const std::vector<std::string>& files) { return Open(files, 1)->size() + 1; }

}  // namespace

Draft DraftForTokens(const FoundData& data, const NewRequest& request) {
  constexpr double kHeldBack = 0.1;
  constexpr int64_t kLongText = 10'000'000, kLeastSamples = 20;
  const int64_t tokens = TokensOf(data.train);
  const int64_t fewest =
      data.validation.empty() ? tokens / 10 : std::min(tokens, TokensOf(data.validation));
  int64_t length = tokens < kLongText ? 256 : 1024;
  while (length > 8 && fewest / length < kLeastSamples) length /= 2;
  if (fewest < 2 * length) {
    throw DataError("{}: {} are too few to train on and to evaluate on", data.train[0],
                    Count(tokens, "token"));
  }
  const auto train = Open(data.train, length);
  const auto validation = data.validation.empty() ? train : Open(data.validation, length);
  const int64_t greatest = std::max(GreatestToken(*train), GreatestToken(*validation));
  // If the vocabulary is unknown, the number of classes is a multiple of 64, because GPUs multiply matrices of such
  // sizes fastest.
  const int64_t classes = greatest == kBytesVocabulary - 1 ? kBytesVocabulary
                          : greatest > 40'000 && greatest < kGpt2Vocabulary
                              ? kGpt2Vocabulary
                              : greatest / 64 * 64 + 64;
  const Sizes sizes = SizesFor(tokens);
  const int64_t held_back = data.validation.empty() ? HeldBackOf(train->size(), kHeldBack) : 0;
  const int64_t samples = train->size() - held_back;
  Recipe recipe = RecipeOfTokens(samples);

  const std::string what = fmt::format("{} in {}", Count(tokens, "token"),
                                       Count(static_cast<int64_t>(data.train.size()), "file"));
  ConfigText config;
  BeginConfig(request, what, config);
  config.Open("data");
  config.Line("format: TOKENS");
  WriteFiles(data, request, config);
  if (data.validation.empty()) WriteHeldBack(train->size(), kHeldBack, config);
  config.Line(fmt::format("tokens {{ length: {} }}", length), "what the model sees at once");
  config.Line(fmt::format("classes: {}", classes),
              classes == kGpt2Vocabulary
                  ? fmt::format("GPT-2's vocabulary: the greatest token is {}", greatest)
                  : fmt::format("the greatest token is {}", greatest));
  config.Close();
  config.Blank();
  config.Comment(
      "A GPT-2 of a size that fits that many tokens; GPT-2 124M has 12 layers, 12 heads and width "
      "768.");
  config.Open("model");
  config.Line("name: \"gpt2\"");
  config.Line(fmt::format("gpt2 {{ layers: {} heads: {} width: {} dropout: {} }}", sizes.layers,
                          sizes.heads, sizes.width, tokens < kLongText ? 0.2 : 0.0));
  config.Close();
  config.Blank();
  WriteTraining(recipe, samples, config);
  return {.config = config.text(),
          .found = {fmt::format("{}: {}, the greatest is {}", NameOfFile(data.train[0]), what,
                                greatest)},
          .next = {TrainCommand(request), EvaluateCommand(request, data.test)}};
}

}  // namespace lockstep
