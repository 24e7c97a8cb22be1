#include "launch/bundle/weak_symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>

#include "base/error.h"

namespace lockstep {
namespace {

// Gives access to the ELF structures in the bytes of a file.
class Elf {
 public:
  explicit Elf(std::string& bytes) : bytes_(bytes) {
    const auto* header = At<Elf64_Ehdr>(0);
    const bool is_elf = std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                        header->e_ident[EI_CLASS] == ELFCLASS64 &&
                        header->e_shentsize == sizeof(Elf64_Shdr);
    if (!is_elf) throw BugError("no shared library of 64 bits");
  }

  template <typename T>
  T* At(uint64_t offset) {
    if (bytes_.size() < sizeof(T) || offset > bytes_.size() - sizeof(T)) {
      throw BugError("a shared library that is cut short");
    }
    return reinterpret_cast<T*>(bytes_.data() + offset);
  }

  const Elf64_Shdr* Section(uint64_t number) {
    return At<Elf64_Shdr>(At<Elf64_Ehdr>(0)->e_shoff + number * sizeof(Elf64_Shdr));
  }

  // Returns the first section of the type `type`; null if there is none.
  const Elf64_Shdr* SectionOf(uint32_t type) {
    for (int i = 0; i < At<Elf64_Ehdr>(0)->e_shnum; ++i) {
      if (Section(i)->sh_type == type) return Section(i);
    }
    return nullptr;
  }

  std::string_view Text(uint64_t offset) {
    const std::string_view rest = std::string_view(bytes_).substr(std::min(offset, bytes_.size()));
    return rest.substr(0, rest.find('\0'));
  }

 private:
  std::string& bytes_;
};

}  // namespace

void MakeWeak(std::string& library, const std::vector<std::string>& functions) {
  Elf elf(library);
  const Elf64_Shdr* symbols = elf.SectionOf(SHT_DYNSYM);
  const Elf64_Shdr* versions = elf.SectionOf(SHT_GNU_versym);
  const Elf64_Shdr* needs = elf.SectionOf(SHT_GNU_verneed);
  if (symbols == nullptr || versions == nullptr || needs == nullptr) return;

  std::map<int, bool> is_weak;  // version number -> whether all symbols of the version become weak
  const uint64_t names = elf.Section(symbols->sh_link)->sh_offset;
  for (uint64_t i = 0; i < symbols->sh_size / sizeof(Elf64_Sym); ++i) {
    auto* symbol = elf.At<Elf64_Sym>(symbols->sh_offset + i * sizeof(Elf64_Sym));
    if (symbol->st_shndx != SHN_UNDEF) continue;
    const bool named =
        std::ranges::find(functions, elf.Text(names + symbol->st_name)) != functions.end();
    if (named) symbol->st_info = ELF64_ST_INFO(STB_WEAK, ELF64_ST_TYPE(symbol->st_info));
    const auto version = *elf.At<Elf64_Versym>(versions->sh_offset + i * sizeof(Elf64_Versym));
    bool& weak = is_weak.try_emplace(version, true).first->second;
    weak = weak && named;
  }

  uint64_t file = needs->sh_offset;
  for (uint64_t i = 0; i < needs->sh_info; ++i) {
    const auto* need = elf.At<Elf64_Verneed>(file);
    std::vector<Elf64_Vernaux*> unneeded;
    const Elf64_Vernaux* needed = nullptr;
    uint64_t entry = file + need->vn_aux;
    for (int j = 0; j < need->vn_cnt; ++j) {
      auto* version = elf.At<Elf64_Vernaux>(entry);
      const auto found = is_weak.find(version->vna_other);
      if (found != is_weak.end() && found->second) {
        unneeded.push_back(version);
      } else {
        needed = version;
      }
      entry += version->vna_next;
    }
    for (Elf64_Vernaux* version : unneeded) {
      if (needed == nullptr) break;
      version->vna_hash = needed->vna_hash;
      version->vna_name = needed->vna_name;
    }
    file += need->vn_next;
  }
}

}  // namespace lockstep
