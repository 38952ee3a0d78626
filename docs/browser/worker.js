/* Python and opscope for the page "In your browser", away from the thread that draws it.

   It receives {id, task, args}, and answers {id, text} for each line that Python prints, then
   {id, result} or {id, error}. While it starts it sends {state}, and {ready} or {failed} at the end. */
import { lendBacktrace } from "./python/backtrace.mjs";

const files = new URL("python/", import.meta.url);
let current = 0;

const printed = (line) => postMessage({ id: current, text: line + "\n" });

async function archive(name) {
  const answer = await fetch(new URL(name, files));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.arrayBuffer();
}

async function start() {
  postMessage({ state: "Loading Python" });
  const archives = ["packages.zip", "opscope.zip"].map(archive);
  const { loadPyodide } = await import(new URL("pyodide.mjs", files));
  const python = await loadPyodide({
    indexURL: files.href,
    env: { HOME: "/home/pyodide", OPSCOPE_CC: "none" },
    stdout: printed,
    stderr: printed,
  });
  postMessage({ state: "Loading opscope" });
  for (const one of archives) python.unpackArchive(await one, "zip", { extractDir: "/packages" });
  lendBacktrace(python);
  python.runPython("import sys; sys.path.insert(0, '/packages')");
  const tasks = python.pyimport("browser_tasks");
  return { python, tasks, about: tasks.about() };
}

/* Files of this machine as a folder of Python: each is read when Python reads it, and not copied. */
function mount(python, folder, chosen) {
  const { FS } = python;
  if (FS.analyzePath(folder).exists) FS.unmount(folder);
  else FS.mkdirTree(folder);
  const blobs = chosen.map(({ name, file }) => ({ name, data: file }));
  FS.mount(FS.filesystems.WORKERFS, { blobs }, folder);
}

const started = start();
started.then(
  ({ about }) => postMessage({ ready: about }),
  (error) => postMessage({ failed: String(error) }),
);

onmessage = async ({ data: { id, task, args, folder, chosen } }) => {
  try {
    const { python, tasks } = await started;
    current = id;
    if (chosen) mount(python, folder, chosen);
    const answer = tasks.call(task, ...args);
    const [worked, text] = answer.toJs();
    answer.destroy();
    postMessage({ id, [worked ? "result" : "error"]: text });
  } catch (error) {
    postMessage({ id, error: String(error) });
  }
};
