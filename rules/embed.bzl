"""embedded_texts: files as constants of a C++ header, so that a program contains them."""

_DELIMITER = "embedded_text"

def embedded_texts(name, texts):
    """Generates `name`.h with constants that hold files, and wraps it in a cc_library called `name`.

    Args:
      name: of the target and of the header
      texts: name of a constant, a std::string_view in namespace lockstep -> its files, one after the other
    """
    lines = ["echo '#pragma once'", "echo '#include <string_view>'", "echo 'namespace lockstep {'"]
    for constant, files in texts.items():
        # An array, because a string_view of a literal would count its characters one by one.
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
