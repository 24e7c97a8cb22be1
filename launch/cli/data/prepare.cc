// lockstep prepare images, shards and tokens: converts data for training, ahead of time.
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "prepare/images.h"
#include "prepare/shards.h"
#include "prepare/tokens.h"

namespace lockstep {
namespace {

// The base class of the commands `prepare images`, `prepare shards` and `prepare tokens`. `Options` is the struct with
// the options of the function in prepare/ that does the command's work.
template <typename Options>
class PrepareCommand : public LocalCommand {
 public:
  PrepareCommand(CLI::App& app, const std::string& name, const std::string& what)
      : LocalCommand(Group(app, "prepare", "make data ready for training, ahead of time"), name,
                     what) {}

 protected:
  void AddThreads() {
    options().Add("--threads", threads_, "all cores unless given").Within(1, 4096);
  }

  Options made_;

 private:
  ExitStatus RunHere(const Invocation&) override {
    made_.threads = threads_ > 0 ? threads_ : UsableCores();
    made_.live = isatty(STDOUT_FILENO) != 0;
    Print("{}\n", Make());
    return ExitStatus::kDone;
  }

  // Makes the data, and returns a text that says what was made.
  virtual std::string Make() = 0;

  int threads_ = 0;  // the number of threads; 0: one for each core that this process may use
};

class ImagesCommand final : public PrepareCommand<PrepareImagesOptions> {
 public:
  explicit ImagesCommand(CLI::App& app)
      : PrepareCommand(app, "images", "shrink the images of a folder") {
    options()
        .Add("SRC", made_.source, "folder of JPEG, PNG, WebP and BMP files, at any depth")
        .Required();
    options().Add("DST", made_.destination, "folder to make").Required();
    options()
        .Add("--size", made_.size, "greatest length of the shorter side, in pixels")
        .Required()
        .Within(1, 65'500);
    options()
        .Add("--quality", made_.quality, "of the JPEG files, as libjpeg counts")
        .Within(1, 100)
        .ShowDefault();
    options().Add("--exif-orientation", made_.exif_orientation,
                  "turn pictures as their cameras say");
    options()
        .Add("--bad", bad_, "what an image that cannot be read does: stop or skip")
        .OneOf({"stop", "skip"})
        .ShowDefault();
    AddThreads();
  }

 private:
  std::string Make() override {
    made_.skip_bad = bad_ == "skip";
    return PrepareImages(made_);
  }

  std::string bad_ = "stop";
};

class ShardsCommand final : public PrepareCommand<PrepareShardsOptions> {
 public:
  explicit ShardsCommand(CLI::App& app)
      : PrepareCommand(app, "shards", "pack an image folder into tar files") {
    options().Add("SRC", made_.source, "folder with a folder of images for each class").Required();
    options().Add("DST", made_.destination, "folder to make").Required();
    options()
        .Add("--shard-mib", shard_mib_, "size of each tar file, in MiB")
        .Within(1, 1 << 20)
        .ShowDefault();
    options().Add("--seed", made_.seed, "of the order of the images").ShowDefault();
    AddThreads();
  }

 private:
  std::string Make() override {
    made_.shard_bytes = shard_mib_ << 20;
    return PrepareShards(made_);
  }

  int64_t shard_mib_ = 256;
};

class TokensCommand final : public PrepareCommand<PrepareTokensOptions> {
 public:
  explicit TokensCommand(CLI::App& app) : PrepareCommand(app, "tokens", "encode texts as tokens") {
    options().Add("FILES", made_.files, "texts; each is a document").Required();
    options().Add("--output", made_.output, "token file to make").Required();
    options()
        .Add("--vocab", made_.vocabulary,
             "\"bytes\", or a folder with GPT-2's vocab.json and merges.txt")
        .ShowDefault();
    options().Add("--split-on", made_.separator,
                  "text between the documents of a file: <|endoftext|>, say");
    options()
        .Add("--validation-fraction", made_.validation_fraction,
             "share of the text, from its end, that gets files of its own")
        .Between(0, 0.999)
        .ShowDefault();
    options()
        .Add("--shard-tokens", made_.shard_tokens,
             "greatest number in one file; the last one may be shorter than a sample, which "
             "training refuses")
        .Within(1, 2'000'000'000)
        .ShowDefault();
    AddThreads();
  }

 private:
  std::string Make() override {
    for (const char* ending : {".txt", ".csv", ".json", ".npy", ".npz", ".pt", ".safetensors"}) {
      if (!made_.output.ends_with(ending)) continue;
      throw UsageError(
          "--output {}: a token file holds numbers of 16 bits and nothing else: name a .bin file",
          made_.output);
    }
    return PrepareTokens(made_);
  }
};

}  // namespace

std::unique_ptr<Command> NewPrepareImagesCommand(CLI::App& app) {
  return std::make_unique<ImagesCommand>(app);
}

std::unique_ptr<Command> NewPrepareShardsCommand(CLI::App& app) {
  return std::make_unique<ShardsCommand>(app);
}

std::unique_ptr<Command> NewPrepareTokensCommand(CLI::App& app) {
  return std::make_unique<TokensCommand>(app);
}

}  // namespace lockstep
