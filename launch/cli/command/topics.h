// Answers of the command line that are about no command: texts about topics (`lockstep help TOPIC`), and what to do for
// a word that a user takes for a command, because another program has such a command.
//
// Promise: an answer names a command that does what the word asks for, or says that this does not exist yet.
// tests/dead_ends_test.py runs the commands that the answers name.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Returns the text about a topic, or an empty text if there is no such topic. No topic has the name of a command.
std::string TextOfTopic(const std::string& name);

std::vector<std::string> TopicNames();

// Returns the list of all topics for the help of the program.
std::string ListOfTopics();

// Returns a sentence for a user who typed `word` in place of a command's name, or an empty text for an unknown word.
// The case of letters and the characters - and _ do not matter.
std::string AnswerTo(const std::string& word);

// Returns the field of a config that has the meaning of an option of other programs, such as "--batch-size"; an empty
// text if there is none.
std::string FieldOfOption(const std::string& option);

// Returns a sentence for a user who gave an option that the command does not have; an empty text if nothing is known
// about it. `value` is the word that follows the option.
std::string AnswerToOption(const std::string& option, const std::string& value);

}  // namespace lockstep
