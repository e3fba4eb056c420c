/** Starts the daemon with the program `abx`, which alone knows how. */

import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { AbxError } from "./errors";
import { expandTilde, type Places } from "./paths";

/** Longest wait for `abx daemon start`, in milliseconds. It has a limit of its own below this one. */
const START_LIMIT_MS = 60_000;

/** Where programs are that a user installs: an editor that was not started from a shell does not have these in PATH. */
const USUAL_PLACES = [".cargo/bin", ".local/bin", "bin"].map((place) => join(homedir(), place));
const SYSTEM_PLACES = ["/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin"];

/** The program's path. */
export function findProgram(name: string, env: NodeJS.ProcessEnv = process.env): string {
  const wanted = expandTilde(name || "abx");
  const candidates = wanted.includes("/")
    ? [wanted]
    : [...(env["PATH"] ?? "").split(delimiter).filter(Boolean), ...USUAL_PLACES, ...SYSTEM_PLACES].map(
        (dir) => join(dir, wanted),
      );
  for (const candidate of candidates) {
    try {
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch {
      continue;
    }
  }
  throw new AbxError(
    "program_missing",
    wanted.includes("/") ? `there is no program ${wanted}` : `the program ${wanted} was not found`,
    "install abx, or set abx.path to where it is",
  );
}

/** Runs `abx daemon start`, which returns once the daemon listens. One that runs already is fine. */
export async function startDaemon(
  program: string,
  places: Places,
  env: NodeJS.ProcessEnv = process.env,
): Promise<void> {
  const path = findProgram(program, env);
  const args = ["daemon", "start"];
  if (places.home) args.push("--home", expandTilde(places.home));
  if (places.socket) args.push("--socket", expandTilde(places.socket));
  await new Promise<void>((done, fail) => {
    // No shell: nothing of the settings is ever read as a command.
    const child = execFile(
      path,
      args,
      { env, timeout: START_LIMIT_MS, encoding: "utf8" },
      (error, stdout, stderr) => {
        if (!error) return done();
        const words = (stderr || stdout || error.message)
          .trim()
          .split("\n")
          .map((line) => line.trim())
          .filter(Boolean);
        const hint = words
          .find((line) => line.startsWith("Hint:"))
          ?.slice("Hint:".length)
          .trim();
        const told = words
          .filter((line) => !line.startsWith("Hint:"))
          .map((line) => line.replace(/^Error: */, ""));
        fail(
          new AbxError(
            "daemon_unreachable",
            `abxd could not be started: ${told.join(" ")}`,
            hint ?? "abx doctor",
          ),
        );
      },
    );
    child.stdin?.end();
  });
}
