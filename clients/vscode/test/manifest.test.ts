/** What the editor is promised in package.json, what the README tells, and what is packaged. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { agentSettings } from "../src/client/agents";
import { Client } from "../src/client/connection";
import { VERSION } from "../src/client/version";
import { Editor } from "./standin";

const ROOT = join(__dirname, "..");
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");

interface Manifest {
  version: string;
  contributes: {
    commands: { command: string; title: string }[];
    menus: Record<string, { command: string; when?: string }[]>;
    configuration: { properties: Record<string, { default: unknown; scope?: string }> };
    viewsWelcome: { contents: string }[];
  };
}

const manifest = JSON.parse(read("package.json")) as Manifest;
const commands = manifest.contributes.commands.map(({ command }) => command);

test("every command that is promised is there, and the other way round", () => {
  const editor = new Editor();
  editor.settings.set("abx.socket", "/no/such/socket");
  const context = editor.activation();
  editor.load(join(ROOT, "dist/extension.js")).activate(context);
  assert.deepEqual([...editor.commands.keys()].sort(), [...commands].sort());
  for (const one of context.subscriptions) one.dispose();
  const used = [
    ...Object.values(manifest.contributes.menus).flatMap((items) => items.map(({ command }) => command)),
    ...manifest.contributes.viewsWelcome.flatMap(({ contents }) =>
      [...contents.matchAll(/command:(abx[a-zA-Z.]+)/g)].map(([, name]) => name),
    ),
  ];
  for (const command of used) assert.ok(commands.includes(command ?? ""), `a menu names ${command}`);
});

test("every setting is read, has its default, and is told of in the README with the commands", () => {
  const code = read("src/ui/settings.ts");
  const readme = read("README.md");
  for (const [name, { default: usual, scope }] of Object.entries(
    manifest.contributes.configuration.properties,
  )) {
    assert.ok(code.includes(`"${name.replace(/^abx\./, "")}"`), `${name} is not read`);
    assert.ok(readme.includes(`\`${name}\``), `${name} is not in the README`);
    // A folder from somewhere must not say which program is run, nor what a sandbox may see.
    if (/\.(path|home|socket|image|template|mountWorkspace|autostart)$/.test(name))
      assert.equal(scope, "machine", name);
    assert.notEqual(usual, undefined, name);
  }
  for (const { title } of manifest.contributes.commands) {
    assert.ok(readme.includes(title.replace(/…$/, "")), `${title} is not in the README`);
  }
  assert.equal(manifest.version, VERSION);
});

test("the package is made, and holds what runs and nothing else", () => {
  const dir = mkdtempSync("/tmp/abx-vs-");
  try {
    // As the README says, but for where it goes.
    const args = ["run", "package", "--", "-o", join(dir, "abx.vsix")];
    execFileSync("npm", args, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
    assert.equal(readFileSync(join(dir, "abx.vsix")).subarray(0, 2).toString(), "PK");
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
  const vsce = join(ROOT, "node_modules/.bin/vsce");
  const files = execFileSync(vsce, ["ls", "--no-dependencies"], { cwd: ROOT, encoding: "utf8" })
    .trim()
    .split("\n");
  const listed = files.filter((file) => existsSync(join(ROOT, file))).sort();
  assert.deepEqual(listed, [
    "LICENSE",
    "README.md",
    "dist/extension.js",
    "dist/vscode-jsonrpc.LICENSE.txt",
    "media/abx.svg",
    "package.json",
  ]);
});

test("credentials of an agent are those that the settings name and this environment has", () => {
  const setting = (name: string, value: string) => ({ name, value, source: "default" });
  const info = {
    settings: [setting("agents.x.credentials", "KEY, OTHER"), setting("templates.t.attach", "agent")],
  };
  const env = { KEY: "secret", UNRELATED: "no" };
  assert.deepEqual(agentSettings(info, { agent: "x", template: "t" }, env), {
    attaches: true,
    credentials: { KEY: "secret" },
  });
  assert.deepEqual(agentSettings(info, { agent: "y", template: "base" }, env), {
    attaches: false,
    credentials: {},
  });
});

test("what the protocol document has a type for has no other one", () => {
  const types = (text: string) =>
    [...text.matchAll(/^export (?:interface|type) (\w+)/gm)].map(([, name]) => name ?? "");
  const rendered = new Set(types(read("src/protocol.ts")));
  assert.ok(rendered.has("Attention"));
  for (const dir of ["src/client", "src/ui"]) {
    for (const file of readdirSync(join(ROOT, dir))) {
      const twice = types(read(`${dir}/${file}`)).filter((name) => rendered.has(name));
      assert.deepEqual(twice, [], file);
    }
  }
});

test("the types are those of the protocol document", async () => {
  // Compiled, never run: each line fails the build if the rendered types do not say so.
  const compiled = async (client: Client) => {
    const sessions = await client.call("session.list", { status: ["running"] });
    const count: number | undefined = sessions[0]?.exec_count;
    const stored = await client.call("store.load", { name: "a" });
    const template: string | null | undefined = stored?.template;
    // @ts-expect-error a name is needed
    await client.call("session.get", {});
    // @ts-expect-error there is no such method
    await client.call("session.explode", {});
    return [count, template];
  };
  assert.equal(typeof compiled, "function");
});

test("the program of the README is bundled as it says", () => {
  const program = /```ts\n(import [^]*?)```/.exec(read("README.md"))?.[1];
  assert.ok(program);
  const here = program.replace("./abx/clients/vscode/", "./");
  assert.notEqual(here, program);
  const bundled = execFileSync(
    join(ROOT, "node_modules/.bin/esbuild"),
    ["--bundle", "--platform=node", "--loader=ts"],
    { cwd: ROOT, input: here, encoding: "utf8" },
  );
  assert.match(bundled, /my-program/);
});
