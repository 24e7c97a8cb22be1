#include "launch/cli/command/topics.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "base/small_letters.h"

namespace lockstep {
namespace {

struct Topic {
  const char* name;
  const char* what;
  const char* text;
};

constexpr Topic kTopics[] = {
    {"fields", "the config, the file that says what is trained",
     R"(A config is a text file: data { train: "train.csv" } model { name: "mlp" }
  lockstep new DATA                      write a commented config for your files
  lockstep config --template             every field with its meaning, default and range
  lockstep config FILE                   the whole config that FILE gives
  lockstep train FILE --set epochs=3     override a field
docs/configuration.md has all fields.)"},
    {"data", "which files can be trained on",
     R"(Tables (CSV), folders and shards of images, images with masks, NumPy arrays, files of tokens,
MNIST and CIFAR-10. Parquet, Excel and JSON are written as CSV first.
  lockstep new DATA                      look at the files and write a config
  lockstep prepare images FOLDER SMALL --size 256     shrink images once
  lockstep prepare tokens TEXTS --output train.bin    make tokens of text files
docs/data.md has the formats, and the formula of each feature of a table.)"},
    {"text", "what can be done with text",
     R"(A language model (gpt2) learns tokens of text files:
  lockstep prepare tokens a.txt --output train.bin --validation-fraction 0.1
  lockstep new train.bin
Texts with a label each become an array of token numbers, which a model of Hugging Face learns:
docs/models.md, 'A classifier of Hugging Face', has the ten lines of Python.
A column of free text in a table is no input of a model yet, and text is not generated yet:
docs/models.md says how transformers loads a trained gpt2, which it then generates with.)"},
    {"pytorch", "models from PyTorch, and weights back to PyTorch",
     R"(lockstep.export is Python, and needs torch:
  python3 -m lockstep.export timm:resnet18 --classes 10 --size 224 --output net.lsm
  python3 -m lockstep.export MODULE:FUNCTION --size 224 --output net.lsm
      a module for model { name: "imported" imported { file: "net.lsm" } }
  python3 -m lockstep.export --to-torch RUN net.lsm --output net.pt
      a run's weights for torch.load()
  lockstep export RUN --output weights.safetensors
      the same weights as safetensors
In a source checkout it is found with PYTHONPATH=python. docs/models.md has examples.)"},
    {"weights", "weights of runs: use, average, convert, begin from",
     R"(  lockstep export RUN --output w.safetensors          the weights of a run, also RUN@best, RUN@STEP
  lockstep average RUN@100 RUN@200 --output mean.safetensors     the mean of several
  lockstep evaluate RUN --weights mean.safetensors    the model of a run with other weights
  lockstep predict RUN --weights mean.safetensors --input FILE
  lockstep train FILE --set init_from=w.safetensors   begin from weights
ONNX, TorchScript and GGUF files are not written yet: `lockstep help pytorch` leads to PyTorch.)"},
    {"resume", "going on with a run, or beginning from one",
     R"(  lockstep train FILE                    the same command goes on from the newest checkpoint
  lockstep train FILE --set epochs=20    more epochs, if the schedule does not depend on them
  lockstep train FILE --from RUN@STEP --set run_dir=runs/new     another learning rate or schedule
  lockstep train FILE --set init_from=RUN/weights.safetensors    the weights alone
  lockstep train FILE --fresh            begin anew; the old run gets another name
docs/checkpoints.md says what may change.)"},
    {"looking", "what runs do and did",
     R"(  lockstep runs                          all runs: state, best metric, speed
  lockstep compare runs/a runs/b         what they differ in
  lockstep watch RUN                     what a run is doing now
  lockstep watch runs --page             all runs in the browser
  lockstep report runs --output all.html the same as a file
A run's folder has config.pbtxt, log.jsonl, weights.safetensors and checkpoints/; rm -r deletes it.)"},
    {"folds", "cross-validation",
     R"(  lockstep train FILE --folds 5          train five folds, evaluate them, predict what each held back
  lockstep predict RUN --input test.csv --output p.csv     the mean of the folds' predictions
docs/folds.md says how samples are divided: by class, at random, by group, by time.)"},
    {"clusters", "several GPUs and machines, Slurm, Kubernetes",
     R"(  lockstep -n 4 train FILE               four GPUs of this machine
  lockstep -n 16 --hosts node1:8,node2:8 train FILE
  lockstep slurm FILE --gpus 4 --time 4:00:00 >job.sh     then: sbatch job.sh
  lockstep kubernetes FILE --image IMAGE --claim DISK:/data >job.yaml     then: kubectl apply -f job.yaml
  lockstep doctor                        what is missing or slow on this machine
docs/running.md and docs/clusters.md say what machines need.)"},
    {"python", "the Python package",
     R"(  lockstep bundle --wheel .              a wheel that pip installs beside torch
In Python: lockstep.train("train.pbtxt"), lockstep.Run("runs/train").log, .evaluate(), .predict(frame).
lockstep.export(module, inputs, "net.lsm") writes a PyTorch module: lockstep help pytorch.
docs/python.md describes the package.)"},
};

struct Answer {
  std::string_view words;  // separated by spaces
  const char* text;
};

// The first entry that has the word counts. kOtherFormats is the index of the entry with formats of weights.
constexpr size_t kOtherFormats = 1;
constexpr Answer kAnswers[] = {
    {"generate generation sample chat complete write text llm prompt",
     "text is not generated yet: transformers generates with a trained gpt2 (lockstep help text)"},
    {"onnx torchscript gguf tflite coreml tensorrt openvino convert conversion",
     "ONNX, TorchScript and GGUF files are not written yet: lockstep export RUN --output "
     "weights.safetensors writes weights, and python3 -m lockstep.export --to-torch RUN --output "
     "net.pt those of torch.load()"},
    {"quantize quantise quantization prune distill int8 fp8",
     "weights are not quantised, pruned or distilled yet: lockstep export RUN --output "
     "half.safetensors --dtype bfloat16 halves their bytes"},
    {"lora qlora peft adapter adapters",
     "there are no adapters such as LoRA yet: a module of PEFT is exported with python3 -m "
     "lockstep.export MODULE:FUNCTION, and trains what requires a gradient"},
    {"serve server api deploy endpoint",
     "there is no server yet: lockstep predict RUN --input FILE --output predictions.csv predicts "
     "files, and --input - standard input"},
    {"embed embeddings features extract",
     "embeddings are not written yet: lockstep export RUN --output weights.safetensors gives the "
     "weights to PyTorch"},
    {"explain importance importances shap",
     "the importance of features is not computed yet: lockstep evaluate RUN --input FILE gives the "
     "metrics of a file in which you have shuffled a column"},
    {"finetune fit learn run start launch pretrain training",
     "lockstep train CONFIG trains; init_from begins with weights (lockstep help resume)"},
    {"resume continue restart restore go unpause",
     "the same lockstep train command goes on from the newest checkpoint (lockstep help resume)"},
    {"test eval evaluation validate validation score metrics metric accuracy",
     "lockstep evaluate RUN prints the metrics, with --input FILE those of other files"},
    {"infer inference prediction predictions forward classify submission submit kaggle",
     "lockstep predict RUN --input FILE --output predictions.csv predicts; --submission writes "
     "what a competition wants"},
    {"list ls status ps show info inspect describe summary history experiments jobs",
     "lockstep runs lists the runs, and lockstep watch RUN shows one"},
    {"plot plots chart logs log graph curves curve loss losses tensorboard ui gui dashboard page "
     "web monitor top nvidiasmi gpu gpus",
     "lockstep watch RUN shows a run, lockstep watch runs --page all of them in the browser, and "
     "lockstep watch alone this machine (docs/observe.md has TensorBoard)"},
    {"sweep search hpo hyperopt optuna lrfind lrfinder findlr autotune optimize optimise",
     "lockstep tune CONFIG finds the fastest step and a learning rate by short trials"},
    {"merge swa ema avg mean soup combine",
     "lockstep average RUN@100 RUN@200 --output mean.safetensors writes the mean of weights"},
    {"ensemble fold folds cv kfold crossval crossvalidate crossvalidation",
     "lockstep train CONFIG --folds 5 trains folds, and predict takes their mean (lockstep help "
     "folds)"},
    {"diff", "lockstep compare RUN RUN says what runs differ in"},
    {"import load pytorch torch timm torchvision huggingface hf transformers lsm lockstep.export",
     "python3 -m lockstep.export writes a PyTorch module to a file that trains (lockstep help "
     "pytorch)"},
    {"save snapshot", "lockstep checkpoint RUN saves the state of a job, which goes on"},
    {"kill pause cancel quit end halt scancel abort",
     "lockstep stop RUN saves the state of a job and ends it"},
    {"rm delete remove clean cleanup prune-runs",
     "rm -r RUN deletes a run; checkpoint.keep says how many checkpoints a run keeps"},
    {"sbatch srun submitit queue cluster mpirun torchrun distributed ddp",
     "lockstep -n 4 train CONFIG starts four ranks, and lockstep slurm CONFIG --time 4:00:00 "
     "prints a job script (lockstep help clusters)"},
    {"k8s kubectl kubeflow mpijob",
     "lockstep kubernetes CONFIG --image IMAGE --claim DISK:/data prints a manifest (lockstep help "
     "clusters)"},
    {"init create setup wizard template scaffold automl",
     "lockstep new DATA writes a config for your files"},
    {"tokenize tokenise tokens token vocab tokenizer",
     "lockstep prepare tokens TEXTS --output train.bin makes tokens of text files"},
    {"preprocess resize shrink shards shard webdataset dataset datasets split",
     "lockstep prepare images and lockstep prepare shards make images ready, and "
     "data.validation_fraction splits (lockstep help data)"},
    {"download pull fetch push upload login logout",
     "nothing is downloaded or uploaded: give the paths of your files"},
    {"update upgrade install uninstall",
     "git pull and ./lockstep build a newer program, and pip installs a newer wheel"},
    {"lint format verify-config check dryrun validate-config print fields field schema options "
     "set",
     "lockstep config FILE checks a config and prints it whole, and lockstep config --template "
     "prints every field"},
    {"memory vram oom fits size", "lockstep estimate CONFIG --gpu T4 says what fits on a GPU"},
    {"trace nsys flops speed",
     "lockstep profile RUN profiles a job, and lockstep bench step CONFIG times a step"},
    {"debug hang why deadlock", "lockstep flight RUN says what each rank did last"},
    {"benchmark benchmarks perf", "lockstep bench has the benchmarks"},
    {"env environment diagnose health check-env",
     "lockstep doctor says what is missing or slow on this machine"},
    {"manual man docs doc topics guide tutorial faq",
     "lockstep help lists commands and topics, and docs/ has the pages"},
};

// Options of other programs, with the field of a config that has the same meaning.
constexpr Answer kFields[] = {
    {"lr learningrate", "optimizer.lr"},
    {"batch batchsize bs", "global_batch"},
    {"steps iterations maxiter", "max_steps"},
    {"outputdir outdir logdir savedir dir workdir", "run_dir"},
    {"cpu cuda", "device"},
    {"fp16 bf16 amp", "precision"},
    {"wd decay", "optimizer.weight_decay"},
    {"pretrained weights", "init_from"},
    {"workers numworkers", "loader.threads"},
    {"valsplit validationsplit holdout", "data.validation_fraction"},
};

constexpr Answer kOptions[] = {
    {"gpus gpu devices numgpus nproc nprocpernode worldsize np ranks",
     "-n 4 starts four ranks, each on a GPU of its own"},
    {"resume continue checkpoint restart",
     "the same command goes on from the newest checkpoint, and --from RUN@STEP of train begins "
     "from another run's"},
    {"cv kfold nfolds", "--folds 5 of train cross-validates"},
    {"onnx torchscript gguf", "this format is not written yet (lockstep help weights)"},
    {"lora peft quantize quantise", "this does not exist yet (lockstep help pytorch)"},
    {"out o outfile", "the file to write is named with --output FILE"},
    {"verbose debug quiet v q", "there is one level of output; RUN/log.jsonl has all events"},
};

std::string Bare(const std::string& word) {
  std::string bare = InSmallLetters(word);
  std::erase_if(bare, [](char letter) { return letter == '-' || letter == '_'; });
  return bare;
}

bool HasWord(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (Bare(std::string(words.substr(0, end))) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// Returns the text of the first entry that has the word; an empty text if none has it.
const char* TextFor(std::span<const Answer> answers, const std::string& word) {
  for (const Answer& answer : answers) {
    if (HasWord(answer.words, Bare(word))) return answer.text;
  }
  return "";
}

}  // namespace

std::string TextOfTopic(const std::string& name) {
  for (const Topic& topic : kTopics) {
    if (Bare(name) == topic.name)
      return fmt::format("{}: {}\n\n{}\n", name, topic.what, topic.text);
  }
  return "";
}

std::vector<std::string> TopicNames() {
  std::vector<std::string> names;
  for (const Topic& topic : kTopics) names.emplace_back(topic.name);
  return names;
}

std::string ListOfTopics() {
  std::string text = "Topics (lockstep help TOPIC):\n";
  for (const Topic& topic : kTopics) {
    text += fmt::format("  {:<27} {}\n", topic.name, topic.what);
  }
  text +=
      "\nPython beside this program: python3 -m lockstep.export writes PyTorch modules to files "
      "(lockstep help pytorch)";
  return text;
}

std::string FieldOfOption(const std::string& option) { return TextFor(kFields, option); }

std::string AnswerToOption(const std::string& option, const std::string& value) {
  const std::string answer = TextFor(kOptions, option);
  if (!answer.empty()) return answer;
  const bool names_format = HasWord("format to type as", Bare(option));
  return names_format && HasWord(kAnswers[kOtherFormats].words, Bare(value)) ? AnswerTo(value) : "";
}

std::string AnswerTo(const std::string& word) {
  if (const char* answer = TextFor(kAnswers, word); *answer != 0) return answer;
  for (const Topic& topic : kTopics) {
    if (Bare(word) == topic.name) return fmt::format("it is a topic: lockstep help {}", topic.name);
  }
  return "";
}

}  // namespace lockstep
