#include "launch/job/kubernetes_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "launch/job/job_size.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The most characters of a name that is part of a host name (RFC 1123), and of the names of other objects.
constexpr size_t kLongestLabel = 63;
constexpr size_t kLongestName = 253;

constexpr char kSmallLetters[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kLabelCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

constexpr char kConfigFolder[] = "/etc/lockstep/config";
constexpr char kSshFolder[] = "/root/.ssh";  // where the operator mounts the keys for ssh

// Folders of the pods in which something else is mounted.
constexpr const char* kTaken[] = {"/dev/shm", "/etc/lockstep", "/etc/mpi", kSshFolder};

// This script is the first process of the launcher. Its arguments are a lockstep command. The options of ssh replace
// those of the operator and of lockstep: a pod that takes another one's place has its name and another key.
constexpr char kLauncherScript[] =
    R"(# Runs the command "$@" when all workers can be reached, and again when a worker was taken away.
ssh="-o BatchMode=yes -o ConnectTimeout=10 -o LogLevel=ERROR -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
export OMPI_MCA_plm_rsh_args="$ssh" PRTE_MCA_plm_ssh_args="$ssh"
job='' ended='' interrupted=''
trap 'ended=1 interrupted=1; [ -z "$job" ] || kill -TERM "$job"' TERM
while :; do
  while read -r host slots; do
    said=''
    until ssh -n $ssh "$host" true 2>/dev/null; do
      [ -n "$said" ] || echo "launcher: waits for $host"
      said=1
      sleep 5 &
      wait "$!"
      [ -z "$ended" ] || exit 75
    done
  done </etc/mpi/hostfile
  "$@" &
  job=$!
  [ -z "$ended" ] || kill -TERM "$job"
  interrupted=1
  while [ -n "$interrupted" ]; do
    interrupted=''
    wait "$job"
    code=$?
    [ "$code" = 127 ] || status=$code # 127: it had ended before the signal came
  done
  job=''
  # 75: the state is saved. If this pod was not told to end, a worker was.
  [ "$status" = 75 ] && [ -z "$ended" ] || break
  echo "launcher: goes on when all workers are there"
done
[ "$status" != 130 ] || exit 0 # lockstep stop: Kubernetes would start a job again that failed
exit "$status"
)";

// This script is the first process of a worker. StrictModes is off because anybody may write to the folder in which
// Kubernetes mounts the keys, and PAM because its modules may need rights that a container lacks. An image must not hold
// host keys, so each pod makes its own. The ranks are the processes that have the config in their command line. (The
// brackets of the pattern keep grep from finding itself.)
constexpr char kWorkerScript[] =
    R"(# Lets the launcher in through ssh. When this pod is taken away, ranks save their state first.
mkdir -p /run/sshd
ssh-keygen -A >/dev/null
/usr/sbin/sshd -D -e -o StrictModes=no -o UsePAM=no -o PermitRootLogin=prohibit-password &
listener=$!
# Sends a signal to the ranks of this pod; fails if there are none.
signal_ranks() {
  found=1
  for process in /proc/[0-9]*; do
    grep -qs "/etc/lockstep/[c]onfig/" "$process/cmdline" || continue
    kill "-$1" "${process#/proc/}" 2>/dev/null && found=0
  done
  return "$found"
}
end() {
  kill "$listener" # from now on no rank starts here
  signal_ranks USR2
  while signal_ranks 0; do sleep 0.2; done
  exit 0
}
trap end TERM
wait "$listener"
exit 1
)";

constexpr char kHead[] =
    R"(# Trains {config} on {workers}. kubectl apply -f THIS_FILE begins, and kubectl delete -f
# THIS_FILE ends it: the state is saved, and apply goes on from there. It needs Kubeflow's mpi-operator, and an image with
# lockstep, Open MPI and an ssh server.
)";

constexpr char kConfigMap[] = R"(apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}{name_space}
data:
  config: {config_text}
  launcher: {launcher}
  worker: {worker}
---
)";

