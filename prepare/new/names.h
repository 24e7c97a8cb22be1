// Interprets names of columns and files, and puts counts into words.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Returns whether a column of this name usually identifies rows: id, user_id, userId, PassengerId, index, Unnamed: 0.
bool IsNameOfIds(const std::string& name);

// Returns the last component of a path.
std::string NameOfFile(const std::string& path);

// Returns a number with its noun: "1 row", "891 rows".
std::string Count(int64_t number, const std::string& noun);

}  // namespace lockstep
