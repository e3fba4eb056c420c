/** Puts the parts together: one connection to abxd, and the view, terminals, commands and status bar on it. */

import { TerminalProfile, window, workspace, type Disposable, type ExtensionContext } from "vscode";
import { Client } from "./client/connection";
import { SessionTable } from "./client/sessions";
import { attachOptions, registerCommands } from "./ui/commands";
import { Face } from "./ui/face";
import { HISTORY_SCHEME, HistoryDocuments } from "./ui/history";
import { quick } from "./ui/operations";
import { sessionOf } from "./ui/pick";
import { settings } from "./ui/settings";
import { Status } from "./ui/status";
import { Terminals } from "./ui/terminal";
import { SessionTree, type Node } from "./ui/tree";

/** Connects, if somebody listens; the daemon is started only once the user turns to the view or to a command. */
export function activate(context: ExtensionContext): void {
  const log = window.createOutputChannel("abx", { log: true });
  const client = new Client({
    // Asked for anew at each attempt: the user may change them at any time.
    get home() {
      return settings.home();
    },
    get socket() {
      return settings.socket();
    },
    get program() {
      return settings.program();
    },
    name: "vscode",
    log: (line) => log.info(line),
  });
  const table = new SessionTable(client, (line) => log.warn(line));
  const terminals = new Terminals(client, table);
  const tree = new SessionTree(client, table);
  const view = window.createTreeView<Node>("abx.sessions", {
    treeDataProvider: tree,
    canSelectMany: true,
    showCollapseAll: true,
  });
  const status = new Status(client, table);
  const all: Disposable[] = [
    ...registerCommands({ client, table, terminals, showLog: () => log.show() }),
    view,
    status,
    tree,
    terminals,
    table,
    workspace.registerTextDocumentContentProvider(HISTORY_SCHEME, new HistoryDocuments(client)),
    window.registerTerminalProfileProvider("abx.session", {
      provideTerminalProfile: () => profile(client, table, terminals),
    }),
    client,
    log,
  ];
  context.subscriptions.push(...all);

  const face = new Face(client, table, view, context.globalState);
  const launch = () => face.launch();
  context.subscriptions.push(
    face,
    view.onDidChangeVisibility(({ visible }) => visible && launch()),
    workspace.onDidChangeConfiguration((change) => {
      if (["abx.home", "abx.socket"].some((name) => change.affectsConfiguration(name))) client.restart();
    }),
  );
  client.onState((state) => state.kind === "offline" && log.warn(state.error.text));
  client.keep();
  if (view.visible) launch();
}

/** For the menu of terminals. */
async function profile(
  client: Client,
  table: SessionTable,
  terminals: Terminals,
): Promise<TerminalProfile | undefined> {
  const runs = (session: { status: string }) => session.status === "running";
  const session = await quick(client, () =>
    sessionOf(client, table, undefined, "Attach to which session?", runs),
  );
  const options = session && (await quick(client, () => attachOptions(client, session, {})));
  return session && options
    ? new TerminalProfile(terminals.options(session.id, session.name, options))
    : undefined;
}