constexpr char kJob[] = R"(apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: {name}{name_space}
spec:
  slotsPerWorker: {ranks}
  sshAuthMountPath: {ssh_folder}
  runPolicy:
    cleanPodPolicy: Running # when the job has ended, its workers' GPUs are free
    # How often a launcher is started again that was taken away, or that failed. A worker that was taken away does not
    # count: the launcher waits for its successor.
    backoffLimit: {launcher_restarts}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      restartPolicy: Never # a new pod instead, because this one's node may be the reason; the log of the old one stays
      template:
        spec:
          terminationGracePeriodSeconds: {grace_s}
          containers:
            - name: launcher
              image: {image}
              workingDir: {folder}
              command: ["/bin/sh", "/etc/lockstep/launcher.sh"]
              args:
                - {command}
              resources:
                requests: {{"cpu": "500m", "memory": "1Gi"}}
              volumeMounts:
                - {mounts}
          volumes:
            - {volumes}
    Worker:
      replicas: {workers}
      restartPolicy: OnFailure # the operator replaces only a pod that is gone, and not one that failed
      template:
        spec:
          terminationGracePeriodSeconds: {grace_s}
          containers:
            - name: worker
              image: {image}
              workingDir: {folder}
              command: ["/bin/sh", "/etc/lockstep/worker.sh"]
              readinessProbe:
                tcpSocket: {{"port": 22}}
                periodSeconds: 5{resources}
              volumeMounts:
                - {mounts}
                - {{"name": "shm", "mountPath": "/dev/shm"}} # MPI and NCCL need more than the usual 64 MiB
          volumes:
            - {volumes}
            - name: shm
              emptyDir: {{"medium": "Memory", "sizeLimit": {shared_memory}}}
)";

// Reads the code point that begins at `at`, and moves `at` behind it. Returns nothing if the bytes are not UTF-8.
std::optional<uint32_t> NextCodePoint(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4) return std::nullopt;
  uint32_t point = first & (0x3F >> more);
  for (int i = 0; i < more; ++i, ++at) {
    if (at >= text.size() || (byte(at) & 0xC0) != 0x80) return std::nullopt;
    point = point << 6 | (byte(at) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = point >= 0xD800 && point <= 0xDFFF;
  if (point < kLeast[more] || point > 0x10FFFF || is_surrogate) return std::nullopt;
  return point;
}

// Returns whether YAML 1.1 and 1.2 have the code point in texts as it is, and do not take it for the end of a line.
bool IsPlain(uint32_t point) {
  if (point < 0x20 || (point > 0x7E && point < 0xA0)) return false;
  return point != 0x2028 && point != 0x2029 && point != 0xFEFF && point != 0xFFFE &&
         point != 0xFFFF;
}

// Calls use(code point, its bytes) for each code point of `text`. Throws Error (kUsage).
template <typename Use>
void ForEachCodePoint(std::string_view text, const Use& use) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const std::optional<uint32_t> point = NextCodePoint(text, at);
    if (!point) {
      constexpr size_t kShown = 60;
      throw UsageError("\"{}\" is not UTF-8, which Kubernetes takes alone", text.substr(0, kShown));
    }
    use(*point, text.substr(begin, at - begin));
  }
}

// Returns `text` between quotes, as YAML and JSON have it. Throws Error (kUsage).
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  ForEachCodePoint(text, [&](uint32_t point, std::string_view bytes) {
    if (point == '"' || point == '\\') {
      quoted += '\\';
      quoted += bytes;
    } else if (IsPlain(point)) {
      quoted += bytes;
    } else if (point == '\n') {
      quoted += "\\n";
    } else {
      quoted += fmt::format("\\u{:04x}", point);
    }
  });
  return quoted + '"';
}

