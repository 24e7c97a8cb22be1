// Reads meaning from the names of columns and files.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Whether a column of this name usually tells rows apart: id, user_id, userId, PassengerId, index, Unnamed: 0.
bool IsNameOfIds(const std::string& name);

// A file's or folder's name without the folder in which it lies.
std::string NameOfFile(const std::string& path);

// "1 row", "891 rows".
std::string Count(int64_t number, const std::string& noun);

}  // namespace lockstep
