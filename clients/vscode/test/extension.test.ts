/** The bundled extension in a stand-in for the editor, on a live daemon: what a user sees and does. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Editor, type FakeTerminal } from "./standin";
import { FakeDaemon, IMAGE, inWorld, NO_ENGINE, PROGRAM, until, World } from "./support";

const BUNDLE = join(__dirname, "../dist/extension.js");

/** An editor with the extension in it, set to a home. */
function edit(world: World, settings: Record<string, unknown> = {}): Editor {
  const editor = new Editor();
  const all = {
    path: PROGRAM,
    home: world.home,
    "start.image": IMAGE,
    "start.mountWorkspace": "never",
    "start.attach": false,
  };
  for (const [name, value] of Object.entries({ ...all, ...settings }))
    editor.settings.set(`abx.${name}`, value);
  return activate(editor, world);
}

function activate(editor: Editor, owner: { own<T extends { dispose(): void }>(thing: T): T }): Editor {
  const context = editor.activation();
  editor.load(BUNDLE).activate(context);
  owner.own({ dispose: () => context.subscriptions.forEach((one) => one.dispose()) });
  return editor;
}

const connected = (editor: Editor) =>
  until("a connection", () => editor.context.get("abx.state") === "connected");

async function item(editor: Editor, name: string, fits: (description: string) => boolean = () => true) {
  const look = async () => {
    const found = (await editor.items()).get(name);
    return found && fits(String(found.item.description)) ? found : undefined;
  };
  return await until(`${name} in the view`, look);
}

async function shows(terminal: FakeTerminal, text: string): Promise<void> {
  await until(`${text} to be shown`, () => terminal.text.includes(text)).catch((error: Error) => {
    throw new Error(`${error.message}; shown: ${JSON.stringify(terminal.text.slice(-2000))}`);
  });
}

test("nothing is started before the user looks, and then it is", async () => {
  const world = new World();
  try {
    const editor = edit(world);
    await until("the attempt", () => editor.context.get("abx.state") === "offline");
    assert.equal(editor.statusItem.visible, false);
    assert.equal(editor.messages.length, 0);
    editor.look();
    await connected(editor);
    assert.deepEqual([...(await editor.items()).keys()], []);
    // Who stopped it on purpose has it stopped, until a command needs it.
    await world.stopDaemon();
    await until("the loss", () => editor.context.get("abx.state") === "offline");
    await editor.run("abx.refresh");
    await connected(editor);
  } finally {
    await world.dispose();
  }
});

test("the view says that abx is missing, and a command offers the settings", async () => {
  const world = new World();
  try {
    const editor = edit(world, { path: "/no/such/abx" });
    editor.look();
    await until("the view to say so", () => editor.context.get("abx.state") === "missing");
    assert.equal(editor.messages.length, 0);
    let opened: unknown;
    editor.commands.set("workbench.action.openSettings", (what) => (opened = what));
    editor.answers.push("Open Settings");
    await editor.run("abx.session.start");
    assert.match(editor.messages[0]?.text ?? "", /there is no program \/no\/such\/abx.*Hint: install abx/);
    await until("the settings", () => opened === "abx.path");
    // With autostart off nothing is started, and the user is offered to.
    editor.settings.set("abx.autostart", false);
    await editor.run("abx.session.start");
    assert.deepEqual(editor.messages.at(-1)?.buttons, ["Start abxd"]);
  } finally {
    await world.dispose();
  }
});

test("an engine that is away is told in the view, and another home is another daemon", async () => {
  const [world, other] = [new World(), new World()];
  try {
    world.env["DOCKER_HOST"] = `unix://${world.dir}/no-engine`;
    await Promise.all([world.startDaemon(), other.startDaemon()]);
    for (const [one, name] of [
      [world, "here"],
      [other, "there"],
    ] as const)
      await one.abx("rpc", "store.save", JSON.stringify({ name }));
    const editor = edit(world);
    await until("the word", () => editor.view.message?.startsWith("docker does not answer: "));
    const { item: here } = await item(editor, "here");
    assert.equal(here.contextValue, "session.unknown");
    editor.set("abx.home", other.home);
    await item(editor, "there");
    assert.deepEqual([...(await editor.items()).keys()], ["there"]);
  } finally {
    await world.dispose();
    await other.dispose();
  }
});

