"""embedded_texts: files as constants of a C++ header, so that a program contains them."""

_DELIMITER = "embedded_text"

def embedded_texts(name, texts):
    """Generates `name`.h with a constant for each file, and wraps it in a cc_library called `name`.

    Args:
      name: of the target and of the header
      texts: file -> name of the constant, a std::string_view in namespace lockstep
    """
    lines = ["echo '#pragma once'", "echo '#include <string_view>'", "echo 'namespace lockstep {'"]
    for file, constant in texts.items():
        # An array, because a string_view of a literal would count its characters one by one.
        lines += [
            "printf %%s 'inline constexpr char %sText[] = R\"%s('" % (constant, _DELIMITER),
            "cat $(location %s)" % file,
            "echo ')%s\";'" % _DELIMITER,
            "echo 'inline constexpr std::string_view %s(%sText, sizeof(%sText) - 1);'" % (constant, constant, constant),
        ]
    lines.append("echo '}  // namespace lockstep'")
    native.genrule(
        name = name + "_gen",
        srcs = texts.keys(),
        outs = [name + ".h"],
        cmd = "{ %s; } > $@" % "; ".join(lines),
    )
    native.cc_library(name = name, hdrs = [name + ".h"])
