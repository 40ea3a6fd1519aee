# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Longarm(Package):
    """One-sided communication: a process reads, writes and updates the memory of another
    process while that process computes. A launcher, ARMCI (for Global Arrays), OpenSHMEM 1.6,
    and a library with both; programs in Rust use the crate of the same name."""

    homepage = "https://github.com/longarm-rma/longarm"
    git = "https://github.com/longarm-rma/longarm.git"

    license("MIT OR Apache-2.0", checked_by="longarm")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("verbs", default=False, description="RDMA devices: InfiniBand, RoCE and iWARP")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("rust@1.89:", type="build")

    with when("+verbs"):
        depends_on("pkgconfig", type="build")
        depends_on("llvm+clang", type="build")
        # Built with its headers, and looked for at run time.
        depends_on("rdma-core", type=("build", "run"))

    # Linux's memfds, futexes and epoll are what the ranks of a node share.
    requires("platform=linux", msg="longarm runs on Linux only")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # What cargo fetches goes away with the stage.
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo-home"))
        env.set("CARGO_TARGET_DIR", join_path(self.stage.path, "cargo-target"))
        if self.spec.satisfies("+verbs"):
            env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        if self.spec.satisfies("+verbs"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["rdma-core"].prefix.lib)

    def install(self, spec, prefix):
        verbs = "yes" if spec.satisfies("+verbs") else "no"
        make("install", f"PREFIX={prefix}", "DESTDIR=", f"VERBS={verbs}")

    def test_ranks(self):
        """starts two ranks on this node"""
        longarm = which(self.prefix.bin.longarm, required=True)
        lines = longarm("run", "-n", "2", "--tag-output", "echo", "here", output=str.split)
        assert sorted(lines.splitlines()) == ["[0] here", "[1] here"], lines
