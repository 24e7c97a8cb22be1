"""cc_proto: a .proto file as a C++ library, made with the system's protoc.

Why not Bazel's cc_proto_library: it would build protoc and libprotobuf from source, which it would
have to download.
"""

def cc_proto(name, src, visibility = None):
    """Generates `src`'s C++ and wraps it in a cc_library called `name`."""
    stem = src[:-len(".proto")]

    # Where this repository lies below the execution root when another workspace uses it.
    repository = native.repository_name()[1:]
    root = "external/" + repository if repository else "."
    native.genrule(
        name = name + "_gen",
        srcs = [src],
        outs = [stem + ".pb.h", stem + ".pb.cc"],
        cmd = "protoc --proto_path={root} --proto_path=/usr/include --cpp_out=$(GENDIR)/{root} $<".format(root = root),
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        visibility = visibility,
        deps = ["@system//:protobuf"],
    )
