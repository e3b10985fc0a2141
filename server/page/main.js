// The page: what is chosen, what runs, what came out.

import { all, forget, keep } from "/page/history.js";
import { Mask } from "/page/mask.js";
import { engines, pictureOf, Refused, setKey, work } from "/page/server.js";
import { speak, text, TEXTS } from "/page/texts.js";

const PREVIEWS = 4;
const LANGUAGE = "tileforge-language";

const at = (id) => document.getElementById(id);
const mask = new Mask(at("mask"), at("pen"), at("brush"), at("erase"));
const addresses = new Map();

let known = [];
let picture = null;
let running = null;
let result = null;
let told = null;

/** Shows a Blob in an image; its address before is given back. */
function show(image, blob) {
  if (addresses.has(image)) URL.revokeObjectURL(addresses.get(image));
  const address = URL.createObjectURL(blob);
  addresses.set(image, address);
  image.src = address;
  image.hidden = false;
}

/** Says how far it is, also after another language was chosen. */
function tell(name, values) {
  told = [name, values];
  at("status").textContent = name ? text(name, values) : "";
}

function complain(words) {
  at("error").textContent = words;
}

function engine() {
  return known.find((one) => one.id === at("engine").value);
}

/** Shows what the chosen engine takes. */
function arrange() {
  const one = engine();
  const generates = one?.task === "generate";
  const isServed = ["upscale", "restore", "depth", "inpaint", "generate"].includes(one?.task);
  at("task").textContent = one ? text(isServed ? `task_${one.task}` : "task_other") : text("no_engines");
  at("texts").hidden = !generates;
  at("numbers").hidden = !generates;
  at("drop").hidden = !isServed;
  at("strength-label").hidden = !picture;
  at("masking").hidden = !(generates || one?.task === "inpaint") || !picture;
  at("mask-optional").hidden = one?.needs_mask;
  at("start").disabled = !isServed || running !== null;
  at("drop").querySelector("label").textContent = text(generates ? "drop_optional" : "drop");
  const sizes = one?.sizes ?? [];
  if (!sizes.includes(at("size").value)) {
    at("size").replaceChildren(...sizes.map((size) => new Option(size, size)));
    at("size").value = sizes.at(-1) ?? "";
  }
}

function label() {
  const language = at("language").value;
  speak(language);
  for (const [id, name] of [["chosen", "chosen"], ["preview", "preview"], ["before", "before"], ["after", "after"]]) {
    at(id).alt = text(name);
  }
  at("under").alt = text("chosen");
  at("mask").setAttribute("aria-label", text("mask_label"));
  at("slider").setAttribute("aria-label", text("slider"));
  at("progress").setAttribute("aria-label", text("result"));
  arrange();
  listHistory();
}

async function choose(file) {
  complain("");
  picture = file ?? null;
  at("chosen").hidden = at("remove").hidden = !picture;
  if (picture) {
    show(at("chosen"), picture);
    show(at("under"), picture);
    // Formats that the browser cannot show, such as TIFF, have no mask.
    const size = await createImageBitmap(picture).catch(() => null);
    if (size) mask.reset(size.width, size.height);
    mask.isUsable = size !== null;
  } else {
    at("file").value = "";
  }
  arrange();
}

/** The mask as `file` makes it, where one was painted. */
async function painted(one, file) {
  if (mask.isUsable && !mask.isEmpty) return file();
  if (one.needs_mask) throw new Error(text("need_mask"));
  return null;
}

/** The request for the chosen engine. */
async function asked(one) {
  if (one.task !== "generate") {
    if (!picture) throw new Error(text("need_picture"));
    const query = `?engine=${encodeURIComponent(one.id)}`;
    if (one.task === "inpaint") {
      const form = new FormData();
      form.append("image", picture);
      form.append("mask", await painted(one, () => mask.white()), "mask.png");
      return ["inpaint", query, form, { Accept: "image/png" }];
    }
    const kind = { "Content-Type": picture.type || "application/octet-stream", Accept: "image/png" };
    return [one.task === "depth" ? "depth" : "upscale", query, picture, kind];
  }
  const prompt = at("prompt").value.trim();
  if (!prompt) throw new Error(text("need_prompt"));
  const values = { model: one.id, prompt, partial_images: PREVIEWS };
  const optional = {
    negative_prompt: "negative", seed: "seed", steps: "steps", guidance_scale: "guidance", size: "size",
  };
  for (const [name, id] of Object.entries(optional)) {
    const value = at(id).value.trim();
    const isNumber = at(id).type === "number";
    if (value) values[name] = isNumber ? Number(value) : value;
  }
  if (!picture) {
    if (one.needs_mask) throw new Error(text("need_picture"));
    return ["generations", "", JSON.stringify(values), { "Content-Type": "application/json" }];
  }
  values.strength = Number(at("strength").value);
  const form = new FormData();
  for (const [name, value] of Object.entries(values)) form.append(name, String(value));
  form.append("image", picture);
  const hole = await painted(one, () => mask.transparent());
  if (hole) form.append("mask", hole, "mask.png");
  return ["edits", "", form, {}];
}

