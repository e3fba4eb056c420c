/** Runs what takes a while with a notification that shows how far it is, and tells what went wrong with what to do. */

import { commands, env, ProgressLocation, window } from "vscode";
import type { CallOptions, Client, Progress } from "../client/connection";
import { asAbxError, type AbxError } from "../client/errors";
import { settings } from "./settings";
import { plain } from "./words";

/**
 * Connects, starting the daemon if the user lets us, and runs `work` under a notification. Undefined when it failed or
 * was cancelled; the user has been told then.
 */
export async function operation<T>(
  client: Client,
  title: string,
  work: (options: CallOptions) => Promise<T>,
): Promise<T | undefined> {
  return await told(async () => {
    await client.ready({ launch: settings.autostart() });
    return await window.withProgress(
      { location: ProgressLocation.Notification, title, cancellable: true },
      async (progress, token) =>
        await work({ token, onProgress: (step) => progress.report({ message: words(step) }) }),
    );
  }, title);
}

/** As {@link operation}, for what is done before anybody could read a notification. */
export async function quick<T>(client: Client, work: () => Promise<T>): Promise<T | undefined> {
  return await told(async () => {
    await client.ready({ launch: settings.autostart() });
    return await work();
  });
}

/** Runs `work` and tells its failure. Undefined when it failed. */
export async function told<T>(work: () => Promise<T>, title?: string): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    void tell(asAbxError(error), title);
    return undefined;
  }
}

/** Shows a failure with a button for what would help. */
export async function tell(error: AbxError, title?: string): Promise<void> {
  if (error.kind === "cancelled") {
    const rest = "What was begun goes on in abxd, and the view shows what becomes of it.";
    await window.showInformationMessage(`${title ?? "It"}: no longer waited for. ${rest}`);
    return;
  }
  const [button, act] = help(error);
  const chosen = await window.showErrorMessage(`abx: ${plain(error.text)}`, ...(button ? [button] : []));
  if (chosen !== undefined && chosen === button) await act();
}

function help(error: AbxError): [button: string | undefined, act: () => unknown] {
  switch (error.kind) {
    case "program_missing":
      return ["Open Settings", () => commands.executeCommand("workbench.action.openSettings", "abx.path")];
    case "daemon_unreachable":
      return ["Start abxd", () => commands.executeCommand("abx.daemon.start")];
    case "internal":
    case "protocol_error":
      return ["Show Log", () => commands.executeCommand("abx.log.show")];
    default: {
      const command = error.hint?.match(/\babx [a-z][^`;,]*/)?.[0]?.trim();
      return command
        ? ["Copy Command", () => env.clipboard.writeText(command)]
        : [undefined, () => undefined];
    }
  }
}

/** `pulling debian:stable-slim (45 %)` */
function words({ text, current_bytes, total_bytes }: Progress): string {
  if (current_bytes === null) return plain(text);
  const far = total_bytes
    ? `${Math.floor((100 * current_bytes) / total_bytes)} %`
    : `${(current_bytes / 1e6).toFixed(0)} MB`;
  return `${plain(text)} (${far})`;
}