test("a word of the daemon is shown once", async () => {
  const fake = await FakeDaemon.rpc((rpc) => rpc.onRequest("session.list", () => []), {
    notice: "12 old sessions: abx import",
  });
  const mine: { dispose(): void }[] = [];
  try {
    const editor = new Editor();
    editor.settings.set("abx.socket", fake.socket);
    for (const _ of ["one window", "and the next"])
      activate(editor, { own: (thing) => (mine.push(thing), thing) });
    await until("the word", () => editor.messages.length > 0);
    fake.hangUp();
    await until("the loss", () => editor.context.get("abx.state") === "offline");
    await connected(editor);
    assert.deepEqual(
      editor.messages.map(({ text }) => text),
      ["abx: 12 old sessions: abx import"],
    );
  } finally {
    for (const one of [...mine, fake]) one.dispose();
  }
});

test(
  "a user's first ten minutes",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const editor = edit(world, { "start.attach": true });
    await connected(editor);

    editor.answers.push("feature-x");
    await editor.run("abx.session.start");
    const { item: started, node } = await item(editor, "feature-x", (text) => text === "running · claude");
    assert.equal(started.contextValue, "session.running");
    assert.equal(started.iconPath?.id, "vm-running");
    assert.match(String(typeof started.tooltip === "object" && started.tooltip.value), /Image \| .+/);
    assert.equal(editor.progress[0]?.title, "Starting feature-x");
    assert.deepEqual([editor.statusItem.text, editor.statusItem.visible], ["$(vm) 1 running", true]);

    // It was attached to.
    const main = await until("the terminal", () => editor.terminal("feature-x"));
    main.type("stty size; echo he''llo > /tmp/file; cat /tmp/file\r");
    await shows(main, "30 100");
    await shows(main, "hello");
    main.options.pty.setDimensions({ columns: 61, rows: 21 });
    main.type("stty size\r");
    await shows(main, "21 61");
    // Attaching again brings it forward; below the session it is listed.
    await editor.run("abx.session.attach", node);
    assert.equal(editor.terminals.length, 1);
    const below = await until("the terminal in the view", async () => (await editor.items(node)).get("main"));
    assert.equal(below.item.description, "-sh · 1 attached");
    await editor.run("abx.session.watch", below.node);
    const watcher = await until("the watcher", () => editor.terminal("feature-x (read-only)"));
    await shows(watcher, "hello");
    watcher.dispose();
    // Closing the tab leaves what runs in it running.
    main.type("kept=yes\r");
    main.dispose();
    await editor.run("abx.session.attach", "feature-x");
    const again = await until("the terminal", () => editor.terminal("feature-x"));
    again.type("echo $kept-then\r");
    await shows(again, "yes-then");
    again.type("exit 3\r");
    await shows(again, "[abx] ended with code 3");
    again.type("\r");
    assert.deepEqual(again.exitStatus, { code: 3 });

    // A command, whose words no shell out here sees.
    editor.answers.push("echo \"$((40+2))\" 'a b'; exit 4");
    await editor.run("abx.session.exec", node);
    const run = await until("the command's terminal", () =>
      editor.terminals.find(({ name }) => name.startsWith("feature-x: echo")),
    );
    await shows(run, "42 a b");
    await shows(run, "[abx] ended with code 4");
    assert.equal(run.exitStatus, undefined);

    editor.answers.push("before the refactoring");
    await editor.run("abx.session.save", node);
    const saved = await item(editor, "feature-x", (text) => text.startsWith("saved"));
    assert.match(
      editor.messages.at(-1)?.text ?? "",
      /^Session 'feature-x' saved \(snapshot: feature-x-\d{8}\)$/,
    );
    const snapshot = await until(
      "the snapshot",
      async () => [...(await editor.items(saved.node)).values()][0],
    );
    assert.equal(snapshot.item.contextValue, "snapshot");
    assert.match(String(snapshot.item.description), /ago · before the refactoring$/);

    editor.answers.push("fork");
    await editor.run("abx.session.fork", snapshot.node);
    await item(editor, "fork", (text) => text.startsWith("running"));
    editor.answers.push("cat /tmp/file");
    await editor.run("abx.session.exec", "fork");
    const cat = await until("the command's terminal", () => editor.terminal("fork: cat /tmp/file"));
    await shows(cat, "hello");
    await shows(cat, "ended with code 0");

    await editor.run("abx.session.resume", saved.node);
    await item(editor, "feature-x", (text) => text.startsWith("running"));
    editor.answers.push("Go Back");
    await editor.run("abx.session.resumeFrom", snapshot.node);
    assert.equal(
      editor.messages.at(-1)?.detail,
      "What runs in it ends. The files as they are now are saved first.",
    );
    await item(editor, "feature-x", (text) => text === "running · claude");
    await editor.run("abx.session.pause", "fork");
    await item(editor, "fork", (text) => text.startsWith("paused"));
    await editor.run("abx.session.stop", "fork");
    const stopped = await item(editor, "fork", (text) => text.startsWith("stopped"));
    assert.equal(stopped.item.contextValue, "session.stopped");

    editor.answers.push("other");
    await editor.run("abx.session.rename", stopped.node);
    await item(editor, "other");
    await editor.run("abx.session.copyName", "other");
    assert.equal(editor.clipboard, "other");
    await editor.run("abx.session.history", "feature-x");
    assert.match(editor.documents[0] ?? "", /session\.created .*\(vscode \d+\)\n/);
    for (const kind of ["terminal.opened", "exec.started"]) {
      const [opened] = (editor.documents[0] ?? "").split("\n").filter((line) => line.includes(kind));
      assert.match(opened ?? "", /\(vscode \d+\)$/, "a stream says the name of the greeting");
    }
    assert.match(editor.documents[0] ?? "", /exec\.ended +sh -c echo .*, code 4\b/);

    // Escape deletes nothing.
    await editor.run("abx.session.delete", "other");
    assert.ok((await editor.items()).has("other"));
    editor.answers.push("Delete");
    await editor.run("abx.session.delete", "other");
    editor.answers.push("Delete All");
    await editor.run("abx.session.delete", "feature-x");
    await until("both to be gone", async () => (await editor.items()).size === 0);
    assert.equal(editor.statusItem.visible, false);
    assert.deepEqual(editor.answers, []);
  }),
);

