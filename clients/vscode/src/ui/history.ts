/** Who did what with a session, as a document to read. */

import { Uri, window, workspace, type TextDocumentContentProvider } from "vscode";
import type { Client } from "../client/connection";
import type { Event } from "../protocol";
import { duration, plain } from "./words";

export const HISTORY_SCHEME = "abx-history";

/** What a reader cannot use. */
const UNSAID = ["exec", "image_id", "detached"];

/** Opens the history of a session. */
export async function showHistory(client: Client, session: string): Promise<void> {
  // The time makes each a document of its own: one that is open is not what is asked for.
  const uri = Uri.from({ scheme: HISTORY_SCHEME, path: `/${session}.txt`, query: new Date().toISOString() });
  await client.ready();
  await window.showTextDocument(await workspace.openTextDocument(uri), { preview: true });
}

export class HistoryDocuments implements TextDocumentContentProvider {
  constructor(private readonly client: Client) {}

  async provideTextDocumentContent(uri: Uri): Promise<string> {
    const session = uri.path.slice(1).replace(/\.txt$/, "");
    const all: Event[] = [];
    for (let since = 0; ; since = all[all.length - 1]!.seq) {
      // An answer has as many as a message takes.
      const page = await this.client.call("event.list", { session, since });
      if (page.length === 0) break;
      all.push(...page);
    }
    return lines(all).join("\n") + "\n";
  }
}

/** One line each. What ends names its command by id: the words are with its start. */
export function lines(events: readonly Event[]): string[] {
  const commands = new Map<unknown, unknown>();
  return events.map((event) => {
    if (typeof event.data !== "object" || event.data === null) return line(event);
    const data = event.data as Record<string, unknown>;
    if (data["cmd"] !== undefined) commands.set(data["exec"], data["cmd"]);
    const cmd = event.kind.endsWith(".ended") ? commands.get(data["exec"]) : undefined;
    return line(cmd === undefined ? event : { ...event, data: { cmd, ...data } });
  });
}

/** `2026-02-01 10:20:30  exec.ended           make test, code 0, 12s   (my-editor 4711)` */
export function line(event: Event): string {
  const when = event.at.slice(0, 19).replace("T", " ");
  const by = event.by ? `  (${event.by.client}${event.by.pid ? ` ${event.by.pid}` : ""})` : "";
  return plain(`${when}  ${event.kind.padEnd(18)}  ${said(event)}${by}`);
}

function said({ data }: Event): string {
  if (typeof data !== "object" || data === null) return "";
  const words = Object.entries(data as Record<string, unknown>)
    .filter(([key, value]) => value !== null && value !== false && !UNSAID.includes(key))
    .map(([key, value]) => {
      if (key === "cmd" && Array.isArray(value)) return value.join(" ");
      if (key === "duration_ms" && typeof value === "number") return duration(value);
      if (key === "exit_code") return `code ${String(value)}`;
      return `${key} ${Array.isArray(value) ? value.join(", ") : String(value)}`;
    });
  return words.join(", ");
}
