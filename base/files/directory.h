// Lists the entries of a folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/files/readable_file.h"

namespace lockstep {

enum class EntryKind { kFolder, kLinkToFolder, kOther };

// Calls visit(name, kind) for each entry of the folder, in no particular order. Returns the folder's stamp
// (base/files/readable_file.h) from before its entries were read. Throws Error (kData) if the folder cannot be listed.
Stamp VisitDirectory(const std::string& path,
                     const std::function<void(std::string_view, EntryKind)>& visit);

}  // namespace lockstep
