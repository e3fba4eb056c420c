/** Puts the parts together: one connection to abxd, and the view, terminals, commands and status bar on it. */

import { commands, TerminalProfile, window, workspace, type Disposable, type ExtensionContext } from "vscode";
import { Client, type State } from "./client/connection";
import { asAbxError, type AbxError } from "./client/errors";
import { SessionTable } from "./client/sessions";
import { attachOptions, registerCommands } from "./ui/commands";
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
  const terminals = new Terminals(() => client.socketPath, table);
  const tree = new SessionTree(client, table);
  const view = window.createTreeView<Node>("abx.sessions", { treeDataProvider: tree, canSelectMany: true, showCollapseAll: true });
  const status = new Status(client, table);
  const all: Disposable[] = [
    ...registerCommands({ client, table, terminals, showLog: () => log.show() }),
    view,
    status,
    tree,
    terminals,
    table,
    workspace.registerTextDocumentContentProvider(HISTORY_SCHEME, new HistoryDocuments(client)),
    window.registerTerminalProfileProvider("abx.session", { provideTerminalProfile: () => profile(client, table, terminals) }),
    view.onDidChangeVisibility(({ visible }) => visible && launch()),
    client,
    log,
  ];
  context.subscriptions.push(...all);

  let shown: State["kind"] | undefined;
  /** What the view says while it has nothing to show. */
  const show = (problem?: AbxError) => {
    const { state } = client;
    const failure = problem ?? (state.kind === "offline" ? state.error : undefined);
    const usual = ["daemon_unreachable", "program_missing"].includes(failure?.kind ?? "");
    view.message = failure && (!usual || problem?.kind === "daemon_unreachable") ? failure.text : undefined;
    view.badge = table.waiting.length > 0 ? { value: table.waiting.length, tooltip: "sessions wait for you" } : undefined;
    const word = state.kind === "connected" && table.all === undefined ? "connecting" : state.kind;
    void commands.executeCommand("setContext", "abx.state", failure?.kind === "program_missing" ? "missing" : word);
  };
  /** Starts the daemon for who looks at the view, as `abx` does for who types a command. The view tells what failed. */
  const launch = () => {
    if (settings.autostart()) client.ready({ launch: true }).catch((error: unknown) => show(asAbxError(error)));
  };
  client.onState((state) => {
    if (state.kind === "offline") log.warn(state.error.text);
    // Attempts go on; what the last launch said stays until one gets further.
    if (state.kind === "connected" || shown !== state.kind) show();
    shown = state.kind;
  });
  table.onChange(() => show());
  show();
  client.keep();
  if (view.visible) launch();
}

/** For the menu of terminals. */
async function profile(client: Client, table: SessionTable, terminals: Terminals): Promise<TerminalProfile | undefined> {
  const runs = (session: { status: string }) => session.status === "running";
  const session = await quick(client, () => sessionOf(client, table, undefined, "Attach to which session?", runs));
  const options = session && (await quick(client, () => attachOptions(client, session, {})));
  return session && options ? new TerminalProfile(terminals.options(session.id, session.name, options)) : undefined;
}
