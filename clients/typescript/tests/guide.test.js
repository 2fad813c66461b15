// What a program sees that has the package installed: its files, its types, the snippets of its guide.

import assert from "node:assert/strict";
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { defer, Server } from "./server.js";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const GUIDE = join(HERE, "../../../docs/guides/typescript.md");
const README = join(PACKAGE, "README.md");

const CONFIG = {
  compilerOptions: {
    target: "ES2022",
    module: "NodeNext",
    lib: ["ES2022", "DOM"],
    types: [],
    strict: true,
    exactOptionalPropertyTypes: true,
    outDir: "out",
  },
  include: ["*.ts"],
};

/** The blocks of TypeScript in a text, each with the name of its file if it has one. */
function snippets(text) {
  const blocks = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code);
  return blocks.map((code) => ({ code, name: /^\/\/ ([\w./]+)/.exec(code)?.[1] }));
}

/** A project that has the package installed. */
async function project(t) {
  const made = await mkdtemp(join(tmpdir(), "taskharbor-guide-"));
  defer(t, () => rm(made, { recursive: true, force: true }));
  await writeFile(join(made, "package.json"), JSON.stringify({ type: "module" }));
  await writeFile(join(made, "tsconfig.json"), JSON.stringify(CONFIG));
  await mkdir(join(made, "node_modules"));
  await symlink(PACKAGE, join(made, "node_modules/taskharbor"));
  return made;
}

async function compile(made) {
  const compiler = join(PACKAGE, "node_modules/typescript/bin/tsc");
  const child = spawn(process.execPath, [compiler, "-p", made], { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (part) => (said += part));
  const [code] = await once(child, "close");
  assert.equal(code, 0, said);
}

/** Runs a program, and answers its first line and how to end it. */
async function run(t, file) {
  const child = fork(file, { stdio: ["ignore", "pipe", "inherit", "ipc"], execArgv: [] });
  defer(t, () => child.kill("SIGKILL"));
  const lines = createInterface({ input: child.stdout });
  return { child, lines };
}

test("types and snippets compile, and the first snippets run", async (t) => {
  const server = await Server.start();
  defer(t, () => server.close());
  const made = await project(t);
  await copyFile(join(HERE, "types.ts"), join(made, "types.ts"));
  await copyFile(join(HERE, "guide.d.ts"), join(made, "guide.d.ts"));
  const all = [...snippets(await readFile(GUIDE, "utf8")), ...snippets(await readFile(README, "utf8"))];
  assert.ok(all.length >= 10, `${all.length} snippets were found`);
  const names = all.map(({ name }, at) => `${at}-${(name ?? "snippet.ts").replaceAll("/", "-")}`);
  await Promise.all(
    all.map(({ code }, at) => {
      const text = code.replaceAll("http://127.0.0.1:7450", server.url);
      return writeFile(join(made, names[at]), `${text}\nexport {};\n`);
    }),
  );
  await compile(made);

  const out = (name) => join(made, "out", name.replace(/ts$/, "js"));
  assert.deepEqual(names.slice(0, 2), ["0-worker.ts", "1-enqueue.ts"]);
  const worker = await run(t, out(names[0]));
  const sent = new Promise((resolve) => worker.lines.on("line", (line) => /^sending/.test(line) && resolve(line)));
  const enqueue = await run(t, out(names[1]));
  const [id] = await once(enqueue.lines, "line");
  assert.equal(await sent, "sending to ada@example.com");
  const ended = once(worker.child, "exit");
  worker.child.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null]);
  assert.equal((await server.job(id)).state, "done");
});

test("the package has what it needs, and nothing else", async () => {
  const child = spawn("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: PACKAGE,
    stdio: ["ignore", "pipe", "ignore"],
  });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part) => (text += part));
  await once(child, "close");
  const packed = JSON.parse(text);
  const [{ files }] = Array.isArray(packed) ? packed : Object.values(packed);
  const paths = files.map(({ path }) => path);
  const modules = ["dist/index.js", "dist/index.d.ts", "dist/enqueue.js", "dist/enqueue.d.ts"];
  const licences = ["LICENSE-APACHE", "LICENSE-MIT"];
  for (const path of ["package.json", "README.md", ...licences, ...modules]) {
    assert.ok(paths.includes(path), path);
  }
  const expected = /^(dist\/\w+\.(js|d\.ts)|package\.json|README\.md|LICENSE-(APACHE|MIT))$/;
  assert.deepEqual(paths.filter((path) => !expected.test(path)), []);
});

test("the client alone needs nothing of Node", async () => {
  const [seen, left] = [new Set(), ["enqueue.js"]];
  for (let name = left.pop(); name !== undefined; name = left.pop()) {
    seen.add(name);
    const text = await readFile(join(PACKAGE, "dist", name), "utf8");
    for (const [, from] of text.matchAll(/from "([^"]+)"/g)) {
      assert.ok(from.startsWith("./"), `${name} imports ${from}`);
      if (!seen.has(from.slice(2))) {
        left.push(from.slice(2));
      }
    }
  }
  assert.ok(seen.has("client.js"));
});
