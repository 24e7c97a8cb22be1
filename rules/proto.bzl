"""cc_proto: .proto files as a C++ library, made with the system's protoc.

Why not Bazel's cc_proto_library: it would build protoc and libprotobuf from source, which it would
have to download.
"""

def cc_proto(name, srcs, visibility = None):
    """Generates the C++ of `srcs`, which may import each other, and wraps it in a cc_library called `name`."""
    stems = [src[:-len(".proto")] for src in srcs]

    # Where this repository lies below the execution root when another workspace uses it.
    repository = native.repository_name()[1:]
    root = "external/" + repository if repository else "."
    native.genrule(
        name = name + "_gen",
        srcs = srcs,
        outs = [stem + suffix for stem in stems for suffix in (".pb.h", ".pb.cc")],
        cmd = "protoc --proto_path={root} --proto_path=/usr/include --cpp_out=$(GENDIR)/{root} $(SRCS)".format(root = root),
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".pb.cc" for stem in stems],
        hdrs = [stem + ".pb.h" for stem in stems],
        visibility = visibility,
        deps = ["@system//:protobuf"],
    )
