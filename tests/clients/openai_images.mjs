// Asks a server for pictures as OpenAI's client for npm does: openai_images.mjs HOST:PORT ENGINE NODE_MODULES

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [address, engine, modules] = process.argv.slice(2);
const found = createRequire(pathToFileURL(`${modules}/`)).resolve("openai");
const { default: openai } = await import(pathToFileURL(found));
const { OpenAI, toFile } = openai.OpenAI ? openai : await import(pathToFileURL(found));
const client = new OpenAI({ baseURL: `http://${address}/v1`, apiKey: "none", maxRetries: 0 });

const models = await client.models.list();
assert(models.data.some((model) => model.id === engine));

const asked = { model: engine, prompt: "a fox", seed: 7, steps: 4 };
const made = await client.images.generate({ ...asked, n: 2 });
assert.equal(made.data.length, 2);
assert(made.data[0].b64_json.startsWith("iVBOR"));

const kinds = [];
let last;
for await (const event of await client.images.generate({ ...asked, n: 1, stream: true, partial_images: 2 })) {
  kinds.push(event.type);
  last = event;
}
assert.equal(kinds.at(-1), "image_generation.completed");
assert(kinds.length > 1 && kinds.slice(0, -1).every((kind) => kind === "image_generation.partial_image"), kinds);

const picture = Buffer.from(last.b64_json, "base64");
const edited = await client.images.edit({ ...asked, image: await toFile(picture, "a.png", { type: "image/png" }) });
assert.notEqual(edited.data[0].b64_json, last.b64_json);

const isOfN = (error) => error.status === 400 && error.param === "n";
await assert.rejects(client.images.generate({ ...asked, n: 11 }), isOfN);
console.log("all answers are as expected");
