/** The view of sessions, with the terminals and snapshots of each below it. */

import {
  EventEmitter,
  ThemeIcon,
  TreeItem,
  TreeItemCollapsibleState,
  type Disposable,
  type TreeDataProvider,
} from "vscode";
import type { Client } from "../client/connection";
import type { SessionTable } from "../client/sessions";
import type { Session, Snapshot, TerminalInfo } from "../protocol";
import { description, duration, icon, plain, tooltip } from "./words";

export type Node =
  | { kind: "session"; session: Session }
  | { kind: "terminal"; session: Session; terminal: TerminalInfo }
  | { kind: "snapshot"; session: Session; snapshot: Snapshot };

export class SessionTree implements TreeDataProvider<Node>, Disposable {
  private readonly changed = new EventEmitter<Node | undefined>();
  private readonly listening: Disposable;

  readonly onDidChangeTreeData = this.changed.event;

  constructor(
    private readonly client: Client,
    private readonly table: SessionTable,
  ) {
    this.listening = table.onChange(() => this.changed.fire(undefined)) as Disposable;
  }

  getTreeItem(node: Node): TreeItem {
    switch (node.kind) {
      case "session":
        return sessionItem(node.session);
      case "terminal":
        return terminalItem(node.session, node.terminal);
      case "snapshot":
        return snapshotItem(node.snapshot);
    }
  }

  async getChildren(parent?: Node): Promise<Node[]> {
    if (parent === undefined) return (this.table.all ?? []).map((session) => ({ kind: "session", session }));
    if (parent.kind !== "session") return [];
    const { session } = parent;
    // Each fails by itself: an engine that is away hides terminals and not snapshots.
    const [terminals, snapshots] = await Promise.all([
      session.status === "running"
        ? this.client.call("terminal.list", { session: session.name }).catch(() => [])
        : [],
      session.snapshots > 0 ? this.client.call("snapshot.list", { name: session.name }).catch(() => []) : [],
    ]);
    return [
      ...terminals.map((terminal): Node => ({ kind: "terminal", session, terminal })),
      ...snapshots.map((snapshot): Node => ({ kind: "snapshot", session, snapshot })),
    ];
  }

  getParent(node: Node): Node | undefined {
    return node.kind === "session" ? undefined : { kind: "session", session: node.session };
  }

  dispose(): void {
    this.listening.dispose();
    this.changed.dispose();
  }
}

function sessionItem(session: Session): TreeItem {
  const has = session.status === "running" || session.snapshots > 0;
  const item = new TreeItem(
    session.name,
    has ? TreeItemCollapsibleState.Collapsed : TreeItemCollapsibleState.None,
  );
  item.id = session.id;
  item.description = description(session);
  item.tooltip = tooltip(session);
  item.iconPath = icon(session);
  item.contextValue = `session.${session.status}`;
  item.accessibilityInformation = { label: `session ${session.name}, ${description(session)}` };
  return item;
}

function terminalItem(session: Session, terminal: TerminalInfo): TreeItem {
  const item = new TreeItem(terminal.terminal, TreeItemCollapsibleState.None);
  item.id = `${session.id}/terminal/${terminal.terminal}`;
  item.description = `${program(terminal.cmd)} · ${terminal.clients} attached`;
  item.iconPath = new ThemeIcon("terminal");
  item.contextValue = "terminal";
  item.command = {
    command: "abx.session.attach",
    title: "Attach",
    arguments: [{ kind: "terminal", session, terminal } satisfies Node],
  };
  return item;
}

/** Longest command line that is shown. */
const MOST_CHARACTERS = 40;

/** What runs on a terminal. */
function program(cmd: string[]): string {
  const line = plain(cmd.join(" "));
  return line.length > MOST_CHARACTERS ? `${line.slice(0, MOST_CHARACTERS)}…` : line;
}

function snapshotItem(snapshot: Snapshot): TreeItem {
  const item = new TreeItem(snapshot.name, TreeItemCollapsibleState.None);
  item.id = `snapshot/${snapshot.name}`;
  const age = `${duration(Date.now() - Date.parse(snapshot.created_at))} ago`;
  item.description = [age, snapshot.note && plain(snapshot.note)].filter(Boolean).join(" · ");
  item.tooltip = `${snapshot.name}, ${(snapshot.size_bytes / 1e6).toFixed(0)} MB`;
  item.iconPath = new ThemeIcon("history");
  item.contextValue = "snapshot";
  return item;
}
