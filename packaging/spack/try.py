#!/usr/bin/env python3
"""Runs the recipe without Spack: with stand-ins for what it takes from Spack, it is read, what it asks for is printed, and
its own install is called with the real make.

    try.py FOLDER [verbs]      installs into FOLDER, then runs the recipe's own test

It says nothing about whether Spack finds versions for what the recipe needs.
"""

import contextlib
import os
import subprocess
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPE = ROOT / "packaging/spack/packages/longarm/package.py"


class Prefix(str):
    """A folder: its attributes are the names in it."""

    def __getattr__(self, name):
        return Prefix(f"{self}/{name}")


class Spec:
    """One choice of variants; each dependency is taken to be below /usr."""

    def __init__(self, variants):
        self.variants = variants

    def satisfies(self, what):
        return what in self.variants

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=Prefix("/usr"))


class Environment:
    """Changes to the environment, made at once."""

    def set(self, name, value):
        os.environ[name] = value

    def prepend_path(self, name, value):
        os.environ[name] = value + ":" + os.environ.get(name, "")


def directive(name):
    def said(*words, **more):
        options = [f"{key}={value!r}" for key, value in more.items()]
        print(f"recipe: {name}({', '.join([repr(word) for word in words] + options)})")
        return contextlib.nullcontext()

    return said


def make(*words):
    subprocess.run(["make", "--no-print-directory", *words], cwd=ROOT, check=True)


def which(path, required):
    def call(*words, output):
        return subprocess.run([path, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    return call


def stand_in():
    package = types.ModuleType("spack.package")
    for name in ("license", "version", "variant", "depends_on", "requires", "when"):
        setattr(package, name, directive(name))
    package.EnvironmentModifications = Environment
    package.join_path = os.path.join
    package.make = make
    package.which = which
    generic = types.ModuleType("spack_repo.builtin.build_systems.generic")
    generic.Package = object
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": package, generic.__name__: generic})
    for parent in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        sys.modules[parent] = types.ModuleType(parent)


def main(folder, variants):
    stand_in()
    scope = {}
    exec(compile(RECIPE.read_text(), str(RECIPE), "exec"), scope)
    package = scope["Longarm"]()
    package.spec, package.prefix = Spec(variants), Prefix(folder)
    package.stage = types.SimpleNamespace(path=folder + "-stage")
    package.setup_build_environment(Environment())
    # What is here already need not be fetched and built once more.
    for name in ("CARGO_HOME", "CARGO_TARGET_DIR"):
        if "TRY_" + name in os.environ:
            os.environ[name] = os.environ["TRY_" + name]
    package.install(package.spec, package.prefix)
    package.setup_run_environment(Environment())
    package.test_ranks()
    print("recipe: installed, and its test has passed")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), ["+" + word for word in sys.argv[2:]])
