"""The two things pyproject.toml cannot say: compile the protos first, keep scripts out."""

import shutil
import sys
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # an isolated build does not look here by itself

from devtools.protos import compile_protos  # noqa: E402


class BuildProto(Command):
    """Compile `proto/*.proto` in place, before setuptools looks for modules."""

    description = "compile proto/*.proto"
    user_options = []
    editable_mode = False

    def initialize_options(self):
        self.build_lib = None

    def finalize_options(self):
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self):
        if not self.editable_mode:
            # What an earlier build left here would go into the wheel, deleted modules too.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        compile_protos()

    # build_py lists and copies the results; setuptools asks every step of a build for its own.
    def get_source_files(self):
        return []

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class BuildPy(build_py):
    """Take the package's own modules from the root: its other scripts are no part of it."""

    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        if package == "opscope":
            modules = [
                entry for entry in modules if entry[1] in ("__init__", "__main__", "metrics")
            ]
        return modules


class Build(build):
    sub_commands = [("build_proto", None), *build.sub_commands]


setup(cmdclass={"build": Build, "build_proto": BuildProto, "build_py": BuildPy})
