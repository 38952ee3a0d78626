/* Python for WebAssembly, which takes the arguments that python3 takes:

       node python.mjs PYODIDE TREE [ARGUMENTS ...]

   PYODIDE: the folder of Pyodide. TREE: the repository, which is the package opscope, too. Of the
   other files of this machine Python sees those for temporary files alone. */
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";

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

/* NumPy asks who calls it before it writes over a large temporary, by a function of the C library
   that Pyodide lacks. A library of this function alone, which finds no callers: NumPy writes
   elsewhere then. */
const text = (name) => [name.length, ...Buffer.from(name)];
const section = (id, ...bytes) => [id, bytes.length, ...bytes];
const library = [
  ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  ...section(0, ...text("dylink.0"), 1, 4, 0, 0, 0, 0),  // no memory, no table
  ...section(1, 1, 0x60, 2, 0x7f, 0x7f, 1, 0x7f),  // (i32, i32) -> i32
  ...section(3, 1, 0),
  ...section(7, 1, ...text("backtrace"), 0, 0),
  ...section(10, 1, 4, 0, 0x41, 0, 0x0b),  // return 0
];
FS.writeFile("/lib/backtrace.so", Uint8Array.from(library));
python.runPython(`
import ctypes, importlib
ctypes.CDLL("/lib/backtrace.so", ctypes.RTLD_GLOBAL)
importlib.invalidate_caches()  # what was not there when Python began it takes for missing
`);
process.exit(_run_main());
