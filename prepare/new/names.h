// Interprets names of columns and files, and puts counts into words.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Returns whether a column of this name usually identifies rows: id, user_id, userId, PassengerId, index, Unnamed: 0.
bool IsNameOfIds(const std::string& name);

// Returns whether a column of this name usually says to whom a row belongs: customer, patient_id, SessionNumber.
bool IsNameOfPersons(const std::string& name);

// Returns whether the last word of the name is "id": store_id, shopId.
bool EndsWithId(const std::string& name);

// Returns whether a column of this name usually holds codes that are written with digits but are no quantities:
// postal_code, zip, area code, PLZ.
bool IsNameOfCodes(const std::string& name);

// Returns the last component of a path.
std::string NameOfFile(const std::string& path);

// Returns a number with its noun: "1 row", "891 rows".
std::string Count(int64_t number, const std::string& noun);

}  // namespace lockstep
