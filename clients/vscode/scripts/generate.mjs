// Renders src/protocol.ts from the OpenRPC document of abxd: a type per schema, and one table of all methods.
//
//   node scripts/generate.mjs            writes the file
//   node scripts/generate.mjs --check    fails when the file differs
//
// The library knows JSON Schema and not OpenRPC, so the params of each method are given to it as a schema of their own,
// and the table is written here. References are given to it as names: it would write a copy for each use otherwise.

import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compile } from "json-schema-to-typescript";

const here = dirname(fileURLToPath(import.meta.url));
const document = join(here, "../../../proto-docs/openrpc.json");
const target = join(here, "../src/protocol.ts");
const banner = "// Rendered from proto-docs/openrpc.json by `npm run generate`; do not edit.\n";

const options = {
  additionalProperties: false,
  bannerComment: "",
  declareExternallyReferenced: false,
  style: { printWidth: 110 },
};

/** `session.list` becomes `SessionList`, `store.list_all` becomes `StoreListAll`. */
const pascal = (name) => name.replace(/(?:^|[._])(\w)/g, (_, letter) => letter.toUpperCase());

/** Leaves out what says nothing about a type, and keeps the words of an enum open to those of newer daemons. */
function plain(schema) {
  if (Array.isArray(schema)) return schema.map(plain);
  if (schema === null || typeof schema !== "object") return schema;
  const reference = schema.$ref ?? (schema.allOf?.length === 1 ? schema.allOf[0].$ref : undefined);
  if (reference) return { description: schema.description, tsType: reference.split("/").at(-1) };
  const words = (schema.oneOf ?? schema.anyOf)?.flatMap((one) => one.const ?? one.enum ?? []);
  const open = (schema.oneOf ?? schema.anyOf)?.some(
    (one) => one.type === "string" && one.const === undefined && !one.enum,
  );
  if (words?.length && words.every((word) => typeof word === "string")) {
    const list = [...words.map((word) => JSON.stringify(word)), ...(open ? ["(string & {})"] : [])];
    return { description: schema.description, tsType: list.join(" | ") };
  }
  const kept = {};
  for (const [key, value] of Object.entries(schema)) {
    if (["default", "format", "minimum", "maximum"].includes(key) && !("properties" in schema)) continue;
    kept[key] =
      key === "properties"
        ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)]))
        : plain(value);
  }
  return kept;
}

function paramsOf(method) {
  const properties = Object.fromEntries(
    method.params.map(({ name, schema, description }) => [name, { description, ...plain(schema) }]),
  );
  return {
    title: `${pascal(method.name)}Params`,
    description: `Params of \`${method.name}\`.`,
    type: "object",
    properties,
    required: method.params.filter((param) => param.required).map((param) => param.name),
  };
}

/** What the table says of a schema: a name, a list of one, one or nothing, or anything. */
function named(schema) {
  if (schema === true) return "unknown";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.type === "array") return `${named(schema.items)}[]`;
  if (schema.anyOf) return schema.anyOf.map(named).join(" | ");
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (["string", "boolean", "null"].includes(schema.type)) return schema.type;
  throw new Error(`no name for ${JSON.stringify(schema)}`);
}

async function render() {
  const openrpc = JSON.parse(await readFile(document, "utf8"));
  const schemas = [
    ...Object.entries(openrpc.components.schemas).map(([title, schema]) => ({ ...plain(schema), title })),
    ...openrpc.methods.map(paramsOf),
  ];
  const types = await Promise.all(schemas.map((schema) => compile(schema, schema.title, options)));
  const rows = openrpc.methods.map((method) =>
    [
      `  /** ${method.summary} */`,
      `  "${method.name}": { params: ${pascal(method.name)}Params; result: ${named(method.result.schema)} };`,
    ].join("\n"),
  );
  const kinds = Object.keys(openrpc.components.errors).map((kind) => `  | "${kind}"`);
  return [
    banner,
    ...types,
    "/** Every method of the socket. */",
    "export interface Methods {",
    ...rows,
    "}",
    "",
    "/** The kinds of errors that this version knows. One that it does not know is to be treated as `internal`. */",
    "export type ErrorKind =",
    `${kinds.join("\n")};`,
    "",
  ].join("\n");
}

const text = await render();
if (process.argv.includes("--check")) {
  const current = await readFile(target, "utf8").catch(() => "");
  if (current !== text) {
    console.error(
      "src/protocol.ts differs from proto-docs/openrpc.json: run `npm run generate` in clients/vscode",
    );
    process.exit(1);
  }
} else {
  await writeFile(target, text);
}
