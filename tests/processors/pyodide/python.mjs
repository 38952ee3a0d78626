/* Python for WebAssembly, which takes the arguments that python3 takes:

       node python.mjs PYODIDE TREE [ARGUMENTS ...]

   PYODIDE: the folder of Pyodide. TREE: the repository, which is the package opscope, too. Of the
   other files of this machine Python sees those for temporary files alone. */
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { lendBacktrace } from "./backtrace.mjs";

const [pyodide, tree, ...args] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.join(pyodide, "pyodide.mjs")));
const python = await loadPyodide({
  args,
  env: { ...process.env, HOME: process.cwd() },  // where it begins
  _node_mounts: [tree, os.tmpdir()],
});
const { FS, _run_main } = python._module;
FS.mkdirTree("/packages/opscope");
FS.mount(FS.filesystems.NODEFS, { root: tree }, "/packages/opscope");

lendBacktrace(python);
process.exit(_run_main());