// Returns `text` as the value of a key that is indented by two spaces: as a block of lines if YAML leaves these as they
// are, and otherwise between quotes. Throws Error (kUsage).
std::string Block(const std::string& text) {
  bool plain = text.ends_with('\n') && !text.ends_with("\n\n") && text.size() > 1;
  ForEachCodePoint(text, [&](uint32_t point, std::string_view) {
    if (point != '\n' && point != '\t' && !IsPlain(point)) plain = false;
  });
  if (!plain) return Quoted(text);
  std::string block = "|2";
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    block += end == 0 ? "\n" : fmt::format("\n    {}", rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return block;
}

// Kubernetes replaces $(NAME) in commands by a variable's value, and $$ by $.
std::string WithoutVariables(const std::string& word) {
  std::string text;
  for (const char c : word) text += c == '$' ? std::string("$$") : std::string(1, c);
  return text;
}

// Returns whether `name` is a label of RFC 1123, which names namespaces and pods.
bool IsLabel(std::string_view name) {
  return !name.empty() && name.size() <= kLongestLabel && !name.starts_with('-') &&
         !name.ends_with('-') && name.find_first_not_of(kLabelCharacters) == std::string::npos;
}

// Returns whether `name` is a subdomain of RFC 1123, which names claims: labels with dots between them.
bool IsSubdomain(std::string_view name) {
  if (name.empty() || name.size() > kLongestName) return false;
  while (true) {
    const size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    if (part.empty() || part.starts_with('-') || part.ends_with('-') ||
        part.find_first_not_of(kLabelCharacters) != std::string::npos) {
      return false;
    }
    if (dot == std::string::npos) return true;
    name.remove_prefix(dot + 1);
  }
}

// Returns whether `text` is a quantity such as 16, 0.5, 500m or 64Gi.
bool IsQuantity(std::string_view text) {
  constexpr char kDigits[] = "0123456789";
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit = text.substr(digits);
  constexpr std::string_view kUnits[] = {"",  "m",  "k",  "M",  "G",  "T",  "P",
                                         "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  const size_t dot = number.find('.');
  return number.find_first_of(kDigits) == 0 && (dot == number.npos || dot + 1 < number.size()) &&
         std::ranges::count(number, '.') <= 1 && number.find_first_not_of("0.") != number.npos &&
         std::ranges::find(kUnits, unit) != std::end(kUnits);
}

bool IsBelow(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

struct Mount {
  std::string claim;
  std::string folder;
};

// Reads --claim. Throws Error (kUsage).
std::vector<Mount> MountsOf(const std::vector<std::string>& claims) {
  std::vector<Mount> mounts;
  for (const std::string& claim : claims) {
    const size_t colon = claim.find(':');
    if (colon == std::string::npos) {
      throw UsageError("--claim {}: no folder is named: write {}:/data, say", claim, claim);
    }
    Mount mount{claim.substr(0, colon), claim.substr(colon + 1)};
    if (!IsSubdomain(mount.claim)) {
      throw UsageError(
          "--claim {}: \"{}\" is no claim's name: Kubernetes takes small letters, digits, - and .",
          claim, mount.claim);
    }
    while (mount.folder.size() > 1 && mount.folder.ends_with('/')) mount.folder.pop_back();
    const fs::path folder = mount.folder;
    if (!folder.is_absolute() || folder != folder.lexically_normal() || folder == "/" ||
        mount.folder.find(':') != std::string::npos) {
      throw UsageError("--claim {}: \"{}\" is no folder's whole path: write {}:/data, say", claim,
                       mount.folder, mount.claim);
    }
    for (const char* taken : kTaken) {
      if (IsBelow(folder, taken) || IsBelow(taken, folder)) {
        throw UsageError("--claim {}: the pods have something else in {}: name another folder",
                         claim, taken);
      }
    }
    for (const Mount& other : mounts) {
      if (other.folder != mount.folder) continue;
      throw UsageError("--claim {}: {} is mounted there, too: name another folder", claim,
                       other.claim);
    }
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

// Returns the folder in which the pods' commands start.
std::string FolderOf(const std::vector<Mount>& mounts) {
  return mounts.empty() ? "/" : mounts.front().folder;
}

// Throws Error (kUsage).
void Check(const KubernetesJob& job, const std::vector<Mount>& mounts) {
  const size_t reserved = std::max(std::string_view("-launcher").size(),
                                   fmt::format("-worker-{}", job.workers - 1).size());
  if (!IsLabel(job.name) ||
      std::string_view(kSmallLetters).find(job.name[0]) == std::string::npos ||
      job.name.size() + reserved > kLongestLabel) {
    throw UsageError(
        "--name \"{}\": Kubernetes takes small letters, digits and -, a letter first, and here at "
        "most {} characters",
        job.name, kLongestLabel - reserved);
  }
  if (!job.name_space.empty() && !IsLabel(job.name_space)) {
    throw UsageError("--namespace \"{}\": Kubernetes takes small letters, digits and -, at most {}",
                     job.name_space, kLongestLabel);
  }
  if (job.image.empty() || job.image.find_first_of(" \t\r\n") != std::string::npos) {
    throw UsageError("--image \"{}\": no image has such a name", job.image);
  }
  for (const auto& [option, quantity] : {std::pair("--cpus", job.cpus), {"--memory", job.memory}}) {
    if (quantity.empty() || IsQuantity(quantity)) continue;
    throw UsageError("{} \"{}\": no quantity: write 16, 500m or 64Gi, say", option, quantity);
  }
  // Kubernetes allows objects of about 1 MiB.
  constexpr size_t kMostText = 900'000;
  if (job.config_text.size() > kMostText) {
    throw UsageError("{}: the config has {} bytes, and Kubernetes keeps no more than {}",
                     job.config, job.config_text.size(), kMostText);
  }
  const fs::path run_dir = (fs::path(FolderOf(mounts)) / job.run_dir).lexically_normal();
  if (std::ranges::none_of(mounts,
                           [&](const Mount& mount) { return IsBelow(run_dir, mount.folder); })) {
    throw UsageError(
        "run_dir {}: no --claim holds it, so the run would be lost with its pod: add --claim "
        "CLAIM:/data, say, and name a run_dir below /data",
        job.run_dir);
  }
}

}  // namespace

std::string KubernetesName(const std::string& text) {
  constexpr size_t kReserved = 14;  // for "-worker-999999"
  std::string name;
  for (const char c : text) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_good = std::string_view(kLabelCharacters).find(small) != std::string::npos;
    if (is_good && small != '-') {
      name += small;
    } else if (!name.empty() && !name.ends_with('-')) {
      name += '-';
    }
  }
  name.erase(0, name.find_first_of(kSmallLetters));
  name.resize(std::min(name.size(), kLongestLabel - kReserved));
  while (name.ends_with('-')) name.pop_back();
  return name;
}

std::string KubernetesManifest(const KubernetesJob& job) {
  const std::vector<Mount> claims = MountsOf(job.claims);
  Check(job, claims);
  const int ranks = RanksOfEach(job.ranks_per_worker, job.gpus);

  std::vector<std::string> command{job.program,
                                   "--hosts",
                                   "@/etc/mpi/hostfile",
                                   "--restarts",
                                   std::to_string(job.restarts),
                                   "train",
                                   fmt::format("{}/{}", kConfigFolder, job.config)};
  command.insert(command.end(), job.words.begin(), job.words.end());
  for (std::string& word : command) word = Quoted(WithoutVariables(word));

  const std::string files = job.name + "-train";
  std::vector<std::string> mounts{R"({"name": "lockstep", "mountPath": "/etc/lockstep"})"};
  std::vector<std::string> volumes{fmt::format(
      R"(name: lockstep
              configMap:
                name: {}
                items:
                  - {{"key": "config", "path": {}}}
                  - {{"key": "launcher", "path": "launcher.sh"}}
                  - {{"key": "worker", "path": "worker.sh"}})",
      Quoted(files), Quoted("config/" + job.config))};
  std::vector<std::string> names;
  for (const Mount& claim : claims) {
    const auto known = std::ranges::find(names, claim.claim);
    const std::string volume = fmt::format("claim-{}", known - names.begin());
    if (known == names.end()) {
      names.push_back(claim.claim);
      volumes.push_back(
          fmt::format("name: {}\n              persistentVolumeClaim: {{\"claimName\": {}}}",
                      volume, Quoted(claim.claim)));
    }
    mounts.push_back(
        fmt::format("{{\"name\": \"{}\", \"mountPath\": {}}}", volume, Quoted(claim.folder)));
  }

  std::vector<std::string> limits;
  if (job.gpus > 0) limits.push_back(fmt::format("\"nvidia.com/gpu\": \"{}\"", job.gpus));
  if (!job.cpus.empty()) limits.push_back(fmt::format("\"cpu\": {}", Quoted(job.cpus)));
  if (!job.memory.empty()) limits.push_back(fmt::format("\"memory\": {}", Quoted(job.memory)));
  const std::string resources =
      limits.empty() ? ""
                     : fmt::format("\n              resources:\n                limits: {{{}}}",
                                   fmt::join(limits, ", "));

  const std::string name_space =
      job.name_space.empty() ? "" : fmt::format("\n  namespace: {}", Quoted(job.name_space));
  constexpr char kNextItem[] = "\n                - ";
  constexpr char kNextVolume[] = "\n            - ";
  return fmt::format(kHead, fmt::arg("config", Quoted(job.config)),
                     fmt::arg("workers", MachinesInWords(job.workers, "worker", job.gpus))) +
         fmt::format(kConfigMap, fmt::arg("name", Quoted(files)),
                     fmt::arg("name_space", name_space),
                     fmt::arg("config_text", Block(job.config_text)),
                     fmt::arg("launcher", Block(kLauncherScript)),
                     fmt::arg("worker", Block(kWorkerScript))) +
         fmt::format(kJob, fmt::arg("name", Quoted(job.name)), fmt::arg("name_space", name_space),
                     fmt::arg("ranks", ranks), fmt::arg("ssh_folder", Quoted(kSshFolder)),
                     fmt::arg("launcher_restarts", job.launcher_restarts),
                     fmt::arg("grace_s", job.grace_s), fmt::arg("image", Quoted(job.image)),
                     fmt::arg("folder", Quoted(FolderOf(claims))),
                     fmt::arg("command", fmt::join(command, kNextItem)),
                     fmt::arg("mounts", fmt::join(mounts, kNextItem)),
                     fmt::arg("volumes", fmt::join(volumes, kNextVolume)),
                     fmt::arg("workers", job.workers), fmt::arg("resources", resources),
                     fmt::arg("shared_memory", Quoted(fmt::format("{}Gi", ranks))));
}

}  // namespace lockstep
