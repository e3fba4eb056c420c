/** How sessions read: in the tree, in lists to pick from and in the status bar. */

import { MarkdownString, ThemeColor, ThemeIcon } from "vscode";
import type { Session } from "../protocol";

const ICONS: Record<string, [icon: string, color?: string]> = {
  starting: ["loading~spin"],
  running: ["vm-running", "charts.green"],
  paused: ["debug-pause", "charts.yellow"],
  stopped: ["vm-outline", "disabledForeground"],
  saved: ["save", "charts.blue"],
  lost: ["warning", "list.warningForeground"],
  unknown: ["question"],
};

const REASONS: Record<string, string> = {
  exited: "its main program ended",
  oom_killed: "out of memory",
  timeout: "its timeout ran out",
  idle: "unused for too long",
  engine: "the engine stopped",
  removed: "its container was removed",
};

export function icon(session: Session): ThemeIcon {
  if (session.operation) return new ThemeIcon("loading~spin");
  if (session.attention === "waiting") return new ThemeIcon("bell-dot", new ThemeColor("charts.orange"));
  const [name, color] = ICONS[session.status] ?? ["question"];
  return new ThemeIcon(name, color === undefined ? undefined : new ThemeColor(color));
}

/** `running · claude · waiting: may I run the tests?` */
export function description(session: Session): string {
  const status = session.operation ? `${session.status}, ${session.operation}…` : session.status;
  const reason = session.reason ? REASONS[session.reason] : undefined;
  const note = session.attention_note ? `: ${plain(session.attention_note)}` : "";
  const attention =
    session.attention && session.status === "running" ? `${session.attention}${note}` : undefined;
  return [reason ? `${status} (${reason})` : status, session.agent, attention].filter(Boolean).join(" · ");
}

export function tooltip(session: Session, now = Date.now()): MarkdownString {
  const rows: [string, string | null | undefined][] = [
    ["Status", description(session)],
    ["Age", duration(now - Date.parse(session.created_at))],
    ["Sandbox", session.sandbox],
    ["Image", session.image],
    ["Template", session.template],
    ["Folder", session.workspace ? `${session.workspace.source} on ${session.workspace.target}` : undefined],
    ["Ports", session.ports.map((port) => `${port.host ?? "?"} → ${port.container}`).join(", ")],
    ["Commands", String(session.exec_count)],
    ["Snapshots", session.snapshots > 0 ? `${session.snapshots}, newest ${session.snapshot}` : undefined],
    ["Stops", session.expires_at ? new Date(session.expires_at).toLocaleString() : undefined],
    ...Object.entries(session.metadata),
  ];
  const markdown = new MarkdownString();
  markdown.appendText(session.name);
  markdown.appendMarkdown("\n\n| | |\n|---|---|\n");
  for (const [name, value] of rows) {
    if (value) markdown.appendMarkdown(`| ${cell(name)} | ${cell(value)} |\n`);
  }
  return markdown;
}

/** As `abx list` has it: `45s`, `12m`, `2h 14m`, `3d`. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (seconds < 60) return `${seconds}s`;
  if (minutes < 60) return `${minutes}m`;
  if (hours < 24) return minutes % 60 ? `${hours}h ${minutes % 60}m` : `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

/** Text that may come from a sandbox, as one line without control characters. */
export function plain(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g, " ").trim();
}

function cell(text: string): string {
  return plain(text).replace(/[\\`*_{}[\]()#+\-.!|<>~$&]/g, "\\$&");
}
