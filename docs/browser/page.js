/* The page "In your browser": an editor, files that are dropped, and the worker that runs Python. */
const status = document.getElementById("browser-status");
const waiting = new Map();  // id -> what to do with the answers
let worker, examples;
let last = 0;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function start() {
  const begun = performance.now();
  const source = `import ${JSON.stringify(new URL("worker.js", import.meta.url).href)};`;
  // A worker from a blob obeys the policy of this page.
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  worker = new Worker(address, { type: "module" });
  worker.onmessage = ({ data }) => {
    if (data.state) status.textContent = `${data.state} ...`;
    else if (data.ready) {
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      status.textContent = `Ready after ${seconds} s: ${data.ready}`;
    } else if (data.failed) status.textContent = `Python does not start: ${data.failed}`;
    else waiting.get(data.id)?.(data);
  };
  worker.onerror = (event) => {
    status.textContent = `Python does not start: ${event.message || "the worker is not there"}`;
  };
}

function stop() {
  worker.terminate();
  for (const answer of waiting.values()) answer({ error: "stopped" });
  start();
}

/* Run a task of browser_tasks.py; `print` gets what it prints. */
function ask(task, args, print, more = {}) {
  const id = ++last;
  return new Promise((resolve, reject) => {
    waiting.set(id, (data) => {
      if ("text" in data) return print(data.text);
      waiting.delete(id);
      if ("error" in data) reject(data.error);
      else resolve(data.result);
    });
    worker.postMessage({ id, task, args, ...more });
  });
}

function editor(name, text) {
  const rows = text.split("\n").length;
  return element("textarea", {
    value: text, rows, spellcheck: false, ariaLabel: name, autocapitalize: "off", className: "editor",
  });
}

function outputOf(name) {
  return element("pre", { className: "output", tabIndex: 0, ariaLabel: name, role: "log" });
}

/* A button that runs something and shows what it gives; one that ends it beside it. */
function buttons(label, output, act) {
  const begin = element("button", { textContent: label, type: "button", className: "btn btn-primary" });
  const end = element("button", {
    textContent: "Stop", type: "button", className: "btn btn-secondary", disabled: true,
  });
  begin.onclick = async () => {
    begin.disabled = true;
    end.disabled = false;
    output.textContent = "";
    output.classList.remove("failed");
    const print = (text) => output.append(text);
    try {
      print(await act(print));
    } catch (error) {
      print(error);
      output.classList.add("failed");
    }
    begin.disabled = false;
    end.disabled = true;
  };
  end.onclick = stop;
  return element("p", { className: "actions" }, begin, end);
}

function fileInput(label, properties) {
  const input = element("input", { type: "file", className: "form-control", ...properties });
  return [element("label", { className: "file" }, label, input), input];
}

const SECTIONS = {
  run() {
    const program = editor("Program", examples.run);
    const output = outputOf("Output of the program");
    const actions = buttons("Run", output, (print) => ask("run", [program.value], print));
    program.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.ctrlKey) actions.firstChild.click();
    });
    return [program, actions, output];
  },

  look() {
    const [label, input] = fileInput("A file, or several that belong together", { multiple: true });
    const output = outputOf("What the file is");
    const frame = element("iframe", { title: "The page of the net", className: "net", hidden: true });
    frame.setAttribute("sandbox", "allow-scripts");
    const show = async (files) => {
      output.textContent = "Reading ...";
      output.classList.remove("failed");
      frame.hidden = true;
      const chosen = [...files].map((file) => ({ name: file.name, file }));
      const more = { folder: "/dropped", chosen };
      const names = chosen.map(({ name }) => name);
      const page = (await ask("look", names, () => {}, more).catch((error) => {
        output.classList.add("failed");
        return `${error}\n`;
      })).split("\0");
      output.textContent = page[0];
      frame.hidden = page.length === 1;
      if (page.length > 1) frame.srcdoc = page[1];
    };
    input.onchange = () => input.files.length && show(input.files);
    const zone = element("div", { className: "drop" }, label);
    zone.ondragover = (event) => event.preventDefault();
    zone.ondrop = (event) => {
      event.preventDefault();
      if (event.dataTransfer.files.length) show(event.dataTransfer.files);
    };
    return [zone, output, frame];
  },

  compile() {
    const config = editor("Network: xconfig or config lines", examples.compile);
    const request = element("input", {
      className: "form-control", value: examples.request, spellcheck: false,
    });
    const label = element("label", { className: "file" }, "Request", request);
    const output = outputOf("Commands");
    const act = (print) => ask("compiled", [config.value, request.value], print);
    return [config, label, buttons("Compile", output, act), output];
  },

  transcribe() {
    const [folder, model] = fileInput("Folder of a model", { webkitdirectory: true });
    const [label, recording] = fileInput("Recording (WAV)", { accept: ".wav,audio/wav" });
    const output = outputOf("Words");
    const act = (print) => {
      if (!model.files.length || !recording.files.length) throw "Choose a folder and a recording.";
      const chosen = [...model.files].map((file) => ({ name: file.webkitRelativePath, file }));
      const sound = recording.files[0];
      chosen.push({ name: sound.name, file: sound });
      const args = [chosen[0].name.split("/")[0], sound.name];
      return ask("transcribed", args, print, { folder: "/speech", chosen });
    };
    return [folder, label, buttons("Transcribe", output, act), output];
  },
};

const found = await fetch(new URL("python/examples.json", import.meta.url));
if (found.ok) {
  examples = await found.json();
  start();
  for (const place of document.querySelectorAll("[data-task]")) {
    place.append(...SECTIONS[place.dataset.task]());
  }
} else {
  status.textContent = "This copy of the site was built without Python for browsers;"
    + " build it with: python build.py docs --browser";
}
