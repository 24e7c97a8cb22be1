"""embedded_texts: makes a C++ header with the contents of files as constants, so that a program contains the files."""

_DELIMITER = "embedded_text"

def embedded_texts(name, texts):
    """Generates `name`.h, whose constants hold the contents of files, and a cc_library `name` with this header.

    Args:
      name: the name of the target, and of the header without .h
      texts: a dict from the name of a constant, a std::string_view in namespace lockstep, to the list of files whose
        contents it holds, one after the other
    """
    lines = ["echo '#pragma once'", "echo '#include <string_view>'", "echo 'namespace lockstep {'"]
    for constant, files in texts.items():
        # The string_view gets its length from the size of an array. For a string_view of a literal the compiler would
        # count the characters one by one, which is slow.
        lines += [
            "printf %%s 'inline constexpr char %sText[] = R\"%s('" % (constant, _DELIMITER),
            "cat " + " ".join(["$(location %s)" % file for file in files]),
            "echo ')%s\";'" % _DELIMITER,
            "echo 'inline constexpr std::string_view %s(%sText, sizeof(%sText) - 1);'" % (constant, constant, constant),
        ]
    lines.append("echo '}  // namespace lockstep'")
    native.genrule(
        name = name + "_gen",
        srcs = [file for files in texts.values() for file in files],
        outs = [name + ".h"],
        cmd = "{ %s; } > $@" % "; ".join(lines),
    )
    native.cc_library(name = name, hdrs = [name + ".h"])
