/** The commands. Each connects first, starting the daemon if the user lets us, and tells what went wrong. */

import { commands, env, window, workspace, type Disposable } from "vscode";
import { agentSettings } from "../client/agents";
import type { Client } from "../client/connection";
import type { SessionTable } from "../client/sessions";
import type { Session, SessionStartParams } from "../protocol";
import { showHistory } from "./history";
import { operation, quick } from "./operations";
import { askName, pickSnapshot, selected, sessionOf, wrongName, type Fits, type Target } from "./pick";
import { settings } from "./settings";
import type { AttachOptions, Terminals } from "./terminal";
import type { Node } from "./tree";

export interface Parts {
  client: Client;
  table: SessionTable;
  terminals: Terminals;
  showLog: () => void;
}

const runs: Fits = (session) => session.status === "running";
const canStop: Fits = (session) => ["running", "paused"].includes(session.status);
const canSave: Fits = (session) => ["running", "paused", "stopped"].includes(session.status);
const canResume: Fits = (session) => ["stopped", "saved", "paused"].includes(session.status);
const hasFiles: Fits = (session) => canSave(session) || session.status === "saved";

/** Registers them all. */
export function registerCommands(parts: Parts): Disposable[] {
  const { client, table, terminals } = parts;

  /** Runs `work` on the session that is meant. */
  const on =
    (ask: string, fits: Fits, work: (session: Session, target: Target) => Promise<unknown>) =>
    async (target?: Target): Promise<void> => {
      const session = await quick(client, () => sessionOf(client, table, target, ask, fits));
      if (session) await work(session, target);
    };

  /** Runs `work` on each session that is selected, side by side. */
  const onEach =
    (ask: string, fits: Fits, work: (session: Session) => Promise<unknown>) =>
    async (target?: Target, all?: Node[]): Promise<void> => {
      await Promise.all(selected(target, all).map((one) => on(ask, fits, work)(one)));
    };

  const all: Record<string, (...args: never[]) => unknown> = {
    "abx.session.start": () => start(parts),
    "abx.session.stop": onEach("Stop which session?", canStop, (session) => stop(parts, session)),
    "abx.session.save": onEach("Save which session?", canSave, (session) => save(parts, session, false)),
    "abx.session.saveRunning": onEach("Save which session?", canSave, (session) =>
      save(parts, session, true),
    ),
    "abx.session.resume": onEach("Resume which session?", canResume, (session) => resume(parts, session)),
    "abx.session.resumeFrom": on(
      "Go back with which session?",
      (s) => s.snapshots > 0,
      (session, target) => goBack(parts, session, target),
    ),
    "abx.session.fork": on("Fork which session?", hasFiles, (session, target) =>
      fork(parts, session, target),
    ),
    "abx.session.delete": (target?: Target, nodes?: Node[]) => remove(parts, target, nodes),
    "abx.session.pause": onEach("Pause which session?", runs, (session) =>
      operation(client, `Pausing ${session.name}`, ({ token }) =>
        client.call("session.pause", { name: session.name }, { token }),
      ),
    ),
    "abx.session.rename": on(
      "Rename which session?",
      () => true,
      async (session) => {
        const new_name = await askName(table, `New name of ${session.name}`, session.name);
        if (new_name)
          await quick(client, () => client.call("session.rename", { name: session.name, new_name }));
      },
    ),
    "abx.session.attach": on("Attach to which session?", hasFiles, (session, target) => {
      const terminal =
        typeof target === "object" && target.kind === "terminal" ? target.terminal.terminal : undefined;
      return attach(parts, session, { terminal });
    }),
    "abx.session.attachAgent": on("Open the agent of which session?", hasFiles, (session) =>
      attach(parts, session, { agent: "resume" }),
    ),
    "abx.session.attachTerminal": on("Attach to which session?", hasFiles, async (session) => {
      const terminal = await window.showInputBox({
        prompt: "The terminal: come back to it, or open it",
        value: "second",
      });
      if (terminal?.trim()) await attach(parts, session, { terminal: terminal.trim() });
    }),
    "abx.session.watch": on("Watch which session?", runs, (session, target) => {
      const terminal =
        typeof target === "object" && target.kind === "terminal" ? target.terminal.terminal : undefined;
      return attach(parts, session, { terminal, read_only: true });
    }),
    "abx.session.exec": on("Run a command in which session?", runs, async (session) => {
      const prompt = `Command for the shell of ${session.name}`;
      const line = await window.showInputBox({ prompt, placeHolder: "make test" });
      if (line?.trim()) terminals.exec(session.id, session.name, line);
    }),
    "abx.session.history": on(
      "Show the history of which session?",
      () => true,
      (session) => quick(client, () => showHistory(client, session.name)),
    ),
    "abx.session.copyName": on(
      "Copy the name of which session?",
      () => true,
      async (session) => env.clipboard.writeText(session.name),
    ),
    "abx.session.attention": () => attention(parts),
    "abx.terminal.close": (node?: Node) => closeTerminal(parts, node),
    "abx.snapshot.delete": (node?: Node) => removeSnapshot(parts, node),
    "abx.refresh": () => quick(client, () => table.refresh()),
    "abx.daemon.start": () =>
      operation(client, "Starting abxd", async () => {
        await client.ready({ launch: true });
        await table.refresh();
      }),
    "abx.log.show": () => parts.showLog(),
  };
  return Object.entries(all).map(([name, run]) => commands.registerCommand(name, run));
}

