/** What a command is about: what it was given, what is selected, or what the user picks. */

import { window, type QuickPickItem } from "vscode";
import type { Client } from "../client/connection";
import type { SessionTable } from "../client/sessions";
import type { Session, Snapshot } from "../protocol";
import type { Node } from "./tree";
import { description, duration, icon, plain } from "./words";

/** What a command may be called with: a node of the view, a session's name, or nothing. */
export type Target = Node | string | undefined;

export type Fits = (session: Session) => boolean;

/** The session of a target, as it is now; asks when there is none. Undefined when the user does not say. */
export async function sessionOf(
  client: Client,
  table: SessionTable,
  target: Target,
  placeHolder: string,
  fits: Fits = () => true,
): Promise<Session | undefined> {
  if (typeof target === "string") return await client.call("session.get", { name: target });
  if (target) return table.all?.find(({ id }) => id === target.session.id) ?? target.session;
  const sessions: Session[] = (await client.call("session.list", {})).filter(fits);
  if (sessions.length === 0) {
    void window.showInformationMessage("abx: there is no session that this could be done with.");
    return undefined;
  }
  const items = sessions.map((session) => ({
    label: session.name,
    description: description(session),
    iconPath: icon(session),
    session,
  }));
  return (await window.showQuickPick(items, { placeHolder, matchOnDescription: true }))?.session;
}

/** The sessions of what is selected, when a command was called on one of them. */
export function selected(target: Target, all: readonly Node[] | undefined): Target[] {
  const nodes = (all ?? []).filter((node) => node.kind === "session");
  return nodes.length > 1 ? nodes : [target];
}

/** A snapshot of a session; `fresh` offers to take one now, which is null. */
export async function pickSnapshot(
  client: Client,
  session: Session,
  placeHolder: string,
  fresh?: string,
): Promise<Snapshot | null | undefined> {
  const snapshots = await client.call("snapshot.list", { name: session.name });
  const items: (QuickPickItem & { snapshot: Snapshot | null })[] = snapshots.map((snapshot) => ({
    label: snapshot.name,
    description: `${duration(Date.now() - Date.parse(snapshot.created_at))} ago`,
    detail: snapshot.note ? plain(snapshot.note) : undefined,
    snapshot,
  }));
  if (fresh !== undefined) items.unshift({ label: fresh, snapshot: null });
  if (items.length === 0) {
    void window.showInformationMessage(`abx: ${session.name} has no snapshot. Save it first.`);
    return undefined;
  }
  return (await window.showQuickPick(items, { placeHolder }))?.snapshot;
}

/** A name for a new session; undefined when the user does not say. */
export async function askName(table: SessionTable, prompt: string, value = ""): Promise<string | undefined> {
  const name = await window.showInputBox({
    prompt,
    value,
    placeHolder: "feature-x",
    validateInput: (text) =>
      wrongName(text) ?? (table.get(text.trim()) ? `There is a session ${text.trim()} already` : undefined),
  });
  return name?.trim().normalize("NFC") || undefined;
}

/** Why a name would be refused, as far as can be told here. */
export function wrongName(text: string): string | undefined {
  const name = text.trim();
  if (name === "") return "A session needs a name";
  if (name.includes("/")) return "A name has no /";
  if (/^[-.]/.test(name)) return "A name does not begin with - or .";
  if (/[\p{Cc}\u2028\u2029]/u.test(name)) return "A name has no control characters";
  if (Buffer.byteLength(name.normalize("NFC")) > 128) return "A name has at most 128 bytes";
  return undefined;
}
