/** Where the socket of abxd is: the rules of the protocol document, so that no program must be started to find it. */

import { lstatSync, realpathSync } from "node:fs";
import { homedir, userInfo } from "node:os";
import { join } from "node:path";

/** Longest path of a socket, in bytes, that every platform can bind. */
const MAX_SOCKET_PATH_BYTES = 94;

/** What the user set; an empty text is not set. */
export interface Places {
  home?: string;
  socket?: string;
}

/** The socket's path: `socket`, else `ABX_SOCKET`, else `daemon.sock` in `home`, `ABX_HOME` or `~/.abx`. */
export function socketPath(places: Places = {}, env: NodeJS.ProcessEnv = process.env): string {
  const named = places.socket || env["ABX_SOCKET"];
  if (named) {
    const path = absolute(named);
    return bindable(path, path);
  }
  const root = resolved(absolute(places.home || env["ABX_HOME"] || join(homedir(), ".abx")));
  return bindable(join(root, "daemon.sock"), root);
}

/** A path of the user's settings, which no shell has seen. */
export function expandTilde(path: string): string {
  return path === "~" || path.startsWith("~/") ? join(homedir(), path.slice(1)) : path;
}

function absolute(path: string): string {
  const expanded = expandTilde(path);
  // Not path.resolve: it takes away `..` before links are followed.
  return expanded.startsWith("/") ? expanded : `${process.cwd()}/${expanded}`;
}

/** The path without links, as far as it exists: it stays the same when the rest is made. */
function resolved(path: string): string {
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  for (let count = parts.length; count >= 0; count -= 1) {
    const ancestor = `/${parts.slice(0, count).join("/")}`;
    if (isForeignLink(ancestor)) break;
    try {
      const existing = realpathSync(ancestor);
      return [existing === "/" ? "" : existing, ...parts.slice(count)].join("/") || "/";
    } catch {
      continue;
    }
  }
  return `/${parts.join("/")}`;
}

/** Whoever may put a link into a shared directory would otherwise choose where we connect. */
function isForeignLink(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat !== undefined && stat.isSymbolicLink() && !isTrusted(stat.uid);
}

/** Whether this user or the system's owner is meant. */
export function isTrusted(uid: number): boolean {
  return uid === 0 || uid === userInfo().uid;
}

function bindable(path: string, named: string): string {
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return path;
  return `/tmp/abx-${userInfo().uid}/${fnv1a(Buffer.from(named))}.sock`;
}

/** The 64-bit FNV-1a hash, in 16 hexadecimal digits. */
function fnv1a(bytes: Uint8Array): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of bytes) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return hash.toString(16).padStart(16, "0");
}