test(
  "several at once, and what cannot be done is told with what to do",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const editor = edit(world);
    await connected(editor);
    for (const name of ["a", "b"]) {
      editor.answers.push(name);
      await editor.run("abx.session.start");
    }
    const [a, b] = [(await item(editor, "a")).node, (await item(editor, "b")).node];
    await editor.run("abx.session.stop", a, [a, b]);
    await item(editor, "a", (text) => text.startsWith("stopped"));
    await item(editor, "b", (text) => text.startsWith("stopped"));
    // Attaching resumes.
    await editor.run("abx.session.attach", a);
    const terminal = await until("the terminal", () => editor.terminal("a"));
    terminal.type("echo he''llo\r");
    await shows(terminal, "hello");
    const messages = editor.messages.length;
    await editor.run("abx.session.stop", "nobody");
    assert.match(editor.messages[messages]?.text ?? "", /^abx: .*nobody/);
    await shows(await agent(editor), "Hint");
    editor.answers.push("Delete");
    await editor.run("abx.session.delete", a, [a, b]);
    assert.match(editor.messages.at(-1)?.text ?? "", /^Delete (a, b|b, a)\?$/);
    await until("both to be gone", async () => (await editor.items()).size === 0);
  }),
);

/** Opens the agent where a shell runs, which is refused. */
async function agent(editor: Editor): Promise<FakeTerminal> {
  await editor.run("abx.session.attachAgent", "a");
  return await until("the terminal", () => editor.terminals.filter(({ options }) => options.name === "a")[1]);
}

test(
  "a terminal goes on after the daemon was restarted",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const editor = edit(world);
    await connected(editor);
    editor.answers.push("a");
    await editor.run("abx.session.start");
    await editor.run("abx.session.attach", "a");
    const terminal = await until("the terminal", () => editor.terminal("a"));
    terminal.type("x=kept; echo o''ne\r");
    await shows(terminal, "one");
    await world.stopDaemon();
    await until("the loss to be shown", () => terminal.name === "a (reconnecting)");
    await world.startDaemon();
    await until("it to be back", () => terminal.name === "a");
    terminal.type("echo $x-two\r");
    await shows(terminal, "kept-two");
    await connected(editor);
    await item(editor, "a", (text) => text.startsWith("running"));
    // Another way to a terminal: the editor's own menu.
    editor.answers.push("a");
    const profile = await editor.profile?.provideTerminalProfile();
    assert.equal(profile?.options.name, "a");
  }),
);

