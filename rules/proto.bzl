"""cc_proto: makes a C++ library from .proto files, with the system's protoc.

Bazel's own cc_proto_library is not used, because it would download protoc and libprotobuf and build them from source.
"""

def cc_proto(name, srcs, visibility = None):
    """Generates C++ code from `srcs`, which may import each other, and makes a cc_library `name` of this code."""
    stems = [src[:-len(".proto")] for src in srcs]

    # The folder of this repository below the execution root: external/NAME if another workspace uses this repository.
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