async function start(parts: Parts): Promise<void> {
  const { client, table } = parts;
  if ((await quick(client, () => table.refresh().then(() => true))) === undefined) return;
  const name = await askName(table, "Name of the new session");
  if (!name || wrongName(name)) return;
  const workspace = await folder();
  if (workspace === undefined) return;
  const params: SessionStartParams = {
    name,
    agent: settings.agent(),
    template: settings.template(),
    image: settings.image(),
    workspace: workspace === null ? undefined : { source: workspace, target: "" },
  };
  const session = await operation(client, `Starting ${name}`, (options) =>
    client.call("session.start", params, options),
  );
  if (session && settings.attachAfterStart()) await attach(parts, session, {});
}

/** The folder that the sandbox works on; null for none, undefined when the user does not say. */
async function folder(): Promise<string | null | undefined> {
  const folders = (workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file");
  const wish = settings.mountWorkspace();
  const [only] = folders;
  if (!only || wish === "never") return null;
  if (wish === "always" && folders.length === 1) return only.uri.fsPath;
  const items = folders.map(({ name, uri }) => ({
    label: `Work on ${name}`,
    description: uri.fsPath,
    folder: uri.fsPath as string | null,
  }));
  items.push({ label: "No folder", description: "the sandbox sees nothing of this machine", folder: null });
  return (await window.showQuickPick(items, { placeHolder: "What may the sandbox work on?" }))?.folder;
}

async function save({ client }: Parts, session: Session, keep_running: boolean): Promise<void> {
  const note = await window.showInputBox({
    prompt: `A note for the snapshot of ${session.name}; it may be empty`,
    placeHolder: "before the big refactoring",
  });
  if (note === undefined) return;
  const params = { name: session.name, note: note.trim() || null, keep_running };
  const saved = await operation(client, `Saving ${session.name}`, (options) =>
    client.call("session.save", params, options),
  );
  if (saved)
    void window.showInformationMessage(`Session '${session.name}' saved (snapshot: ${saved.snapshot.name})`);
}

async function stop({ client }: Parts, { name }: Session): Promise<Session | undefined> {
  return await operation(client, `Stopping ${name}`, ({ token }) =>
    client.call("session.stop", { name }, { token }),
  );
}

async function resume({ client }: Parts, session: Session, snapshot?: string): Promise<Session | undefined> {
  const title = snapshot ? `Going back with ${session.name} to ${snapshot}` : `Resuming ${session.name}`;
  return await operation(client, title, (options) =>
    client.call("session.resume", { name: session.name, snapshot }, options),
  );
}

async function goBack(parts: Parts, session: Session, target: Target): Promise<void> {
  const given = typeof target === "object" && target.kind === "snapshot" ? target.snapshot : undefined;
  const snapshot =
    given ??
    (await quick(parts.client, () => pickSnapshot(parts.client, session, "Go back to which snapshot?")));
  if (!snapshot) return;
  const question = `Go back with ${session.name} to ${snapshot.name}?`;
  const detail = "What runs in it ends. The files as they are now are saved first.";
  if ((await window.showWarningMessage(question, { modal: true, detail }, "Go Back")) !== "Go Back") return;
  // Only a session that does not run goes back.
  if (session.status !== "running" || (await stop(parts, session)))
    await resume(parts, session, snapshot.name);
}

async function fork(parts: Parts, session: Session, target: Target): Promise<void> {
  const { client, table } = parts;
  let snapshot = typeof target === "object" && target.kind === "snapshot" ? target.snapshot.name : undefined;
  if (snapshot === undefined && session.snapshots > 0) {
    const fresh = "$(device-camera) As it is now";
    const picked = await quick(client, () =>
      pickSnapshot(client, session, `Fork ${session.name} from what?`, fresh),
    );
    if (picked === undefined) return;
    snapshot = picked?.name;
  }
  const new_name = await askName(table, `Name of the fork of ${session.name}`, `${session.name}-2`);
  if (!new_name) return;
  const params = { name: session.name, new_name, snapshot };
  await operation(client, `Forking ${session.name}`, (options) =>
    client.call("session.fork", params, options),
  );
}

async function remove({ client, table }: Parts, target?: Target, nodes?: Node[]): Promise<void> {
  const sessions: Session[] = [];
  for (const one of selected(target, nodes)) {
    const session = await quick(client, () => sessionOf(client, table, one, "Delete which session?"));
    if (session) sessions.push(session);
  }
  const [first] = sessions;
  if (!first) return;
  const names = sessions.map((session) => session.name).join(", ");
  const snapshots = sessions.reduce((sum, session) => sum + session.snapshots, 0);
  const which = sessions.length === 1 ? "its container" : "their containers";
  const detail =
    snapshots > 0
      ? `This removes ${which} and all files in it, and ${snapshots} snapshots unless they are kept.`
      : `This removes ${which} and all files in it. There is no snapshot.`;
  const buttons = snapshots > 0 ? ["Delete All", "Keep Snapshots"] : ["Delete"];
  const chosen = await window.showWarningMessage(`Delete ${names}?`, { modal: true, detail }, ...buttons);
  if (chosen === undefined) return;
  const keep_snapshots = chosen === "Keep Snapshots";
  await Promise.all(
    sessions.map(({ name }) =>
      operation(client, `Deleting ${name}`, ({ token }) =>
        client.call("session.delete", { name, keep_snapshots }, { token }),
      ),
    ),
  );
}

/** Shows a terminal of a session, which is resumed first if it does not run. */
async function attach(parts: Parts, session: Session, options: AttachOptions): Promise<void> {
  const running = session.status === "running" ? session : await resume(parts, session);
  if (!running) return;
  const all = await quick(parts.client, () => attachOptions(parts.client, running, options));
  if (all) parts.terminals.attach(running.id, running.name, all);
}

/** Adds the session's agent where it is meant: because the user says so, or because its template does. */
export async function attachOptions(
  client: Client,
  session: Session,
  options: AttachOptions,
): Promise<AttachOptions> {
  const all = { scrollback: settings.scrollback(), ...options };
  if (options.read_only || (options.terminal ?? "main") !== "main") return all;
  const { attaches, credentials } = agentSettings(await client.call("daemon.info", {}), session);
  const agent = options.agent ?? (attaches ? "usual" : undefined);
  return agent ? { ...all, agent, env: credentials } : all;
}

/** Of one session that waits for its user: its terminal. Of several: the user picks. */
async function attention(parts: Parts): Promise<void> {
  const { client, table } = parts;
  const waits: Fits = (session) => session.attention === "waiting";
  const [only, second] = table.waiting;
  const fits = only ? waits : hasFiles;
  const session =
    only && !second
      ? only
      : await quick(client, () => sessionOf(client, table, undefined, "Attach to which session?", fits));
  if (session) await attach(parts, session, {});
}

async function closeTerminal({ client }: Parts, node?: Node): Promise<void> {
  if (node?.kind !== "terminal") return;
  const { session, terminal } = node;
  const question = `End what runs on ${terminal.terminal} of ${session.name}?`;
  if ((await window.showWarningMessage(question, { modal: true }, "End")) !== "End") return;
  await quick(client, () =>
    client.call("terminal.close", { session: session.name, terminal: terminal.terminal }),
  );
}

async function removeSnapshot({ client }: Parts, node?: Node): Promise<void> {
  if (node?.kind !== "snapshot") return;
  const { name } = node.snapshot;
  const detail = "The files in it cannot be brought back.";
  if (
    (await window.showWarningMessage(`Delete the snapshot ${name}?`, { modal: true, detail }, "Delete")) !==
    "Delete"
  )
    return;
  await operation(client, `Deleting ${name}`, ({ token }) =>
    client.call("snapshot.delete", { snapshots: [name] }, { token }),
  );
}