test("a start that is cancelled is told as what it is", async () => {
  let finish: (() => void) | undefined;
  const fake = await FakeDaemon.rpc((rpc) => {
    rpc.onRequest("session.list", () => []);
    rpc.onRequest("session.start", async (params: { op: string }, token) => {
      const step = {
        kind: "progress",
        data: { op: params.op, text: "pulling\u001b[2Jan image", current_bytes: 1, total_bytes: 3 },
      };
      await rpc.sendNotification("event", step);
      await new Promise<void>((done) => {
        finish = done;
        token.onCancellationRequested(() => done());
      });
      const { ResponseError } = await import("vscode-jsonrpc/node");
      return new ResponseError(-32800, "cancelled");
    });
  });
  const mine: { dispose(): void }[] = [];
  try {
    const editor = new Editor();
    editor.settings.set("abx.socket", fake.socket);
    activate(editor, { own: (thing) => (mine.push(thing), thing) });
    await connected(editor);
    editor.answers.push("feature-x");
    const started = editor.run("abx.session.start");
    await until("progress", () => finish !== undefined && editor.progress[0]?.steps.length === 1);
    assert.deepEqual(editor.progress[0]?.steps, ["pulling [2Jan image (33 %)"]);
    editor.progress[0]?.token.cancel();
    await started;
    await until("the word", () => editor.messages.length > 0);
    assert.match(
      editor.messages[0]?.text ?? "",
      /^Starting feature-x: no longer waited for\. What was begun goes on/,
    );
  } finally {
    for (const one of [...mine, fake]) one.dispose();
  }
});

test("an agent that waits is on the status bar, in the view and in a notification, once", async () => {
  const session = {
    id: "1",
    name: "feature-x",
    sandbox: "session-feature-x",
    status: "running",
    agent: "claude",
    template: "base",
    image: null,
    operation: null,
    reason: null,
    created_at: new Date().toISOString(),
    expires_at: null,
    workspace: null,
    ports: [],
    metadata: { "a|b": "<b>&`x`" },
    snapshots: 0,
    snapshot: null,
    exec_count: 0,
    attention: "working" as string,
    attention_note: null as string | null,
  };
  let tell: ((kind: string) => void) | undefined;
  const fake = await FakeDaemon.rpc((rpc) => {
    rpc.onRequest("session.list", () => [session]);
    rpc.onRequest("session.get", () => session);
    rpc.onRequest("terminal.list", () => []);
    rpc.onRequest("daemon.info", () => ({ settings: [], engines: [] }));
    // The first connection: later ones are terminals.
    tell ??= (kind) =>
      void rpc.sendNotification("event", {
        seq: 2,
        at: "",
        kind,
        session: session.name,
        revision: 2,
        data: {},
      });
  });
  const mine: { dispose(): void }[] = [];
  try {
    const editor = new Editor();
    editor.settings.set("abx.socket", fake.socket);
    activate(editor, { own: (thing) => (mine.push(thing), thing) });
    await until("the session", () => editor.statusItem.text === "$(vm) 1 running");
    assert.equal((await item(editor, "feature-x")).item.description, "running · claude · working");
    Object.assign(session, { attention: "waiting", attention_note: "may I run\u0007the tests?" });
    editor.answers.push("Attach");
    tell?.("session.attention");
    await until("the bell", () => editor.statusItem.text === "$(bell-dot) 1 waiting");
    assert.equal(editor.statusItem.tooltip, "feature-x: may I run the tests?");
    assert.equal(editor.view.badge?.value, 1);
    const { item: shown } = await item(editor, "feature-x");
    assert.equal(shown.description, "running · claude · waiting: may I run the tests?");
    assert.equal(shown.iconPath?.id, "bell-dot");
    assert.match(String(typeof shown.tooltip === "object" && shown.tooltip.value), /\\<b\\>\\&\\`x\\`/);
    assert.equal(editor.messages[0]?.text, "feature-x waits for you: may I run the tests?");
    await until("the terminal", () => editor.terminal("feature-x"));
    tell?.("session.changed");
    Object.assign(session, { attention: "idle" });
    tell?.("session.attention");
    await until("the bell to be gone", () => editor.statusItem.text === "$(vm) 1 running");
    assert.equal(editor.messages.filter(({ text }) => text.includes("waits for you")).length, 1);
    assert.equal(editor.view.badge, undefined);
  } finally {
    for (const one of [...mine, fake]) one.dispose();
  }
});
