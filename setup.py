"""What pyproject.toml cannot say: compile the protos and the native library, keep scripts out."""

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # an isolated build does not look here by itself

from devtools.protos import compile_protos  # noqa: E402
from native import building  # noqa: E402
from native.units import BUILT  # noqa: E402


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


class BuildNative(Command):
    """Compile the native library: into the wheel, or in place for an editable install.

    Without a compiler nothing is built. Everything runs then, the faster where users have one.
    """

    description = "compile native/*.c"
    user_options = []
    editable_mode = False

    def initialize_options(self):
        self.build_lib = None

    def finalize_options(self):
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    @property
    def library(self):
        package = Path(self.build_lib, "opscope", "native")
        return BUILT if self.editable_mode else package / BUILT.name

    def run(self):
        self.library.unlink(missing_ok=True)  # an earlier one may be of other files
        compiler = self.distribution.compiler
        if compiler is None:
            self.warn("there is no C compiler: the native library is not built")
            return
        try:
            building.build(compiler, self.library)
        except (OSError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", "")
            self.warn(f"the native library is not built: {error}\n{detail}")

    def get_source_files(self):
        return []

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class NativeDistribution(Distribution):
    """A distribution with a library for one platform, where there is a compiler."""

    compiler = building.find_compiler()

    def has_ext_modules(self):
        return self.compiler is not None


class BdistWheel(bdist_wheel):
    """The library knows nothing of Python: one wheel a platform serves every version."""

    def get_tag(self):
        library = self.get_finalized_command("build_native").library
        if not library.exists():
            return super().get_tag()
        tag = building.platform_tag(library, self.distribution.compiler.machine)
        return "py3", "none", tag or super().get_tag()[2]


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
    sub_commands = [("build_proto", None), *build.sub_commands, ("build_native", None)]


setup(
    distclass=NativeDistribution,
    cmdclass={
        "bdist_wheel": BdistWheel,
        "build": Build,
        "build_native": BuildNative,
        "build_proto": BuildProto,
        "build_py": BuildPy,
    },
)