function watch(name, data) {
  if (name === "preview") {
    show(at("preview"), pictureOf(data.b64_json));
  } else if (data.status === "queued") {
    tell("queued", { place: data.place ?? 0 });
  } else if (data.status === "running") {
    tell("running", data);
    at("progress").value = data.total ? data.done / data.total : 0;
  }
}

async function start(event) {
  event.preventDefault();
  complain("");
  const one = engine();
  if (!one || running) return;
  if (at("key").value) setKey(at("key").value);
  running = new AbortController();
  at("cancel").hidden = at("progress").hidden = false;
  at("compare").hidden = at("download").hidden = at("preview").hidden = true;
  at("facts").textContent = "";
  at("progress").value = 0;
  tell("uploading");
  arrange();
  try {
    const before = picture;
    const [kind, query, body, headers] = await asked(one);
    const blob = await work(kind, query, body, headers, watch, running.signal);
    let made = { engine: one.id, before, after: blob, facts: null, name: at("prompt").value || one.id };
    if (one.task === "generate") {
      const answer = JSON.parse(await blob.text());
      made = { ...made, after: pictureOf(answer.data[0].b64_json), facts: { size: answer.size, seed: answer.seed } };
    } else {
      made.name = before.name || one.id;
    }
    tell("completed");
    present(made);
    await keep(made);
    await listHistory();
  } catch (error) {
    failed(error);
  } finally {
    running = null;
    at("cancel").hidden = at("progress").hidden = at("preview").hidden = true;
    arrange();
  }
}

function failed(error) {
  if (error.name === "AbortError") {
    tell("cancelled");
    return;
  }
  tell(null);
  if (error instanceof Refused && error.status === 401) {
    at("key-label").hidden = false;
    complain(text("key_needed"));
    at("key").focus();
  } else if (error instanceof Refused) {
    complain(text("failed", { reason: error.message }));
  } else if (error instanceof TypeError) {
    complain(text("lost"));
  } else {
    complain(error.message);
  }
}

/** Shows a result, beside its original where there is one. */
function present(made) {
  result = made;
  at("compare").hidden = at("download").hidden = false;
  show(at("after"), made.after);
  at("before").hidden = at("slider").hidden = at("edge").hidden = !made.before;
  if (made.before) show(at("before"), made.before);
  at("download").href = at("after").src;
  at("facts").textContent = made.facts ? text("facts", made.facts) : "";
  slide();
}

function slide() {
  const share = at("slider").value;
  at("before").style.clipPath = `inset(0 ${100 - share}% 0 0)`;
  at("edge").style.left = `${share}%`;
}

async function listHistory() {
  // Without a store, as in some private windows, there is no history.
  const entries = await all().catch(() => []);
  const item = (entry) => {
    const [item, button, image] = ["li", "button", "img"].map((name) => document.createElement(name));
    button.type = "button";
    image.alt = text("shown_again", { name: entry.name });
    show(image, entry.after);
    button.append(image);
    button.addEventListener("click", () => present(entry));
    item.append(button);
    return item;
  };
  for (const image of at("history").querySelectorAll("img")) {
    URL.revokeObjectURL(addresses.get(image));
    addresses.delete(image);
  }
  at("history").replaceChildren(...entries.map(item));
  at("no-history").hidden = entries.length > 0;
  at("history").hidden = at("clear-history").hidden = entries.length === 0;
}

async function listEngines() {
  try {
    known = await engines();
    at("engine").replaceChildren(...known.map((one) => new Option(one.id, one.id)));
  } catch (error) {
    failed(error);
  }
  arrange();
}

at("form").addEventListener("submit", start);
at("engine").addEventListener("change", arrange);
at("file").addEventListener("change", () => choose(at("file").files[0]));
at("remove").addEventListener("click", () => choose(null));
at("clear-mask").addEventListener("click", () => mask.reset(at("mask").width, at("mask").height));
at("cancel").addEventListener("click", () => running?.abort());
at("slider").addEventListener("input", slide);
at("key").addEventListener("change", () => {
  setKey(at("key").value);
  complain("");
  listEngines();
});
at("clear-history").addEventListener("click", async () => {
  await forget();
  await listHistory();
});
at("language").addEventListener("change", () => {
  localStorage.setItem(LANGUAGE, at("language").value);
  label();
  if (told) tell(...told);
  if (result?.facts) at("facts").textContent = text("facts", result.facts);
});
for (const name of ["dragover", "dragleave", "drop"]) {
  at("drop").addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) choose(event.dataTransfer.files[0]);
  });
}

const spoken = localStorage.getItem(LANGUAGE) ?? navigator.language.slice(0, 2);
at("language").value = spoken in TEXTS ? spoken : "en";
label();
listEngines();
