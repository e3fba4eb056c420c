// Bundles the extension into dist/extension.js and, with --tests, each test into out/.

import { copyFile, readdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const common = {
  absWorkingDir: root,
  bundle: true,
  platform: "node",
  target: "node18",
  format: "cjs",
  logLevel: "warning",
};

await rm(join(root, "dist"), { recursive: true, force: true });
await build({
  ...common,
  entryPoints: ["src/extension.ts"],
  outfile: "dist/extension.js",
  external: ["vscode"],
  minifySyntax: true,
  legalComments: "eof",
});

// What is bundled from elsewhere asks for its licence beside it.
await copyFile(
  join(root, "node_modules/vscode-jsonrpc/License.txt"),
  join(root, "dist/vscode-jsonrpc.LICENSE.txt"),
);

if (process.argv.includes("--tests")) {
  await rm(join(root, "out"), { recursive: true, force: true });
  const tests = (await readdir(join(root, "test"))).filter((file) => file.endsWith(".test.ts"));
  await build({
    ...common,
    entryPoints: tests.map((file) => `test/${file}`),
    outdir: "out",
    external: ["vscode"],
    sourcemap: "inline",
  });
}
